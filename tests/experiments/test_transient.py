"""Owns when a transient job runs, and when its directory goes: never from under a process that uses it."""

from __future__ import annotations

import subprocess

import pytest

from .scripts import WAIT_S, Place, environment, eventually, python, run

TASKS = """
import os, sys, time
from pathlib import Path
from tenuto import *

HERE = Path(__file__).parent

def note(text):
    with (HERE / "ledger").open("a") as ledger:
        ledger.write(f"{text}\\n")

class Corpus(Task):
    name: Param[str]
    file: Meta[Path] = field(default_factory=PathGenerator("corpus.txt"))
    def execute(self):
        note(f"corpus {self.name}")
        self.file.write_text(self.name)

class Index(Task):
    corpus: Param[Corpus]
    file: Meta[Path] = field(default_factory=PathGenerator("index.txt"))
    def execute(self):
        note(f"index {self.corpus.name}")
        self.file.write_text(self.corpus.file.read_text())

class Train(Task):
    corpus: Param[Corpus]
    key: Param[str] = ""
    holds: Param[bool] = False
    def execute(self):
        note(f"train {self.corpus.name}{self.key}")
        end = time.monotonic() + 60
        while self.holds and not (HERE / "release").exists():
            assert time.monotonic() < end, "nobody released this job"
            time.sleep(0.01)
        assert self.corpus.file.read_text() == self.corpus.name

class Search(Task):
    index: Param[Index]
    def execute(self):
        note("search")
        assert self.index.file.read_text() == self.index.corpus.name

class Fail(Task):
    def execute(self):
        raise ValueError("no luck")

class Both(Task):
    fail: Param[Fail]
    corpus: Param[Corpus]
    def execute(self):
        note("both")

TRANSIENT, REMOVE = TransientMode.TRANSIENT, TransientMode.REMOVE
"""


def corpora(place: Place) -> list[str]:
    return [path.read_text() for path in sorted(place.workspace.glob("jobs/script.Corpus/*/corpus.txt"))]


def done(place: Place, body: str, **variables: str) -> subprocess.CompletedProcess[str]:
    result = run(python(place.script(body, tasks=TASKS)), place.directory, **variables)
    assert result.returncode == 0, result.stderr
    return result


def test_the_mode_of_a_job_decides_whether_its_directory_is_removed(place: Place) -> None:
    done(
        place,
        """
with experiment(HERE / "ws", "modes") as xp:
    for name, mode in {"none": TransientMode.NONE, "transient": TRANSIENT, "remove": REMOVE}.items():
        Train.C(corpus=Corpus.C(name=name).submit(transient=mode)).submit()
        Corpus.C(name=f"unneeded {name}").submit(transient=mode)
""",
    )
    ran = {line.removeprefix("corpus ") for line in place.ledger() if line.startswith("corpus")}
    assert ran == {"none", "transient", "remove", "unneeded none"}
    assert sorted(corpora(place)) == ["none", "transient", "unneeded none"]


@pytest.mark.parametrize("launcher", ["spawn", "warm"])
def test_a_removed_job_is_made_again_when_it_is_needed_again(place: Place, launcher: str) -> None:
    done(
        place,
        """
for key in "ab":
    with experiment(HERE / "ws", "again") as xp:
        Train.C(corpus=Corpus.C(name="x").submit(transient=REMOVE), key=key).submit()
""",
        TENUTO_LAUNCHER=launcher,
    )
    assert place.ledger() == ["corpus x", "train xa", "corpus x", "train xb"]
    assert corpora(place) == []


def test_a_chain_of_transient_jobs_wakes_up_from_its_end(place: Place) -> None:
    body = """
with experiment(HERE / "ws", "chain") as xp:
    index = Index.C(corpus=Corpus.C(name="x").submit(transient=REMOVE)).submit(transient=REMOVE)
    {last}
"""
    done(place, body.format(last="pass"))
    assert place.ledger() == []
    done(place, body.format(last="Search.C(index=index).submit()"))
    assert place.ledger() == ["corpus x", "index x", "search"]
    assert not list(place.workspace.glob("jobs/script.Index/*"))
    assert corpora(place) == []


def test_a_job_of_a_second_experiment_wakes_a_transient_one_of_the_first(place: Place) -> None:
    done(
        place,
        """
with experiment(HERE / "ws", "outer") as outer:
    corpus = Corpus.C(name="x").submit(transient=TRANSIENT)
    outer.wait()
    note("waited")
    with experiment(HERE / "ws", "inner") as inner:
        Train.C(corpus=corpus).submit()
    note("inner ended")
with experiment(HERE / "ws", "left"):
    forgotten = Corpus.C(name="y").submit(transient=TRANSIENT)
with experiment(HERE / "ws", "later") as later:
    Train.C(corpus=forgotten).submit()
print(sorted(job.task_id for job in later.jobs))
""",
    )
    assert place.ledger() == ["waited", "corpus x", "train x", "inner ended", "corpus y", "train y"]


def test_what_the_inner_experiment_wants_removed_stays_while_the_outer_one_uses_it(place: Place) -> None:
    done(
        place,
        """
from contextvars import copy_context
with experiment(HERE / "ws", "outer") as outer:
    of_outer = copy_context()
    with experiment(HERE / "ws", "inner") as inner:
        corpus = Corpus.C(name="x").submit(transient=REMOVE)
        Train.C(corpus=corpus).submit()
        held = Train.C(corpus=corpus, key="held", holds=True)
        of_outer.run(held.submit)
    assert corpus.file.read_text() == "x"
    (HERE / "release").touch()
assert not corpus.file.exists()
""",
    )
    assert corpora(place) == []


def test_a_job_that_is_wanted_for_its_own_sake_after_all_is_run_and_kept(place: Place) -> None:
    done(
        place,
        """
with experiment(HERE / "ws", "first") as xp:
    Corpus.C(name="x").submit(transient=REMOVE)
    Corpus.C(name="x").submit()
with experiment(HERE / "ws", "second") as xp:
    Corpus.C(name="x").submit(transient=REMOVE)
""",
    )
    assert place.ledger() == ["corpus x"]
    assert corpora(place) == ["x"]
    done(place, 'with experiment(HERE / "ws", "third"):\n    Corpus.C(name="x").submit(transient=REMOVE)')
    assert corpora(place) == ["x"], "the first experiment keeps it"


def test_nothing_is_removed_unless_the_end_is_clean(place: Place) -> None:
    body = """
with experiment(HERE / "ws", "failing"):
    Train.C(corpus=Corpus.C(name="x").submit(transient=REMOVE)).submit()
    {last}
"""
    result = run(python(place.script(body.format(last="Fail.C().submit()"), tasks=TASKS)), place.directory)
    assert result.returncode == 1
    assert corpora(place) == ["x"]
    done(place, body.format(last="pass"))
    assert corpora(place) == []
    assert place.ledger() == ["corpus x", "train x"]


def test_a_transient_job_that_only_a_stranded_job_needed_does_not_run(place: Place) -> None:
    script = place.script(
        """
with experiment(HERE / "ws", "stranded", raise_on_failure=False) as xp:
    Train.C(corpus=Corpus.C(name="held").submit(), holds=True).submit()
    fail = Fail.C().submit()
    while not fail.job.state.finished():
        time.sleep(0.01)
    corpus = Corpus.C(name="x").submit(transient=TRANSIENT)
    both = Both.C(fail=fail, corpus=corpus).submit()
    both.wait()
    print(both.job.failure_status.name, corpus.job.wait().name)
    (HERE / "release").touch()
""",
        tasks=TASKS,
    )
    result = run(python(script), place.directory)
    assert result.stdout == "DEPENDENCY UNSCHEDULED\n", result.stderr
    assert place.ledger() == ["corpus held", "train held"]


# -- several processes --------------------------------------------------------------------------------

USER = """
with experiment(HERE / "ws", "user") as xp:
    Train.C(corpus=Corpus.C(name="x").submit(transient={mode}), key="user", holds=True).submit()
"""
REMOVER = """
with experiment(HERE / "ws", "remover") as xp:
    Train.C(corpus=Corpus.C(name="x").submit(transient=REMOVE), key="remover").submit()
"""


@pytest.mark.parametrize("mode", ["TRANSIENT", "REMOVE"])
def test_what_another_process_uses_is_not_removed(place: Place, mode: str) -> None:
    script = place.script(USER.format(mode=mode), tasks=TASKS)
    with subprocess.Popen(python(script), cwd=place.directory, env=environment()) as process:
        eventually(lambda: "train xuser" in place.ledger(), "the other process to use the corpus")
        done(place, REMOVER)
        assert corpora(place) == ["x"]
        place.release.touch()
        assert process.wait(WAIT_S) == 0
    assert corpora(place) == ([] if mode == "REMOVE" else ["x"])
    assert place.ledger().count("corpus x") == 1
    done(place, REMOVER)
    assert corpora(place) == ([] if mode == "REMOVE" else ["x"]), "what the other experiment keeps stays"


def test_what_a_job_of_a_killed_process_still_reads_is_not_removed(place: Place) -> None:
    script = place.script(USER.format(mode="REMOVE"), tasks=TASKS)
    process = subprocess.Popen(python(script), cwd=place.directory, env=environment())
    eventually(lambda: "train xuser" in place.ledger(), "the other process to use the corpus")
    process.kill()
    process.wait()
    done(place, REMOVER)
    assert corpora(place) == ["x"]
    place.release.touch()
    eventually(
        lambda: len(list(place.workspace.glob("jobs/script.Train/*/*.done"))) == 2, "the stray job to end"
    )
    done(place, REMOVER)
    assert corpora(place) == []


def test_killed_at_any_step_of_the_removal_nothing_is_half_removed(place: Place) -> None:
    body = (
        """
import signal
from tenuto.workspace import trash
from tenuto.experiments import pruning
from tenuto.jobs import removal

def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)

if "{step}" == "locked":
    pruning.users = removal._remove = die
elif "{step}" == "renamed":
    trash.empty = die
elif "{step}" == "half deleted":
    def half(files, path):
        files.remove(path + "/corpus.txt")
        die()
    trash._deleted = half
"""
        + REMOVER
    )
    for number, step in enumerate(["locked", "renamed", "half deleted"]):
        script = place.script(
            body.replace('"remover")', f'"remover{number}")').format(step=step), tasks=TASKS
        )
        assert run(python(script), place.directory).returncode == -9, step
        assert place.ledger()[-1] == f"train xremover{number}"
        assert corpora(place) == (["x"] if step == "locked" else [])
        assert [path.name for path in place.workspace.glob("jobs/script.Corpus/*/params.json")] == (
            ["params.json"] if step == "locked" else []
        )
    assert list(place.workspace.glob(".trash/[!.]*"))
    done(place, REMOVER)
    assert corpora(place) == []
    assert not list(place.workspace.glob(".trash/[!.]*")), "what a crash left is deleted by the next"


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [5, pytest.param(15, marks=pytest.mark.prove("the same, more often"))])
def test_one_process_removes_what_the_other_needs_again_and_again(place: Place, rounds: int) -> None:
    script = place.script(
        """
me, rounds = sys.argv[1], int(sys.argv[2])
for number in range(rounds):
    with experiment(HERE / "ws", me) as xp:
        Train.C(corpus=Corpus.C(name="x").submit(transient=REMOVE), key=f"{me}{number}").submit()
""",
        tasks=TASKS,
    )
    processes = [
        subprocess.Popen(
            [*python(script), name, str(rounds)],
            cwd=place.directory,
            env=environment(),
            stderr=subprocess.PIPE,
        )
        for name in ("one", "other")
    ]
    for process in processes:
        _, said = process.communicate(timeout=100)
        assert process.returncode == 0, said.decode()
    trained = [line for line in place.ledger() if line.startswith("train")]
    assert len(trained) == len(set(trained)) == 2 * rounds
    assert corpora(place) == []


CLEANER = """
import os, sys
from functools import partial
from tenuto.experiments.pruning import users
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.removal import delete
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine

root = sys.argv[1]
view = WorkspaceView(Layout(root), this_machine())
while os.path.exists(root + "/../cleaning"):
    keys = [key for key in view.job_keys() if key.task_id == "script.Corpus"]
    acted = delete(view, keys, really=True, used=partial(users, view))
    if any(one.outcome.name == "DELETED" for one in acted):
        open(root + "/../deleted", "w").close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [4, pytest.param(12, marks=pytest.mark.prove("the same, more often"))])
def test_cleaning_all_the_time_never_takes_a_job_from_a_run(place: Place, rounds: int) -> None:
    script = place.script(
        """
for number in range(int(sys.argv[1])):
    with experiment(HERE / "ws", "trained") as xp:
        Train.C(corpus=Corpus.C(name="x").submit(), key=str(number)).submit()
""",
        tasks=TASKS,
    )
    cleaner = place.directory / "cleaner.py"
    cleaner.write_text(CLEANER)
    flag = place.directory / "cleaning"
    flag.touch()
    place.workspace.mkdir()
    with subprocess.Popen(
        [*python(cleaner), str(place.workspace)],
        cwd=place.directory,
        env=environment(),
    ) as cleaning:
        result = run([*python(script), str(rounds)], place.directory)
        try:
            eventually((place.directory / "deleted").exists, "a deletion, between runs or after the last")
        finally:
            flag.unlink()
        assert cleaning.wait(WAIT_S) == 0
    assert result.returncode == 0, result.stderr
    assert sum(line.startswith("train") for line in place.ledger()) == rounds


def test_a_transient_job_that_waits_for_a_token_sleeps_again_when_nobody_needs_it(place: Place) -> None:
    script = place.script(
        """
with experiment(HERE / "ws", "tokens", raise_on_failure=False) as xp:
    token = xp.token("disk", 1)
    held = Train.C(corpus=Corpus.C(name="held").submit(), holds=True)
    token(1, held).submit()
    while held.job.state is not JobState.RUNNING:
        time.sleep(0.01)
    corpus = token(1, Corpus.C(name="x")).submit(transient=TRANSIENT)
    train = Train.C(corpus=corpus).submit()
    while corpus.job.state is JobState.UNSCHEDULED:
        time.sleep(0.01)
    Scheduler.instance().cancel(train.job)
    train.wait()
    print(corpus.wait().name)
    (HERE / "release").touch()
    xp.wait()
    token(1, Corpus.C(name="y")).submit()
""",
        tasks=TASKS,
    )
    result = run(python(script), place.directory, TENUTO_TOKENS_PATH=str(place.directory / "tokens"))
    assert result.stdout == "UNSCHEDULED\n", result.stderr
    assert place.ledger() == ["corpus held", "train held", "corpus y"]
