"""Owns that `Prepare` work is done once, before any job that needs it, and what the modes make of it."""

from __future__ import annotations

import subprocess

import pytest

from .scripts import WAIT_S, Place, environment, eventually, python, run, tenuto

TASKS = """
import os, sys, time
from pathlib import Path
from tenuto import *

HERE = Path(__file__).parent

def note(text):
    with (HERE / "ledger").open("a") as ledger:
        ledger.write(f"{text}\\n")

class Archive(Prepare):
    name: Param[str]
    file: Meta[Path] = field(default_factory=PathGenerator("archive.txt"))
    def execute(self):
        note(f"download {self.name} in {'a job' if Path.cwd() != HERE else 'the script'}")
        if self.name == "broken":
            raise OSError("no network")
        if self.name == "slow":
            while not (HERE / "release").exists():
                time.sleep(0.01)
        self.file.write_text(self.name)

class Words(Prepare):
    archive: Param[Archive]
    file: Meta[Path] = field(default_factory=PathGenerator("words.txt"))
    def execute(self):
        note("words")
        self.file.write_text(self.archive.file.read_text() + "!")

class Train(Task):
    words: Param[Words]
    seed: Param[int] = 0
    def execute(self):
        note("train")
        return self.words.file.read_text()

class Evaluate(Task):
    archive: Param[Archive]
    train: Param[Train]
    def execute(self):
        note("evaluate")
        return self.archive.file.read_text()

class Warm(Task):
    def execute(self):
        note("warm")
"""
SWEEP = """
with experiment(HERE / "ws", "prepared"{options}) as xp:
    archive = Archive.C(name="mnist")
    for seed in range(2):
        train = Train.C(words=Words.C(archive=archive), seed=seed).submit()
        Evaluate.C(archive=archive, train=train).submit()
    Warm.C().submit(init_tasks=[archive])
print(sorted({{str(row["result"]) for row in xp.results()}}))
"""


@pytest.mark.parametrize("launcher", ["spawn", "warm"])
def test_preparing_is_done_once_before_the_jobs_that_need_it(place: Place, launcher: str) -> None:
    script = place.script(SWEEP.format(options=""), tasks=TASKS)
    result = run(python(script), place.directory, TENUTO_LAUNCHER=launcher)
    assert result.stdout == "['None', 'mnist', 'mnist!']\n", result.stderr
    assert place.ledger()[:2] == ["download mnist in the script", "words"]
    assert sorted(place.ledger()[2:]) == ["evaluate", "evaluate", "train", "train", "warm"]
    assert "preparing script.Archive" in result.stderr
    again = run(python(script), place.directory)
    assert again.returncode == 0
    assert len(place.ledger()) == 7
    assert "preparing" not in again.stderr


def test_only_that_is_done_in_its_mode(place: Place) -> None:
    script = place.script(SWEEP.format(options=", run_mode=RunMode.PREPARE"), tasks=TASKS)
    result = run(python(script), place.directory)
    assert result.returncode == 0, result.stderr
    assert "2 prepared; 5 jobs looked at, none started" in result.stderr
    assert place.ledger() == ["download mnist in the script", "words"]
    assert not (place.workspace / "jobs").exists()
    assert not (place.workspace / "experiments").exists()
    place.script(SWEEP.format(options=""), tasks=TASKS)
    assert run(python(script), place.directory).returncode == 0
    assert len(place.ledger()) == 7


def test_the_command_line_can_ask_for_it(place: Place) -> None:
    script = place.script(SWEEP.format(options=""), tasks=TASKS)
    result = run(tenuto("run", "--prepare", script), place.directory)
    assert result.returncode == 0, result.stderr
    assert "2 prepared" in result.stderr
    assert place.ledger() == ["download mnist in the script", "words"]
    assert run(tenuto("run", "--prepare", "--dry-run", script), place.directory).returncode == 2


def test_a_plan_prepares_nothing(place: Place) -> None:
    script = place.script(SWEEP.format(options=", run_mode=RunMode.DRY_RUN"), tasks=TASKS)
    assert run(python(script), place.directory).returncode == 0
    assert place.ledger() == []
    assert not place.workspace.exists()


def test_a_failure_is_named_and_tried_again(place: Place) -> None:
    script = place.script(SWEEP.format(options="").replace("mnist", "broken"), tasks=TASKS)
    for tries in (1, 2):
        result = run(python(script), place.directory)
        assert result.returncode == 1
        assert "PreparationFailed: script.Archive" in result.stderr
        assert "could not be prepared (OSError: no network): fix that" in result.stderr
        assert place.ledger() == ["download broken in the script"] * tries
    assert place.state("prepared") == "failed"


def test_two_processes_do_it_once_and_a_killed_one_is_taken_over(place: Place) -> None:
    body = """
with experiment(HERE / "ws", sys.argv[1], run_mode=RunMode.PREPARE) as xp:
    Train.C(words=Words.C(archive=Archive.C(name="slow"))).submit()
"""
    script = place.script(body, tasks=TASKS)

    def start(name: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*python(script), name],
            cwd=place.directory,
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
        )

    with start("one") as first:
        eventually(place.ledger, "the first to begin")
        with start("two") as second:
            assert second.stderr is not None
            assert "waiting for script.Archive" in second.stderr.readline()
            first.kill()
            eventually(lambda: len(place.ledger()) == 2, "the second to take over")
            with start("three") as third:
                assert third.stderr is not None
                assert "waiting for script.Archive" in third.stderr.readline()
                place.release.touch()
                assert second.wait(WAIT_S) == third.wait(WAIT_S) == 0
    assert place.ledger() == ["download slow in the script"] * 2 + ["words"]
