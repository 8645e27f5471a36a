"""Owns what Ctrl-C and a closed window do to an experiment and to its jobs (F29, F30)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .scripts import Place, eventually, python, run, tenuto, terminal

TWO = """
with experiment(HERE / "ws", "held") as xp:
    Hold.C(name="a").submit()
    Hold.C(name="b").submit()
note("behind the experiment")
"""
STUBBORN = """
with experiment(HERE / "ws", "held") as xp:
    Hold.C(name="a").submit()
    try:
        time.sleep(60)
    finally:
        note("leaving")
        time.sleep(60)
"""

Command = Callable[[Path], list[str]]
both = pytest.mark.parametrize(
    "command", [python, lambda script: tenuto("run", script)], ids=["python", "tenuto run"]
)


def done(place: Place, number: int) -> bool:
    return len(list(place.workspace.glob("jobs/*/*/*.done"))) == number


@both
def test_the_first_starts_nothing_more_and_waits_for_what_runs(place: Place, command: Command) -> None:
    script = place.script(TWO)
    with terminal(command(script), place.directory, TENUTO_SLOTS="1") as screen:
        eventually(place.ledger, "the first job to begin")
        screen.press(b"\x03")
        eventually(lambda: "nothing more is started" in screen.seen, "a word about it")
        assert screen.process.poll() is None
        place.release.touch()
        assert screen.wait() == 5
    assert place.ledger() == ["a"]
    assert done(place, 1)
    assert place.state("held") == "interrupted"
    again = run(command(script), place.directory)
    assert again.returncode == 0, again.stderr
    assert place.ledger() == ["a", "b", "behind the experiment"]


@both
def test_the_second_leaves_jobs_running_and_says_how_to_come_back(place: Place, command: Command) -> None:
    script = place.script(TWO)
    with terminal(command(script), place.directory, TENUTO_SLOTS="1") as screen:
        eventually(place.ledger, "the first job to begin")
        screen.press(b"\x03")
        eventually(lambda: "nothing more is started" in screen.seen, "a word about it")
        screen.press(b"\x03")
        assert screen.wait() == 5
        assert "1 job runs on; run the script again" in screen.seen
    assert done(place, 0)
    assert place.state("held") == "interrupted"
    place.release.touch()
    eventually(lambda: done(place, 1), "the job that was left to end")
    assert run(command(script), place.directory).returncode == 0
    assert place.ledger() == ["a", "b", "behind the experiment"]


@both
def test_the_third_quits_at_once_and_leaves_no_lock(place: Place, command: Command) -> None:
    script = place.script(STUBBORN)
    with terminal(command(script), place.directory) as screen:
        eventually(place.ledger, "the job to begin")
        screen.press(b"\x03")
        eventually(lambda: "nothing more is started" in screen.seen, "a word about it")
        screen.press(b"\x03")
        eventually(lambda: "leaving" in place.ledger(), "the script to leave")
        screen.press(b"\x03")
        assert screen.wait() == 130
    place.release.touch()
    eventually(lambda: done(place, 1), "the job that was left to end")
    place.script(TWO)
    assert run(command(script), place.directory).returncode == 0
    assert place.ledger().count("a") == 1


@both
def test_a_closed_window_leaves_jobs_running(place: Place, command: Command) -> None:
    script = place.script(TWO)
    with terminal(command(script), place.directory, TENUTO_SLOTS="1") as screen:
        eventually(place.ledger, "the first job to begin")
        screen.hang_up()
        assert screen.wait() == 5
    assert place.state("held") == "interrupted"
    assert place.ledger() == ["a"], "the script must not continue behind the experiment"
    place.release.touch()
    eventually(lambda: done(place, 1), "the job that was left to end")
    assert run(command(script), place.directory).returncode == 0
    assert place.ledger() == ["a", "b", "behind the experiment"]


def test_under_nohup_a_closed_window_changes_nothing(place: Place) -> None:
    script = place.script(TWO)
    with terminal(["nohup", *python(script)], place.directory, TENUTO_SLOTS="1") as screen:
        eventually(place.ledger, "the first job to begin")
        screen.hang_up()
        place.release.touch()
        assert screen.wait() == 0
    assert place.ledger() == ["a", "b", "behind the experiment"]


def test_an_interrupt_while_many_jobs_are_submitted_is_like_any_other(place: Place) -> None:
    script = place.script(
        """
with experiment(HERE / "ws", "many"):
    Hold.C(name="a").submit()
    number = 0
    while not (HERE / "release").exists():
        Note.C(name=str(number)).submit()
        number += 1
"""
    )
    with terminal(python(script), place.directory, TENUTO_SLOTS="1") as screen:
        eventually(place.ledger, "the first job to begin")
        screen.press(b"\x03")
        eventually(lambda: "nothing more is started" in screen.seen, "a word about it")
        place.release.touch()
        assert screen.wait() == 5
        assert "Traceback" not in screen.seen
    assert place.ledger() == ["a"]
    assert place.state("many") == "interrupted"


def test_an_exception_after_an_interrupt_is_still_shown(place: Place) -> None:
    script = place.script(
        """
with experiment(HERE / "ws", "broken"):
    Hold.C(name="a").submit()
    while not (HERE / "release").exists():
        time.sleep(0.01)
    raise RuntimeError("the script is broken")
"""
    )
    with terminal(python(script), place.directory, PYTHON_COLORS="0") as screen:  # 3.13 colours tracebacks
        eventually(place.ledger, "the job to begin")
        screen.press(b"\x03")
        eventually(lambda: "nothing more is started" in screen.seen, "a word about it")
        place.release.touch()
        assert screen.wait() == 1
        eventually(lambda: "RuntimeError: the script is broken" in screen.seen, "the traceback")


def test_to_leave_an_inner_experiment_is_to_leave_the_outer_one(place: Place) -> None:
    script = place.script(
        """
with experiment(HERE / "ws", "outer"):
    Hold.C(name="a").submit()
    with experiment(HERE / "ws", "inner"):
        Hold.C(name="b").submit()
    note("behind the inner")
"""
    )
    with terminal(python(script), place.directory) as screen:
        eventually(lambda: len(place.ledger()) == 2, "the jobs to begin")
        screen.press(b"\x03")
        eventually(lambda: "nothing more is started" in screen.seen, "a word about it")
        screen.press(b"\x03")
        assert screen.wait() == 5
    assert place.state("outer") == place.state("inner") == "interrupted"
    assert sorted(place.ledger()) == ["a", "b"]
