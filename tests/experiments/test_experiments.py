"""Owns what an experiment promises to the script that opens it, through real processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tenuto.experiments.run_record import parse_run_id

from .scripts import WAIT_S, Place, environment, eventually, python, run, tenuto


def tree(directory: Path) -> dict[str, tuple[int, int]]:
    """All that lies in a directory, with its size and its time of change."""
    found = {}
    for path in sorted([directory, *directory.rglob("*")]):
        status = path.lstat()
        found[str(path)] = (status.st_size, status.st_mtime_ns)
    return found


def states(place: Place, name: str, field: str = "state") -> list[object]:
    """What the runs of an experiment say of themselves, the oldest first."""
    runs = sorted(
        (place.workspace / "experiments" / name).glob("2*"), key=lambda path: parse_run_id(path.name) or ()
    )
    return [json.loads((path / "status.json").read_text())[field] for path in runs]


def test_the_same_name_twice_at_once_names_the_holder(place: Place) -> None:
    script = place.script('with experiment(HERE / "ws", "held"):\n    Hold.C(name="a").submit()')
    with subprocess.Popen(python(script), cwd=place.directory, env=environment()) as first:
        eventually(place.ledger, "the first run to begin")
        second = run(python(script), place.directory)
        third = run(tenuto("run", script), place.directory)
        place.release.touch()
        assert first.wait(WAIT_S) == 0
    for said in (second.stderr, third.stderr):
        assert "experiment 'held' is already running" in said
        assert f"by process {first.pid} on {os.uname().nodename} since 2" in said
        assert "wait for it, stop it, or choose another name" in said
    assert second.returncode == 1
    assert "Traceback" not in third.stderr
    assert third.returncode == 4


def test_a_second_run_can_wait_for_the_first(place: Place) -> None:
    body = 'with experiment(HERE / "ws", "held", wait_for_lock_s=60):\n    Hold.C(name="a").submit()'
    script = place.script(body)
    with subprocess.Popen(python(script), cwd=place.directory, env=environment()) as first:
        eventually(place.ledger, "the first run to begin")
        with subprocess.Popen(
            python(script), cwd=place.directory, env=environment(), stderr=subprocess.PIPE, text=True
        ) as second:
            assert second.stderr is not None
            assert "waiting: experiment 'held' is already running" in second.stderr.readline()
            place.release.touch()
            assert second.wait(WAIT_S) == 0
        assert first.wait(WAIT_S) == 0
    assert place.ledger() == ["a"]


def test_an_exception_in_the_script_loses_no_job(place: Place) -> None:
    broken = place.script(
        """
with experiment(HERE / "ws", "broken"):
    Hold.C(name="a").submit()
    while not (HERE / "ledger").exists():
        time.sleep(0.01)
    raise RuntimeError("the script is broken")
"""
    )
    result = run(python(broken), place.directory)
    assert result.returncode == 1
    assert "RuntimeError: the script is broken" in result.stderr
    assert place.state("broken") == "failed"
    mended = place.script(
        """
with experiment(HERE / "ws", "broken") as xp:
    job = Hold.C(name="a").submit().job
    After.C(before=Note.C(name="b").submit()).submit()
    while job.state is not JobState.RUNNING:
        time.sleep(0.01)
    (HERE / "release").touch()
print(job.result(), job.attempt)
"""
    )
    again = run(python(mended), place.directory)
    assert again.returncode == 0, again.stderr
    assert again.stdout == "a 1\n"
    assert sorted(place.ledger()) == ["a", "after b", "b"]


def test_a_script_that_is_killed_loses_no_job(place: Place) -> None:
    script = place.script(
        """
with experiment(HERE / "ws", "killed"):
    Hold.C(name="a").submit()
    Note.C(name="b").submit()
"""
    )
    first = subprocess.Popen(python(script), cwd=place.directory, env=environment(TENUTO_SLOTS="1"))
    eventually(place.ledger, "the first job to begin")
    first.kill()
    first.wait()
    place.release.touch()
    assert run(python(script), place.directory).returncode == 0
    assert place.ledger() == ["a", "b"]


def test_experiments_can_be_nested_and_share_jobs(place: Place) -> None:
    script = place.script(
        """
with experiment(HERE / "ws", "outer") as outer:
    Note.C(name="a").submit()
    with experiment(HERE / "ws", "inner") as inner:
        Note.C(name="a").submit()
        Note.C(name="b").submit()
    print([row["result"] for row in inner.results()])
    Note.C(name="c").submit()
print([row["result"] for row in outer.results()], len(outer.jobs), len(inner.jobs))
"""
    )
    result = run(python(script), place.directory)
    assert result.stdout == "['a', 'b']\n['a', 'c'] 2 2\n", result.stderr
    assert sorted(place.ledger()) == ["a", "b", "c"]
    assert place.state("outer") == place.state("inner") == "done"


def test_one_experiment_after_the_other_reuses_what_the_first_did(place: Place) -> None:
    script = place.script(
        """
for number in range(2):
    with experiment(HERE / "ws", "again") as xp:
        Note.C(name="a").submit()
        Note.C(name=f"b{number}").submit()
"""
    )
    assert run(python(script), place.directory).returncode == 0
    assert sorted(place.ledger()) == ["a", "b0", "b1"]
    assert states(place, "again", "reused") == [0, 1]


def test_two_processes_share_a_workspace_and_each_job_runs_once(place: Place) -> None:
    script = place.script(
        """
with experiment(HERE / "ws", sys.argv[1]) as xp:
    notes = [Note.C(name=str(number)).submit() for number in range(12)]
    for note_ in notes:
        After.C(before=note_).submit()
print(sorted(str(row["result"]) for row in xp.results()))
"""
    )
    processes = [
        subprocess.Popen(
            [*python(script), name], cwd=place.directory, env=environment(), stdout=subprocess.PIPE, text=True
        )
        for name in ("one", "other")
    ]
    said = [process.communicate(timeout=WAIT_S * 2)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert said[0] == said[1] != ""
    ledger = place.ledger()
    assert len(ledger) == len(set(ledger)) == 24


FAILING = """
with experiment(HERE / "ws", "failing"{options}) as xp:
    After.C(before=Fail.C(name="a").submit()).submit()
    Note.C(name="b").submit()
note("behind the experiment")
print(len(xp.failed))
"""


def test_a_failed_job_is_a_failed_run_and_exit_code_1(place: Place) -> None:
    script = place.script(FAILING.format(options=""))
    result = run(python(script), place.directory)
    assert result.returncode == 1
    assert "FailedExperiment: 2 of 3 jobs failed" in result.stderr
    assert "ValueError: a is bad" in result.stderr
    assert place.state("failing") == "failed"
    assert sorted(place.ledger()) == ["a", "b"]


def test_a_failed_job_can_be_opted_out_of(place: Place) -> None:
    script = place.script(FAILING.format(options=", raise_on_failure=False"))
    result = run(python(script), place.directory)
    assert (result.returncode, result.stdout) == (0, "2\n")
    place.script(FAILING.format(options=""))
    result = run(python(script), place.directory, TENUTO_FAIL_RUN_ON_FAILED_JOB="false")
    assert (result.returncode, result.stdout) == (0, "2\n")
    assert place.state("failing") == "failed"


DRY = """
with experiment(HERE / "ws", "dry"{options}) as xp:
    After.C(before=Note.C(name="a").submit()).submit()
    xp.wait()
    print(len(xp.jobs), xp.results())
"""


def test_a_dry_run_creates_nothing(place: Place) -> None:
    script = place.script(DRY.format(options=", run_mode=RunMode.DRY_RUN"))
    before = tree(place.directory)
    result = run([sys.executable, "-B", str(script)], place.directory)
    assert tree(place.directory) == before
    assert result.stdout == "2 []\n", result.stderr
    assert re.search(
        r"^tenuto: to run: script\.Note [0-9a-f]{12} \(never run\)$", result.stderr, re.MULTILINE
    )
    assert not place.workspace.exists()


def test_a_job_that_is_only_generated_can_be_run_by_hand(place: Place) -> None:
    script = place.script(DRY.format(options=", run_mode=RunMode.GENERATE_ONLY"))
    result = run(python(script), place.directory)
    assert result.returncode == 0, result.stderr
    assert place.ledger() == []
    (job,) = place.workspace.glob("jobs/script.Note/*/Note.py")
    by_hand = run([sys.executable, str(job)], place.directory)
    assert (by_hand.returncode, by_hand.stdout) == (0, "a\n"), by_hand.stderr
    assert place.ledger() == ["a"]
    assert not list(job.parent.glob("*.done")), "what a person runs by hand decides nothing"
    place.script(DRY.format(options=""))
    assert run(python(script), place.directory).returncode == 0
    assert place.ledger() == ["a", "a", "after a"]


def test_only_the_newest_runs_are_kept(place: Place) -> None:
    script = place.script(
        """
for number in range(4):
    try:
        with experiment(HERE / "ws", "kept"):
            (Fail if number % 2 else Note).C(name="a").submit()
    except FailedExperiment:
        pass
"""
    )
    settings = {"TENUTO_HISTORY__MAX_DONE": "1", "TENUTO_HISTORY__MAX_FAILED": "1"}
    assert run(python(script), place.directory, **settings).returncode == 0
    assert states(place, "kept") == ["done", "failed"]
    assert len(list(place.workspace.glob("jobs/*/*"))) == 2, "jobs are not touched"


def test_runs_that_were_killed_are_pruned_and_what_they_left_half_written_goes(place: Place) -> None:
    """Found by the soak: a script that is killed again and again left a run for each time."""
    script = place.script(
        """
with experiment(HERE / "ws", "killed"):
    Note.C(name="a").submit().wait()
    if not (HERE / "release").exists():
        os.kill(os.getpid(), 9)
"""
    )
    writers = []
    for _ in range(3):
        killed = subprocess.Popen(python(script), cwd=place.directory, env=environment())
        killed.wait()
        writers.append(killed.pid)
    (job,) = place.workspace.glob("jobs/*/*")
    runs = sorted(place.workspace.glob("experiments/killed/2*"))
    assert len(runs) == 3
    (job / ".tenuto").mkdir(exist_ok=True)  # a job that is done may lack it
    for directory in (job, job / ".tenuto", runs[-1]):
        (directory / f"locks.json.{writers[-1]}-1.tenuto-tmp").touch()
    place.release.touch()
    assert run(python(script), place.directory).returncode == 0
    left = sorted(place.workspace.glob("experiments/killed/2*"))
    assert left[0] == runs[-1]
    assert len(left) == 2, "the newest that failed, and the one that did not"
    assert not list(place.workspace.rglob("*.tenuto-tmp"))
    assert place.ledger() == ["a"]


def test_runs_within_one_second_have_names_of_their_own(place: Place) -> None:
    script = place.script(
        """
for number in range(4):
    with experiment(HERE / "ws", "quick") as xp:
        print(xp.run_id)
"""
    )
    result = run(python(script), place.directory, TENUTO_HISTORY__MAX_DONE="none")
    names = result.stdout.split()
    assert len(set(names)) == 4, result.stderr
    assert all(re.fullmatch(r"\d{8}_\d{6}(\.\d+)?", name) for name in names)
    assert any("." in name for name in names)
    found = {path.name for path in (place.workspace / "experiments" / "quick").glob("2*")}
    assert found == set(names)


def test_transient_jobs_are_removed_at_a_clean_end(place: Place) -> None:
    script = place.script(
        """
with experiment(HERE / "ws", "transient"):
    note_ = Note.C(name="a").submit(transient=TransientMode.REMOVE)
    After.C(before=note_).submit()
    Note.C(name="unneeded").submit(transient=TransientMode.REMOVE)
"""
    )
    assert run(python(script), place.directory).returncode == 0
    assert place.ledger() == ["a", "after a"]
    assert not list(place.workspace.glob("jobs/script.Note/*"))
    plan = run(tenuto("plan", script), place.directory)
    assert "1 reused" in plan.stdout
    assert "2 not needed" in plan.stdout
    assert run(python(script), place.directory).returncode == 0
    assert place.ledger() == ["a", "after a"]


def test_what_a_failed_job_says_cannot_steer_the_terminal(place: Place) -> None:
    script = place.script(
        'with experiment(HERE / "ws", "evil"):\n    Fail.C(name="\\x1b]0;owned\\x07\\u202e").submit()'
    )
    result = run(python(script), place.directory)
    assert result.returncode == 1
    assert "owned" in result.stderr
    assert not set("\x1b\x07\u202e") & set(result.stderr)


def test_the_chosen_durability_reaches_the_runner(place: Place) -> None:
    """A runner syncs its marker only if its launch record does not say otherwise."""
    script = place.script('with experiment(HERE / "ws", "fast"):\n    Note.C(name="a").submit()')
    done = run(python(script), place.directory, TENUTO_DURABILITY="none")
    assert done.returncode == 0, done.stderr
    (marker,) = place.workspace.glob("jobs/*/*/*.done")
    assert json.loads(marker.read_bytes())["launch"]["instructions"]["durability"] == "none"


def test_a_run_after_the_clock_was_ahead_is_the_last_one_and_keeps_itself(place: Place) -> None:
    """F20. The run of the future was the last one for ever, and new runs pruned themselves as they ended."""
    script = place.script(
        """
with experiment(HERE / "ws", "ahead"):
    Note.C(name="a").submit().wait()
"""
    )
    place.release.touch()
    assert run(python(script), place.directory).returncode == 0
    (first,) = place.workspace.glob("experiments/ahead/2*")
    future = first.with_name("29990101_000000")
    first.rename(future)
    for _ in range(3):
        assert run(python(script), place.directory, TENUTO_HISTORY__MAX_DONE="1").returncode == 0
    left = sorted(path.name for path in place.workspace.glob("experiments/ahead/2*"))
    assert left == ["29990101_000000.3"]


def test_a_fork_in_the_script_keeps_no_lock_of_the_experiment(place: Place) -> None:
    """The next run was told that the experiment is run by a process that was gone."""
    script = place.script(
        """
with experiment(HERE / "ws", "forked"):
    Note.C(name="a").submit().wait()
    child = os.fork()
    if child == 0:
        os.closerange(0, 3)
        signal.pause()
        os._exit(0)
    with open(HERE / "children", "a") as children:
        print(child, file=children)
    os.kill(os.getpid(), 9)
""".replace("with experiment", "import signal\nwith experiment")
    )
    place.release.touch()
    try:
        for _ in range(2):
            killed = run(python(script), place.directory)
            assert killed.returncode == -9, killed.stderr
    finally:
        for child in (place.directory / "children").read_text().split():
            os.kill(int(child), 9)
