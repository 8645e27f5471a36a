"""Outputs of running tasks: handed over while the task runs, again after a restart, whichever side raises."""

from __future__ import annotations

import json
import subprocess

import pytest

from .scripts import WAIT_S, Place, environment, eventually, python, run, tenuto

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


@pytest.mark.parametrize("times", [1, 2])
def test_watchers_of_a_copy_are_called(place: Place, times: int) -> None:
    """Also of one that became the same job as its original."""
    submits = ["training.copy().submit()", "training.submit()"][:times]
    lines = SCRIPT.replace("RAISES", "False").replace("training.submit()", "; ".join(reversed(submits)))
    done = run(python(place.script(lines, tasks=TASKS)), place.directory)
    heard, _, states = done.stdout.partition("] ")
    assert sorted(heard.strip("[").split(", ")) == sorted([*"012", "'completed'"] * times), done.stderr
    assert states.count("DONE") == 4


def test_what_a_task_hands_over_is_used_while_it_runs_and_handed_over_again_later(place: Place) -> None:
    script = place.script(SCRIPT.replace("RAISES", "False"), tasks=TASKS)
    first = run(python(script), place.directory)
    assert first.returncode == 0, first.stderr
    assert place.ledger()[-1] == "trained"
    listed = run(tenuto("jobs", "--json", "-w", place.workspace), place.directory)
    jobs = {job["task"].rpartition(".")[2]: job for job in json.loads(listed.stdout)}
    assert jobs["Evaluate"]["depends_on"] == [jobs["Training"]["id"]], "graphs draw what made the output"
    graph = run(tenuto("graph", "--dot", "-w", place.workspace), place.directory)
    assert "->" in graph.stdout, graph.stdout + graph.stderr
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
    assert result.returncode == 1
    assert "all jobs are done, but a watcher of" in result.stderr
    assert "a broken watcher" in result.stderr
    assert sorted(place.ledger()) == ["evaluated 0", "evaluated 2", "evaluated 3", "trained"]


SLOW_TASKS = """
import json, os, signal, sys, time
from pathlib import Path
from tenuto import *

HERE = Path(__file__).parent

def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)

class Checkpoint(Config):
    step: Param[int]

class Training(ResumableTask):
    dies: Param[str] = ""

    def checkpoint(self, dep, *, step):
        return dep(Checkpoint.C(step=step))

    def execute(self):
        first = 5 * (self.job_attempt - 1)
        for step in range(first, first + 5):
            self.register_task_output(self.checkpoint, step=step)
        if self.dies and self.job_attempt == 1:
            until(lambda: (HERE / "heard").exists())
            os.kill(os.getppid() if self.dies == "runner" else os.getpid(), signal.SIGKILL)
            time.sleep(60)
        until(lambda: (HERE / "release").exists())
        self.register_task_output(self.checkpoint, step=99)
"""

SLOW = """
def on_checkpoint(checkpoint, key):
    with (HERE / "ledger").open("a") as ledger:
        ledger.write(f"{os.getpid()} {key.sequence} {checkpoint.step}\\n")
    assert key == (training.job.job_id, key.sequence)
    if key.sequence == 3:
        (HERE / "heard").touch()

with experiment(HERE / "ws", "outputs") as xp:
    training = Training.C(dies="DIES")
    training.watch_output(training.checkpoint, on_checkpoint)
    training.submit()
"""


def heard(place: Place) -> dict[str, list[tuple[int, int]]]:
    """What each process heard, in order."""
    found: dict[str, list[tuple[int, int]]] = {}
    for line in place.ledger():
        pid, sequence, step = line.split()
        found.setdefault(pid, []).append((int(sequence), int(step)))
    return found


@pytest.mark.parametrize("launcher", ["spawn", "warm"])
def test_after_a_killed_scheduler_each_output_is_handed_over_again_with_its_key(
    place: Place, launcher: str
) -> None:
    script = place.script(SLOW.replace("DIES", ""), tasks=SLOW_TASKS)
    command, variables = python(script), environment(TENUTO_LAUNCHER=launcher)
    first = subprocess.Popen(command, cwd=place.directory, env=variables)
    eventually((place.directory / "heard").exists, "some outputs to be heard")
    first.kill()
    first.wait()
    with subprocess.Popen(command, cwd=place.directory, env=variables) as second:
        eventually(lambda: len(heard(place).get(str(second.pid), ())) == 5, "the outputs to come again")
        place.release.touch()
        assert second.wait(WAIT_S) == 0
    told = heard(place)
    expected = [(sequence, sequence - 1) for sequence in range(1, 6)] + [(6, 99)]
    assert told.pop(str(second.pid)) == expected
    assert told.pop(str(first.pid))[:3] == expected[:3]


@pytest.mark.parametrize("dies", ["payload", "runner"])
def test_the_keys_go_on_in_the_next_attempt(place: Place, dies: str) -> None:
    place.release.touch()
    script = place.script(SLOW.replace("DIES", dies), tasks=SLOW_TASKS)
    result = run(python(script), place.directory)
    if dies == "payload":  # killed by whomever: that is a failure, and the script is run again
        assert result.returncode == 1
        result = run(python(script), place.directory)
    assert result.returncode == 0, result.stderr
    expected = [(sequence, sequence - 1) for sequence in range(1, 11)] + [(11, 99)]
    assert list(heard(place).values())[-1] == expected


def test_a_watcher_that_wants_to_leave_does_not_keep_the_others_waiting(place: Place) -> None:
    script = place.script(
        """
heard = []
def leave(checkpoint):
    sys.exit("from a watcher")

with experiment(HERE / "ws", "outputs") as xp:
    training = Training.C()
    training.watch_output(training.checkpoint, leave)
    training.watch_output(training.checkpoint, heard.append)
    training.on_completed(leave)
    training.on_completed(heard.append)
    training.submit()
    xp.wait()
    print(len(heard))
""",
        tasks=SLOW_TASKS,
    )
    place.release.touch()
    result = run(python(script), place.directory)
    assert (result.returncode, result.stdout) == (1, "7\n"), result.stderr
    assert "all jobs are done, but a watcher of checkpoint" in result.stderr


def test_a_subscriber_that_hears_of_a_done_job_may_ask_for_its_result(place: Place) -> None:
    script = place.script(
        """
heard = []
with experiment(HERE / "ws", "outputs") as xp:
    task = Note.C(name="a")
    task.on_completed(lambda job: heard.append((job.state.name, job.wait().name, job.result())))
    task.submit()
print(heard)
"""
    )
    result = run(python(script), place.directory)
    assert result.stdout == "[('DONE', 'DONE', 'a')]\n", result.stderr
