"""Owns the promise that the examples of the documents Tenuto began with run, with the import changed."""

from __future__ import annotations

from .scripts import Place, python, run

RESUMABLE = '''
import json, os
from pathlib import Path
from tenuto import *

HERE = Path(__file__).parent

def load_checkpoint(path):
    return json.loads(path.read_text()) + 1

def save_checkpoint(path, epoch):
    path.write_text(json.dumps(epoch))

def train_one_epoch():
    with (HERE / "ledger").open("a") as ledger:
        ledger.write("epoch\\n")

class LongTraining(ResumableTask):
    checkpoint: Meta[Path] = field(default_factory=PathGenerator("checkpoint.pth"))

    def execute(self):
        start_epoch = 0
        if self.checkpoint.exists():
            start_epoch = load_checkpoint(self.checkpoint)

        for epoch in range(start_epoch, self.epochs):
            remaining = self.remaining_time()
            if remaining is not None and remaining < 300:
                save_checkpoint(self.checkpoint, epoch)
                raise GracefulTimeout("Not enough time")

            train_one_epoch()
            save_checkpoint(self.checkpoint, epoch)

class Long(LongTraining):
    """What the example leaves out."""
    epochs: Param[int]
'''
DYNAMIC = """
import time
from pathlib import Path
from tenuto import *

HERE = Path(__file__).parent

def train_step():
    pass

class Checkpoint(Config):
    step: Param[int]

class Validation(Config):
    def checkpoint(self, dep, step):
        return dep(Checkpoint.C(step=step))

    def compute(self, step):
        self.register_task_output(self.checkpoint, step)

class Training(ResumableTask):
    validation: Param[Validation]

    def execute(self):
        for step in range(100):
            train_step()
            if step % 10 == 0:
                self.validation.compute(step)  # Calls register_task_output

class Evaluate(Task):
    checkpoint: Param[Checkpoint]

    def execute(self):
        with (HERE / "ledger").open("a") as ledger:
            ledger.write(f"{self.checkpoint.step}\\n")
"""


def test_an_experiment_runs_what_is_submitted(place: Place) -> None:
    script = place.script(
        """
workdir, task = HERE / "ws", Note.C(name="a")
with experiment(workdir, "my-experiment", port=12345) as xp:
    task.submit()
"""
    )
    result = run(python(script), place.directory)
    assert result.returncode == 0, result.stderr
    assert place.ledger() == ["a"]


def test_the_scheduler_is_one(place: Place) -> None:
    script = place.script(
        """
scheduler = Scheduler.instance()  # Get or create singleton
print(scheduler is Scheduler.instance())
"""
    )
    assert run(python(script), place.directory).stdout == "True\n"


def test_a_resumable_task_runs_to_its_end(place: Place) -> None:
    script = place.script(
        'with experiment(HERE / "ws", "long"):\n    Long.C(epochs=3).submit()', tasks=RESUMABLE
    )
    result = run(python(script), place.directory)
    assert result.returncode == 0, result.stderr
    assert place.ledger() == ["epoch"] * 3


def test_a_resumable_task_without_enough_time_is_tried_again_and_then_given_up(place: Place) -> None:
    script = place.script(
        'with experiment(HERE / "ws", "long"):\n    Long.C(epochs=3).submit(max_retries=2)', tasks=RESUMABLE
    )
    result = run(python(script), place.directory, TENUTO_WALLTIME_S="200")
    assert result.returncode == 1
    assert "TIMEOUT" in result.stderr
    assert "Not enough time" in result.stderr
    (directory,) = place.workspace.glob("jobs/script.Long/*")
    assert sorted(path.name for path in directory.glob("*.err*")) == ["Long.err", "Long.err.1", "Long.err.2"]


def test_outputs_of_a_running_task_are_followed_by_jobs(place: Place) -> None:
    script = place.script(
        """
def on_checkpoint(checkpoint):
    Evaluate.C(checkpoint=checkpoint).submit()

with experiment(HERE / "ws", "dynamic"):
    validation = Validation.C()
    training = Training.C(validation=validation)
    training.watch_output(validation.checkpoint, on_checkpoint)
    training.submit()
""",
        tasks=DYNAMIC,
    )
    result = run(python(script), place.directory)
    assert result.returncode == 0, result.stderr
    assert sorted(map(int, place.ledger())) == list(range(0, 100, 10))
