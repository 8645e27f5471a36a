"""Owns the result of a task as another task reads it: in a job, in a script, in a live object."""

from __future__ import annotations

import json
from textwrap import dedent

import pytest

from .scripts import TASKS, Place, python, run

READERS = (
    TASKS
    + """
import pickle

class Train(Task):
    epochs: Param[int]
    def execute(self) -> dict[str, float]:
        return {"accuracy": self.epochs / 10, "curve": [0.5] * self.epochs}

class Evaluate(Task):
    trained: Param[Train]
    others: Param[list[Train]] = field(default_factory=list)
    def execute(self):
        first = self.trained.result()
        again = pickle.loads(pickle.dumps(self.trained))
        assert again.result() == first and again.epochs == self.trained.epochs
        self.trained.epochs += 1  # filled in once: what the task changed stays
        assert pickle.loads(pickle.dumps(self.trained)).epochs == self.trained.epochs
        return [first["accuracy"], *(one.result()["accuracy"] for one in self.others)]

class Own(Task):
    x: Param[int] = 1
    def execute(self):
        return self.result()
"""
)


@pytest.mark.parametrize("launcher", ["warm", "spawn"])
def test_a_task_reads_the_result_of_a_task_it_depends_on(place: Place, launcher: str) -> None:
    script = place.script(
        dedent(f"""
        from tenuto.settings import load_settings
        with experiment("ws", "x", settings=load_settings(arguments={{"launcher": {launcher!r}}})) as xp:
            trained = [Train.C(epochs=n).submit() for n in (2, 4, 100_000)]
            evaluated = Evaluate.C(trained=trained[0], others=trained[1:]).submit()
            print(evaluated.result(), trained[0].result()["accuracy"])
            print(Evaluate.C(trained=trained[0]).instance().trained.result()["accuracy"])
        """),
        tasks=READERS,
    )
    done = run(python(script), place.directory)
    assert done.stdout.split("\n")[:2] == ["[0.2, 0.4, 10000.0] 0.2", "0.2"], done.stderr


def test_a_task_has_no_result_before_it_returned(place: Place) -> None:
    script = place.script(
        dedent("""
        with experiment("ws", "x") as xp:
            Own.C().submit()
        """),
        tasks=READERS,
    )
    done = run(python(script), place.directory)
    assert done.returncode == 1
    assert "NoResult: this Own has no result: only a task that was submitted before" in done.stderr


def test_a_removed_result_is_named(place: Place) -> None:
    first = place.script(
        dedent("""
        with experiment("ws", "x") as xp:
            Train.C(epochs=2).submit()
        """),
        tasks=READERS,
    )
    assert run(python(first), place.directory).returncode == 0
    (marker,) = place.workspace.glob("jobs/*/*/*.done")
    stored = json.loads(marker.read_text())
    marker.write_text(json.dumps({**stored, "result": None, "result_stored": True}))
    second = place.script(
        dedent("""
        with experiment("ws", "x") as xp:
            Evaluate.C(trained=Train.C(epochs=2).submit()).submit()
        """),
        tasks=READERS,
    )
    done = run(python(second), place.directory)
    assert done.returncode == 1
    assert "cannot be read" in done.stderr


KEPT = (
    TASKS
    + """
import datetime, numpy
from dataclasses import dataclass

@dataclass
class Scores:
    f1: float
    folds: tuple[float, ...]

class Measure(Task):
    n: Param[int]
    def execute(self):
        times = {datetime.date(2024, 1, self.n)}
        return {"scores": Scores(0.5, (0.4, 0.6)), "array": numpy.arange(self.n), "times": times}

class Read(Task):
    measured: Param[Measure]
    def execute(self):
        found = self.measured.result()
        return found["scores"].folds, int(found["array"].sum()), found["times"].pop().day

class Odd(Task):
    def execute(self):
        return {"model": object()}

class Pickled(Odd):
    __pickle_result__ = True
"""
)


def test_results_come_back_as_what_they_were_or_with_the_reason(place: Place) -> None:
    script = place.script(
        dedent("""
        with experiment("ws", "x") as xp:
            measured, odd = Measure.C(n=3).submit(), Odd.C().submit()
            print(Read.C(measured=measured).submit().result(), type(measured.result()["scores"]).__name__)
            print(type(Pickled.C().submit().result()["model"]).__name__)
            try:
                odd.result()
            except NoResult as error:
                print(error)
        print([row.get("result.array") for row in xp.results(Measure)])
        """),
        tasks=KEPT.replace(
            "from tenuto import *", "from tenuto import *\nfrom tenuto.errors import NoResult"
        ),
    )
    done = run(python(script), place.directory)
    read, pickled, reason, rows = done.stdout.splitlines()
    assert read == "((0.4, 0.6), 3, 3) Scores", done.stderr
    assert pickled == "object"
    assert (
        "is done, but has no result: Odd.execute() returned something that cannot be kept: object" in reason
    )
    assert rows == "['ndarray of 3, in Measure.result-1.npy']"
    assert "1 job returned what could not be kept: script.Odd" in done.stderr
