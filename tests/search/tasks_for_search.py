"""Tasks that searches of the tests evaluate."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenuto import Config, Meta, Param, Task, log_metrics
from tenuto.search import Outcome
from tenuto.tasks.ports import current_job


class Square(Task):
    """Worth the square of its number; `log` gets a line for each execution."""

    x: Param[float]
    log: Meta[str] = ""
    seconds: Meta[float] = 0.0
    cost: Meta[float] = 0.0

    def execute(self) -> Outcome:
        note(self.log, f"start {self.x}")
        time.sleep(self.seconds)
        note(self.log, f"end {self.x}")
        return Outcome(self.x**2, [self.x], cost=self.cost)


class Whole(Task):
    """A whole number, whose number is its worth; negative ones fail."""

    n: Param[int]
    log: Meta[str] = ""
    seconds: Meta[float] = 0.0

    def execute(self) -> Any:
        note(self.log, f"start {self.n}")
        time.sleep(self.seconds)
        if self.n < 0:
            raise ValueError("negative")
        note(self.log, f"end {self.n}")
        return self.n


class Judged(Task):
    """Worth its number, with two measures by name, in one of the forms in which a task may return them."""

    n: Param[int]
    form: Param[str]
    log: Meta[str] = ""

    def execute(self) -> Any:
        note(self.log, f"start {self.n}")
        named = {"speed": self.n / 10, "size": 1 - self.n / 10}
        forms = {
            "mapping": {"objective": self.n, **named},
            "outcome": Outcome(self.n, named, cost=2.0),
            "metrics": Outcome(self.n, metrics=named),
            "list": Outcome(self.n, [*named.values()]),
            "failure": Outcome(self.n, named, failure="no"),
        }
        return forms[self.form]


class Hostile(Task):
    """Returns, raises or prints what no database would take as it is."""

    form: Param[str]

    def execute(self) -> Any:
        kind, _, bad = self.form.partition(" ")
        metrics = {f"k{bad}": f"v{bad}", "nested": [{f"n{bad}": [bad]}]}
        if kind == "raise":
            raise ValueError(f"a{bad}z")
        if kind == "prints":
            os.write(2, b"a\0z\xff\n")
            os._exit(3)
        forms = {
            "failure": Outcome(failure=f"a{bad}z"),
            "outcome": Outcome(1.0, metrics=metrics, artifacts={f"f{bad}": bad}, solution=f"s{bad}"),
            "mapping": {"objective": 1, **metrics, "solution": f"s{bad}"},
            "plain": bad,
        }
        return float(bad) if kind == "plain" else forms[kind]


class Ball(Task):
    """The sphere of the benchmarks, with the sums of both halves as measures."""

    x: Param[list[float]]

    def execute(self) -> Outcome:
        half = len(self.x) // 2
        return Outcome(-sum((v - 2.048) ** 2 for v in self.x), [sum(self.x[:half]), sum(self.x[half:])])


class Arrays(Task):
    """Returns numbers and measures as numpy has them, in each form that a task may choose."""

    x: Param[float]
    form: Param[str]

    def execute(self) -> Any:
        import numpy as np

        one, array = np.array(1.0), np.array([self.x])
        forms = {
            "outcome": Outcome(np.float32(1), array, cost=np.int64(1), metrics={"a": np.zeros(2)}),
            "mapping": {"objective": one, "measures": array},
            "ordered": OrderedDict(objective=one, measures=array),
            "dataclass": Found(one, array),
            "tuple": Outcome(one, (array[0],), cost=one),
            "names": Outcome(one, {"a": np.array(self.x)}),
        }
        return forms[self.form]


@dataclass
class Found:
    """An outcome of a user's own class."""

    objective: Any
    measures: Any


class Unkept(Task):
    """Returns what no result keeps."""

    x: Param[float]

    def execute(self) -> Any:
        return Outcome(1.0, [self.x], metrics={"model": object()})


class Device(Task):
    """Says which GPU it has."""

    x: Param[float]

    def execute(self) -> dict[str, Any]:
        return {"objective": self.x, "device": os.environ.get("CUDA_VISIBLE_DEVICES")}


class Failing(Task):
    """Cannot be evaluated."""

    x: Param[float]

    def execute(self) -> Outcome:
        return Outcome(failure="it never works", cost=0.5)


class KillsItsRunner(Task):
    """Kills its runner where x is above 0.5."""

    x: Param[float]

    def execute(self) -> float:
        if self.x > 0.5:
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(30)
        return self.x


def note(path: str, text: str) -> None:
    """Appends a line, in one write."""
    if path:
        context = current_job.get()
        assert context is not None
        with Path(path).open("a") as file:
            file.write(f"{text}\n")


class Cheats(Task):
    """Every second candidate fails, and would be the best."""

    n: Param[int]
    kind: Param[str]

    def execute(self) -> Any:
        if self.n % 2:
            return Outcome(objective=self.n / 100, measures=[0.5])
        objective = 100.0 + self.n
        if self.kind == "failure":
            return Outcome(objective=objective, measures=[0.5], failure="infeasible")
        if self.kind == "measures":
            return Outcome(objective=objective, measures=[0.5, 0.5])
        if self.kind == "cost":
            return Outcome(objective=objective, measures=[0.5], cost=float("nan"))
        return {"objective": objective, "measures": [[0.5]]}


class Svm(Config):
    """A model with a parameter of its own."""

    C: Param[float] = 1.0


class Forest(Config):
    """Another one, with another parameter."""

    trees: Param[int]


class Fit(Task):
    """Worth what its model is."""

    model: Param[Config]

    def execute(self) -> float:
        return float(self.model.trees if isinstance(self.model, Forest) else self.model.C)


class Trade(Task):
    """Two objectives, of which one costs the other; not feasible where x is above 0.8."""

    x: Param[float]
    y: Param[float]
    single: Param[bool] = False

    def execute(self) -> Outcome:
        found = {"objectives": [self.x, self.x**2 + self.y]}
        one = {"objective": self.x, "measures": [self.y]}
        return Outcome(**(one if self.single else found), constraints=[self.x - 0.8])


class Logging(Task):
    """Logs a score at each of 30 steps, the smaller the better, and takes two seconds for that."""

    x: Param[float]
    log: Meta[str] = ""

    def execute(self) -> float:
        for step in range(30):
            log_metrics({"score": self.x + 1 / (step + 1)}, step=step)
            time.sleep(0.06)
        note(self.log, f"end {self.x}")
        return self.x


class Noisy(Task):
    """Worth its number and what chance adds."""

    n: Param[int]

    def execute(self) -> Outcome:
        noise = random.random()
        return Outcome(self.n + noise, [noise], cost=1.0, metrics={"noise": noise, "kind": "a"})


class Seeded(Task):
    """Worth its seed."""

    n: Param[int]
    __seed__: Param[int] = 40
    log: Meta[str] = ""

    def execute(self) -> float:
        seed = self.__seed__
        note(self.log, f"{self.n} {seed}")
        if self.n == 3 and seed == 41:
            raise ValueError("unlucky")
        return float(self.n * 100 + seed)


class Grows(Task):
    """Worth the memory that it has, in megabytes; less than 200 are not enough for more than 0."""

    __requires__ = "cpu(mem=100M) & duration=1m"
    __retry__ = "memory: mem*2 to 400M; failed: 1"

    x: Param[float]
    log: Meta[str] = ""

    def execute(self) -> Outcome:
        note(self.log, f"attempt {self.job_attempt} of {self.x:.0f}")
        if self.x < 0 or (self.x < 1 and self.job_attempt == 1):
            raise ValueError("as it is meant to")
        kept = bytearray(150 << 20) if self.x > 1 else b""
        return Outcome(float(self.job_attempt), [self.x + len(kept) * 0])
