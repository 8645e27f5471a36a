"""Outputs of running tasks: handed over while the task runs, again after a restart, whoever raises."""

from __future__ import annotations

from .scripts import Place, python, run

TASKS = """
import time
from pathlib import Path
from tenuto import *

HERE = Path(__file__).parent

def note(text):
    with (HERE / "ledger").open("a") as ledger:
        ledger.write(text + "\\n")

class Checkpoint(Config):
    step: Param[int]

class Training(Task):
    steps: Param[int]

    def checkpoint(self, dep, *, step):
        return dep(Checkpoint.C(step=step))

    def execute(self):
        for step in range(self.steps):
            self.register_task_output(self.checkpoint, step=step)
        deadline = time.monotonic() + 60
        while len((HERE / "ledger").read_text().splitlines()) < self.steps:
            assert time.monotonic() < deadline, "no output was evaluated while the task ran"
            time.sleep(0.01)
        note("trained")

class Evaluate(Task):
    checkpoint: Param[Checkpoint]

    def execute(self):
        note(f"evaluated {self.checkpoint.step}")
"""

SCRIPT = """
def on_checkpoint(checkpoint):
    heard.append(checkpoint.step)
    if RAISES and checkpoint.step == 1:
        raise RuntimeError("a broken watcher")
    Evaluate.C(checkpoint=checkpoint).submit()

heard = []
(HERE / "ledger").touch()
with experiment(HERE / "ws", "outputs") as xp:
    training = Training.C(steps=3)
    training.watch_output(training.checkpoint, on_checkpoint)
    training.on_completed(lambda job: heard.append("completed"))
    training.submit()
print(heard, [job.state.name for job in xp.jobs])
"""


def test_what_a_task_hands_over_is_used_while_it_runs_and_handed_over_again_later(place: Place) -> None:
    script = place.script(SCRIPT.replace("RAISES", "False"), tasks=TASKS)
    first = run(python(script), place.directory)
    assert first.returncode == 0, first.stderr
    assert place.ledger()[-1] == "trained"
    assert sorted(place.ledger()[:-1]) == ["evaluated 0", "evaluated 1", "evaluated 2"]
    assert first.stdout.startswith("[0, 1, 2, 'completed']")
    again = run(python(script), place.directory)
    assert again.returncode == 0, again.stderr
    assert len(place.ledger()) == 4, "everything is reused"
    assert sorted(again.stdout.partition("]")[0]) == sorted(first.stdout.partition("]")[0])
    assert again.stdout.count("DONE") == 4


def test_a_watcher_that_raises_is_reported_and_the_rest_go_on(place: Place) -> None:
    script = place.script(
        SCRIPT.replace("RAISES", "True").replace("steps=3", "steps=4"),
        tasks=TASKS.replace("< self.steps", "< self.steps - 1"),
    )
    result = run(python(script), place.directory)
    assert result.returncode == 0, result.stderr
    assert "a broken watcher" in result.stderr
    assert sorted(place.ledger()) == ["evaluated 0", "evaluated 2", "evaluated 3", "trained"]
