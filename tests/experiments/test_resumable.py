"""Owns the promise that a resumable task goes on where it stopped, whichever process was killed meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .scripts import Place, environment, eventually, python, run, tenuto

# The example of the documents, as written. What it leaves out (a model, and its checkpoint) is real: the
# state of a random walk, which an epoch that is skipped, repeated or half done would change.
TRAINING = '''
import json, os, random, sys, time
from pathlib import Path
from tenuto import *

HERE = Path(__file__).parent
MODEL = {"epochs": 0, "weights": [0.0] * 4, "random": None}
REMAINING = None  # set by the task below

def train_one_epoch():
    chance = random.Random(7)
    if MODEL["random"] is not None:
        version, state, gauss = MODEL["random"]
        chance.setstate((version, tuple(state), gauss))
    MODEL["weights"] = [weight * 0.9 + chance.random() for weight in MODEL["weights"]]
    MODEL["random"] = chance.getstate()
    MODEL["epochs"] += 1
    while MODEL["epochs"] % 3 == 0 and (REMAINING() or 0) >= 300:
        time.sleep(0.01)  # an epoch so long that time runs out

def save_checkpoint(path, epoch):
    path.with_suffix(".new").write_text(json.dumps(MODEL))
    path.with_suffix(".new").rename(path)

def load_checkpoint(path):
    MODEL.update(json.loads(path.read_text()))
    return MODEL["epochs"]

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

    def execute(self):
        global REMAINING
        REMAINING = self.remaining_time
        print("attempt", self.job_attempt)
        super().execute()
        return {"weights": MODEL["weights"], "epochs": MODEL["epochs"]}

class Stubborn(ResumableTask):
    """Looks at no clock: it saves what it has, and is killed."""
    epochs: Param[int]
    checkpoint: Meta[Path] = field(default_factory=PathGenerator("checkpoint.json"))

    def execute(self):
        if self.checkpoint.exists():
            load_checkpoint(self.checkpoint)
        while MODEL["epochs"] < self.epochs:
            MODEL["epochs"] += 1
            save_checkpoint(self.checkpoint, None)
            while MODEL["epochs"] % 2 == 0 and MODEL["epochs"] < self.epochs:
                time.sleep(0.01)
        return MODEL["epochs"]

class Hold(ResumableTask):
    """Runs until it is released, or its time is over."""
    def execute(self):
        with (HERE / "ledger").open("a") as ledger:
            ledger.write(f"{self.job_attempt}\\n")
        while not (HERE / "release").exists():
            time.sleep(0.01)
            if (self.remaining_time() or 1) < 1:
                raise GracefulTimeout("Not enough time")
        return self.job_attempt

class Plain(Task):
    execute = Hold.execute
'''
SHOW = """
import json
with experiment(HERE / "ws", "long", raise_on_failure=False) as xp:
    task = {task}
xp.jobs[0].wait()
job = xp.jobs[0]
print(json.dumps([job.state.name, job.attempt, job.retry_count, job.max_retries,
                  job.result() if job.state is JobState.DONE else job.failure_status.name]))
"""


def shown(place: Place, task: str, **variables: str) -> Any:
    """Runs an experiment of one task: its state, attempt, retries, and its result or why it failed."""
    result = run(python(place.script(SHOW.format(task=task), tasks=TRAINING)), place.directory, **variables)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def logs(place: Place, task: str) -> list[str]:
    """What each attempt printed, the first one first."""
    (directory,) = place.workspace.glob(f"jobs/script.{task}/*")
    last = directory / f"{task}.out"
    earlier = sorted(directory.glob(f"{task}.out.*"), key=lambda path: int(path.suffix[1:]))
    return [path.read_text() for path in [*earlier, last]]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["spawn", "warm"])
def test_three_restarts_give_the_result_of_one_uninterrupted_run(
    place: Place, tmp_path: Path, launcher: str
) -> None:
    """However slow the machine: an attempt may have time for fewer epochs, and the result is the same."""
    uninterrupted = Place(tmp_path / "other")
    uninterrupted.directory.mkdir()
    straight = shown(uninterrupted, "Long.C(epochs=10).submit()", TENUTO_LAUNCHER=launcher)
    assert straight[:3] == ["DONE", 1, 0]
    state, attempt, retries, most, result = shown(
        place,
        "Long.C(epochs=10).submit(max_retries=50)",
        TENUTO_LAUNCHER=launcher,
        TENUTO_WALLTIME_S="302",
    )
    assert (state, most) == ("DONE", 50)
    assert retries >= 3
    assert attempt == retries + 1
    assert result == straight[4]
    assert logs(place, "Long") == [f"attempt {number}\n" for number in range(1, attempt + 1)]


@pytest.mark.slow
def test_a_task_that_ignores_its_time_is_killed_and_goes_on_from_its_checkpoint(place: Place) -> None:
    state, attempt, retries, _, result = shown(
        place, "Stubborn.C(epochs=7).submit(max_retries=50)", TENUTO_WALLTIME_S="1.5", TENUTO_GRACE_S="0.1"
    )
    assert (state, result) == ("DONE", 7)
    assert retries == attempt - 1 >= 3


def test_the_number_of_restarts_is_a_setting_and_the_task_can_say_otherwise(place: Place) -> None:
    time_enough_for_nothing = {"TENUTO_WALLTIME_S": "200", "TENUTO_MAX_RETRIES": "1"}
    assert shown(place, "Long.C(epochs=3).submit()", **time_enough_for_nothing) == [
        "ERROR", 2, 1, 1, "TIMEOUT",
    ]  # fmt: skip
    assert shown(place, "Long.C(epochs=4).submit(max_retries=0)", **time_enough_for_nothing) == [
        "ERROR", 1, 0, 0, "TIMEOUT",
    ]  # fmt: skip


def test_of_two_submissions_the_higher_number_of_restarts_wins(place: Place) -> None:
    task = "[Long.C(epochs=3).submit(max_retries=n) for n in (1, 2, 0)]"
    assert shown(place, task, TENUTO_WALLTIME_S="200") == ["ERROR", 3, 2, 2, "TIMEOUT"]


def test_a_job_that_used_up_its_restarts_has_all_of_them_when_it_is_submitted_again(place: Place) -> None:
    task = "Long.C(epochs=3).submit(max_retries=1)"
    assert shown(place, task, TENUTO_WALLTIME_S="200")[:3] == ["ERROR", 2, 1]
    assert shown(place, task, TENUTO_WALLTIME_S="200")[:3] == ["ERROR", 4, 1]


def test_tenuto_retry_knows_how_often_a_task_may_be_restarted(place: Place) -> None:
    task = "Long.C(epochs=3).submit(max_retries=1)"
    shown(place, task, TENUTO_WALLTIME_S="200")
    result = run(tenuto("retry", "-w", place.workspace, "--failed", "--json"), place.directory)
    assert json.loads(result.stdout)[0]["attempt"] == 4, result.stderr


# Who was killed


def started(place: Place, task: str, **variables: str) -> subprocess.Popen[str]:
    """The same experiment, in the background, once its job has begun."""
    before = len(place.ledger())
    process = in_background(place, task, **variables)
    eventually(lambda: len(place.ledger()) > before, "the job")
    return process


def in_background(place: Place, task: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        python(place.script(SHOW.format(task=task), tasks=TRAINING)),
        cwd=place.directory,
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def the_job(place: Place, task: str) -> Path:
    (directory,) = place.workspace.glob(f"jobs/script.{task}/*")
    return directory


def signal_runner(place: Place, task: str, attempt: int, number: signal.Signals) -> None:
    """Sends a signal to the runner of an attempt once it has begun."""
    record = the_job(place, task) / f"{task}.pid"

    def pid() -> int | None:
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(record.read_text())
            return int(found["pid"]) if found["attempt"] == attempt else None
        return None

    eventually(lambda: str(attempt) in place.ledger() and pid(), f"attempt {attempt}")
    os.kill(pid() or 0, number)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["spawn", "warm"])
def test_restarts_are_not_forgotten_when_the_scheduler_is_killed_between_them(
    place: Place, launcher: str
) -> None:
    settings = {"TENUTO_WALLTIME_S": "3", "TENUTO_LAUNCHER": launcher}
    task = "Hold.C().submit(max_retries=1)"
    killed(started(place, task, **settings))
    eventually(lambda: list(the_job(place, "Hold").glob("Hold.failed")), "the end of the first attempt")
    assert shown(place, task, **settings) == ["ERROR", 2, 1, 1, "TIMEOUT"]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["spawn", "warm"])
def test_a_restart_that_another_scheduler_began_is_adopted_with_its_count(
    place: Place, launcher: str
) -> None:
    settings = {"TENUTO_WALLTIME_S": "3", "TENUTO_LAUNCHER": launcher}
    process = started(place, "Hold.C().submit(max_retries=1)", **settings)
    signal_runner(place, "Hold", 2, signal.SIGSTOP)  # so that its time is not up before it is adopted
    killed(process)
    again = in_background(place, "Hold.C().submit(max_retries=1)", **settings)
    lists = place.workspace / "experiments"
    eventually(lambda: sum(bool(one.stat().st_size) for one in lists.glob("*/*/jobs.jsonl")) == 2, "adoption")
    signal_runner(place, "Hold", 2, signal.SIGCONT)
    assert json.loads(again.communicate()[0]) == ["ERROR", 2, 1, 1, "TIMEOUT"]


@pytest.mark.parametrize("launcher", ["spawn", "warm"])
def test_a_resumable_task_whose_runner_is_killed_is_started_again_once(place: Place, launcher: str) -> None:
    process = started(place, "Hold.C().submit()", TENUTO_LAUNCHER=launcher)
    signal_runner(place, "Hold", 1, signal.SIGKILL)
    signal_runner(place, "Hold", 2, signal.SIGKILL)
    assert json.loads(process.communicate()[0]) == ["ERROR", 2, 0, 3, "LOST"]


def test_a_plain_task_whose_runner_is_killed_is_lost_unless_the_setting_says_otherwise(place: Place) -> None:
    process = started(place, "Plain.C().submit()")
    signal_runner(place, "Plain", 1, signal.SIGKILL)
    assert json.loads(process.communicate()[0]) == ["ERROR", 1, 0, 0, "LOST"]
    process = started(place, "Plain.C().submit()", TENUTO_MAX_LOST_RETRIES="1")
    signal_runner(place, "Plain", 2, signal.SIGKILL)
    eventually(lambda: "3" in place.ledger(), "the third attempt")
    place.release.touch()
    assert json.loads(process.communicate()[0]) == ["DONE", 3, 0, 0, 3]


def test_a_cancelled_resumable_task_is_not_started_again(place: Place) -> None:
    """It gets `TaskCancelled`, not the grace of a timeout."""
    process = started(place, "Hold.C().submit()")
    run(tenuto("kill", "-w", place.workspace, "--where", "state=running", "--yes"), place.directory)
    assert json.loads(process.communicate()[0]) == ["ERROR", 1, 0, 3, "CANCELLED"]
    assert "TaskCancelled" in (the_job(place, "Hold") / "Hold.err").read_text()
