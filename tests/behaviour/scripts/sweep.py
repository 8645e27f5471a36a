"""The experiments of the behaviour tests: one job of each kind, told apart by tags."""

import os
import signal
import sys
import time
from pathlib import Path

from tenuto import (
    Config,
    FailedExperiment,
    GracefulTimeout,
    Meta,
    Param,
    PathGenerator,
    ResumableTask,
    Task,
    TransientMode,
    experiment,
    field,
)


class Data(Task):
    size: Param[int]
    text: Meta[Path] = field(default_factory=PathGenerator("data.txt"))

    def execute(self):
        self.text.write_text("x" * self.size)


class Train(Task):
    data: Param[Data]
    lr: Param[float]

    def execute(self):
        print(f"trains with {self.lr}")
        print("a warning", file=sys.stderr)
        if self.lr > 0.5:
            raise ValueError(f"diverged with {self.lr}")
        return {"loss": self.lr, "size": len(self.data.text.read_text())}


class Evaluate(Task):
    model: Param[Train]

    def execute(self):
        return self.model.lr * 2


class Licensed(Task):
    cores: Param[int]

    def execute(self):
        return self.cores


class Resumed(ResumableTask):
    goal: Param[int]

    def execute(self):
        if self.job_attempt < self.goal:
            raise GracefulTimeout("not yet")
        return self.job_attempt


class Crash(Task):
    signal: Param[int]

    def execute(self):
        os.kill(os.getpid(), self.signal)


class Checkpoint(Config):
    step: Param[int]


class Validation(Config):
    every: Param[int]

    def checkpoint(self, dep, step):
        return dep(Checkpoint.C(step=step))


class Learn(ResumableTask):
    validation: Param[Validation]

    def execute(self):
        for step in (1, 2):
            self.validation.register_task_output(self.validation.checkpoint, step * self.validation.every)


class Judge(Task):
    checkpoint: Param[Checkpoint]

    def execute(self):
        return self.checkpoint.step


class Hold(Task):
    name: Param[str]
    release: Meta[Path]

    def execute(self):
        print("began", flush=True)
        until = time.monotonic() + 120
        while not self.release.exists() and time.monotonic() < until:
            time.sleep(0.01)


def sweep(workspace):
    """Everything that can become of a job, in one run; one after the other, so that the order is one."""
    with experiment(workspace, "sweep") as xp:
        xp.tag("paper")
        data = Data.C(size=3).submit(transient=TransientMode.TRANSIENT)
        Data.C(size=9).submit(transient=TransientMode.TRANSIENT)  # no job needs it
        for lr in (0.1, 0.2, 0.9):
            model = Train.C(data=data, lr=lr).tag("lr", lr)
            Evaluate.C(model=model.submit()).tag("lr", lr).submit()
            xp.wait()
        licences = xp.token("licences", 2)
        licences(2, Licensed.C(cores=2)).submit()
        Resumed.C(goal=2).submit(max_retries=3)
        Crash.C(signal=signal.SIGKILL.value).submit()


def learn(workspace):
    """Outputs of a task that become jobs while it runs."""
    with experiment(workspace, "learn"):
        validation = Validation.C(every=10)
        learn = Learn.C(validation=validation)
        learn.watch_output(validation.checkpoint, lambda found: Judge.C(checkpoint=found).submit())
        learn.submit()


def good(workspace):
    """The part of the sweep that succeeds: what another experiment has done is reused."""
    with experiment(workspace, "good"):
        Train.C(data=Data.C(size=3).submit(), lr=0.1).tag("lr", 0.1).submit()


def hold(workspace):
    """A job that runs until it is stopped."""
    with experiment(workspace, "hold"):
        Hold.C(name="held", release=Path("release").absolute()).submit()


if __name__ == "__main__":
    what, workspace = sys.argv[1:]
    try:
        {"sweep": sweep, "learn": learn, "good": good, "hold": hold}[what](workspace)
    except FailedExperiment as failed:
        sys.exit(f"failed: {failed}")
