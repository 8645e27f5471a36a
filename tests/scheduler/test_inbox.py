"""What waits to be taken in: once for each round, and in the order it came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenuto.scheduler.intake import Cancellation, Inbox


class Timers:
    """As much of a loop as an inbox needs; time passes when a test says so."""

    def __init__(self) -> None:
        self.set: list[tuple[float, Callable[[], object]]] = []

    def post(self, callback: Callable[..., object], *arguments: Any) -> None:
        callback(*arguments)

    def later(self, delay_s: float, callback: Callable[..., object], *arguments: Any) -> None:
        self.set.append((delay_s, lambda: callback(*arguments)))


class Taken:
    """An inbox, and what was taken out of it."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.wishes: list[str] = []
        self.inbox = Inbox(self.timers, self.take_in)  # type: ignore[arg-type]

    def put(self, name: str, gather_s: float) -> None:
        self.inbox.put(Cancellation(None, name), gather_s)  # type: ignore[arg-type]

    def take_in(self) -> None:
        self.wishes += [wish.message for wish in self.inbox.emptied()]  # type: ignore[union-attr]


def test_wishes_that_come_together_are_taken_in_together() -> None:
    taken = Taken()
    for name in "abc":
        taken.put(name, 1.0)
    assert [delay_s for delay_s, _ in taken.timers.set] == [1.0]
    taken.timers.set[0][1]()
    assert taken.wishes == ["a", "b", "c"]


def test_a_submission_in_a_hurry_takes_the_patient_ones_along() -> None:
    taken = Taken()
    taken.put("a", 1.0)
    taken.put("b", 0.1)
    assert [delay_s for delay_s, _ in taken.timers.set] == [1.0, 0.1]
    taken.timers.set[1][1]()
    assert taken.wishes == ["a", "b"]


def test_a_submission_after_a_round_was_taken_in_waits_for_its_own_time() -> None:
    taken = Taken()
    taken.put("a", 1.0)
    taken.take_in()
    taken.put("b", 1.0)
    (_, time_of_a), (_, time_of_b) = taken.timers.set
    time_of_a()
    assert taken.wishes == ["a"]
    time_of_b()
    assert taken.wishes == ["a", "b"]
