"""What jobs share besides results: the directories of partials, and the files of cached methods."""

from __future__ import annotations

import json
import subprocess

import pytest

from .scripts import WAIT_S, Place, environment, eventually, python, run

TASKS = """
import os, signal, sys, time
from pathlib import Path
from tenuto import *

HERE = Path(__file__).parent

def note(text):
    with (HERE / "ledger").open("a") as ledger:
        ledger.write(f"{text}\\n")

iterations = param_group("iterations")

class Learn(Task):
    lr: Param[float]
    steps: Param[int] = field(groups=[iterations])
    holds: Meta[bool] = False
    shared = partial(exclude_groups=[iterations])
    checkpoint: Meta[Path] = field(default_factory=PathGenerator("last/step.txt", partial=shared))
    own: Meta[Path] = field(default_factory=PathGenerator("own.txt"))
    def execute(self):
        note(f"{self.steps} begins")
        self.checkpoint.parent.mkdir(exist_ok=True)
        start = int(self.checkpoint.read_text()) if self.checkpoint.exists() else 0
        while self.holds and not (HERE / "release").exists():
            time.sleep(0.01)
        time.sleep(0.05)
        self.checkpoint.write_text(str(max(start, self.steps)))
        self.own.write_text("mine")
        note(f"{self.steps} ends")
        return start

class Corpus(Config):
    name: Param[str]
    @cache("words.txt")
    def words(self, path):
        if not path.exists():
            note(f"makes {self.name}")
            path.write_text("half")
            if self.name == "killed" and not (HERE / "release").exists():
                (HERE / "release").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            path.write_text("whole")
        return path.read_text()
    @cache("index")
    def index(self, path):
        if not path.exists():
            path.mkdir()
            (path / "a").touch()
            if not (HERE / "release").exists():
                (HERE / "release").touch()
                raise ValueError("half an index")
            (path / "b").touch()
        return sorted(one.name for one in path.iterdir())

class Count(Task):
    corpus: Param[Corpus]
    number: Param[int]
    def execute(self):
        return self.corpus.words()

class Index(Task):
    corpus: Param[Corpus]
    def execute(self):
        return self.corpus.index()
"""


@pytest.mark.parametrize("launcher", ["spawn", "warm"])
def test_tasks_that_differ_in_an_excluded_group_share_a_directory_one_at_a_time(
    place: Place, launcher: str
) -> None:
    script = place.script(
        """
with experiment(HERE / "ws", "partials") as xp:
    for steps in (1, 2, 3, 4):
        Learn.C(lr=0.1, steps=steps).submit()
print(sorted(row["result"] for row in xp.results()))
""",
        tasks=TASKS,
    )
    result = run(python(script), place.directory, TENUTO_LAUNCHER=launcher, TENUTO_SLOTS="4")
    assert result.returncode == 0, result.stderr
    ledger = place.ledger()
    assert len(ledger) == 8
    for begins, ends in zip(ledger[::2], ledger[1::2], strict=True):
        assert begins.split() == [ends.split()[0], "begins"], "one at a time"
    (checkpoint,) = place.workspace.glob("partials/script.Learn/shared/*/last/step.txt")
    assert checkpoint.read_text() == "4"
    assert len(list(place.workspace.glob("jobs/script.Learn/*/own.txt"))) == 4


def test_a_killed_job_lets_go_of_what_it_shared(place: Place) -> None:
    script = place.script(
        """
with experiment(HERE / "ws", sys.argv[1], raise_on_failure=False) as xp:
    Learn.C(lr=0.1, steps=int(sys.argv[2]), holds=sys.argv[2] == "1").submit()
print([row["state"] for row in xp.results()])
""",
        tasks=TASKS,
    )
    with subprocess.Popen([*python(script), "one", "1"], cwd=place.directory, env=environment()) as first:
        eventually(place.ledger, "the first job to begin")
        with subprocess.Popen(
            [*python(script), "two", "2"],
            cwd=place.directory,
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        ) as second:
            log = "jobs/script.Learn/*/Learn.err"
            eventually(
                lambda: any("waits for another" in p.read_text() for p in place.workspace.glob(log)),
                "the second job to wait",
            )
            assert place.ledger() == ["1 begins"]
            (pid,) = [
                path.read_text()
                for path in place.workspace.glob("jobs/script.Learn/*/Learn.pid")
                if "waits" not in path.with_suffix(".err").read_text()
            ]
            run(["kill", "-9", str(json.loads(pid)["pid"])], place.directory)
            assert second.communicate(timeout=WAIT_S)[0] == "['DONE']\n"
        assert first.wait(WAIT_S) == 0
    assert place.ledger()[-2:] == ["2 begins", "2 ends"]


def test_jobs_share_the_file_of_a_cached_method(place: Place) -> None:
    script = place.script(
        """
with experiment(HERE / "ws", "cached") as xp:
    for number in range(4):
        Count.C(corpus=Corpus.C(name="la"), number=number).submit()
    Count.C(corpus=Corpus.C(name="el"), number=0).submit()
print([row["result"] for row in xp.results()])
""",
        tasks=TASKS,
    )
    result = run(python(script), place.directory, TENUTO_SLOTS="3")
    assert result.stdout == f"{['whole'] * 5}\n", result.stderr
    assert sorted(place.ledger()) == ["makes el", "makes la"]
    assert len(list(place.workspace.glob("config/script.Corpus/*/words.txt"))) == 2


def test_what_a_killed_or_failed_method_left_is_not_taken_for_whole(place: Place) -> None:
    for body, expected in (
        ('Count.C(corpus=Corpus.C(name="killed"), number=0)', "whole"),
        ('Index.C(corpus=Corpus.C(name="failed"))', "['a', 'b']"),
    ):
        script = place.script(
            f"""
with experiment(HERE / "ws", "cached") as xp:
    task = {body}.submit()
print(task.job.result())
""",
            tasks=TASKS,
        )
        assert run(python(script), place.directory).returncode == 1
        assert place.release.exists()
        result = run(python(script), place.directory)
        assert result.stdout == f"{expected}\n", result.stderr
        place.release.unlink()
