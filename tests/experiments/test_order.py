"""Owns the order in which jobs start that could start: by priority, then depth first."""

from __future__ import annotations

from textwrap import dedent

from .scripts import TASKS, Place, python, run

URGENT = (
    TASKS
    + """
class Urgent(Note):
    __priority__ = 5
"""
)


def started(place: Place, body: str) -> list[str]:
    script = place.script(dedent(body), tasks=URGENT)
    done = run(python(script), place.directory, TENUTO_SLOTS="1")
    assert done.returncode == 0, done.stderr
    return place.ledger()


def test_the_first_evaluation_does_not_wait_for_the_last_training(place: Place) -> None:
    order = started(
        place,
        """
        with experiment("ws", "x"):
            for name in "abcdef":
                After.C(before=Note.C(name=name).submit()).submit()
        """,
    )
    # The job that begins while the first one ends may already have been chosen.
    assert order.index("after a") < order.index("d")
    assert order.index("after e") <= order.index("f") + 1


def test_higher_priorities_start_first(place: Place) -> None:
    order = started(
        place,
        """
        with experiment("ws", "x"):
            hold = Hold.C(name="hold").submit()
            Note.C(name="late").submit(priority=-1)
            for name in "abc":
                Note.C(name=name).submit()
            Note.C(name="early").submit(priority=2)
            Urgent.C(name="urgent").submit()
            (HERE / "release").touch()
        """,
    )
    waiting = [name for name in order if name in ("late", "early", "urgent", "c")]
    assert waiting == ["urgent", "early", "c", "late"]


def test_a_priority_that_is_no_number_is_refused(place: Place) -> None:
    script = place.script(
        dedent("""
        with experiment("ws", "x"):
            Note.C(name="a").submit(priority="high")
        """),
        tasks=URGENT,
    )
    done = run(python(script), place.directory)
    assert done.returncode == 1
    assert "submit(priority=) is a whole number, such as 1 or -1, not 'high'" in done.stderr
