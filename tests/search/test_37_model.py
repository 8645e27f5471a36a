"""37: the store of a search against a dictionary, on both databases; far more in `make prove`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from tenuto.lifecycle.evolution import EVOLUTION_TRANSITIONS, EvolutionStatus
from tenuto.search.rows import Added, Caps, Claimed, End, Refusal
from tenuto.search.store import Store
from tests.conftest import PROFILE
from tests.search.builders import new, opened, status, succeeded, tell_all

S = EvolutionStatus
CAPS = Caps(max_unfinished=4, max_total=12)
# `rest` is first, and a failing course shrinks to it: left to itself, Hypothesis makes courses of five steps.
NAMES = "rest add moved dispatch claim finish fail lost again renew back dead tell cancel retry send".split()
STEPS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 5)), min_size=50, max_size=50)


class Model:
    """What the rows should hold, kept by hand."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.status: dict[int, S] = {}
        self.held: list[Claimed] = []
        self.stale: list[Claimed] = []

    @property
    def unfinished(self) -> int:
        return sum(one.unfinished() for one in self.status.values())

    def numbers(self, *statuses: S) -> list[int]:
        return [number for number, one in self.status.items() if one in statuses]

    def pick(self, at: int) -> Claimed | None:
        return self.held[at % len(self.held)] if self.held else None

    def drop(self, row: Claimed) -> None:
        self.held.remove(row)
        self.stale.append(row)

    def rest(self, at: int) -> None:
        """Nothing moves."""

    def add(self, at: int) -> None:
        search = self.store.search("s")
        assert search is not None
        number = search.scheduled + 1
        result = self.store.add("s", new(number, search.told, f"i{number}"), CAPS)
        if number > 12:
            assert result is Refusal.TOTAL
        elif self.unfinished >= 4:
            assert result is Refusal.UNFINISHED
        else:
            assert isinstance(result, Added)
            self.status[number] = S.PENDING

    def moved(self, at: int) -> None:
        """A proposal of a moment that has passed."""
        assert self.store.add("s", new(99, 0, "other"), CAPS) in (Refusal.MOVED, Refusal.TOTAL)

    def dispatch(self, at: int) -> None:
        sent = self.store.dispatch("s", at)
        assert len(sent) == min(at, len(self.numbers(S.PENDING)))
        for row in sent:
            assert self.status[row.number] is S.PENDING
            self.status[row.number] = S.QUEUED

    def send(self, at: int) -> None:
        for row in self.store.dispatch("s", 1):
            assert self.store.send_failed("s", [row.id], 0) == 1

    def claim(self, at: int) -> None:
        rows = self.store.claim("w", at + 1, 60_000)
        assert len(rows) == min(at + 1, len(self.numbers(S.QUEUED)))
        for row in rows:
            self.status[row.number] = S.RUNNING
            self.held.append(row)

    def finish(self, at: int) -> None:
        if row := self.pick(at):
            assert self.store.finish([succeeded(row)], 3) == {row.key}
            self.status[row.number] = S.SUCCEEDED
            self.drop(row)

    def fail(self, at: int) -> None:
        if row := self.pick(at):
            assert self.store.finish([End(row.id, row.attempt, S.FAILED, failure="FAILED")], 3) == {row.key}
            self.status[row.number] = S.FAILED
            self.drop(row)

    def lost(self, at: int) -> None:
        if row := self.pick(at):
            assert self.store.finish([End(row.id, row.attempt, S.FAILED, failure="LOST")], 3) == {row.key}
            self.status[row.number] = S.PENDING if row.attempt < 3 else S.FAILED
            self.drop(row)

    def again(self, at: int) -> None:
        """A worker that was given up writes late."""
        live = {row.key for row in self.held}
        for row in self.stale:
            if row.key not in live:
                assert self.store.finish([succeeded(row)], 3) == set()

    def renew(self, at: int) -> None:
        keys = {row.key for row in self.held}
        assert self.store.renew("w", keys | {row.key for row in self.stale}, 60_000) == keys

    def back(self, at: int) -> None:
        if row := self.pick(at):
            assert self.store.give_back([row.key]) == 1
            self.status[row.number] = S.PENDING
            self.held.remove(row)

    def dead(self, at: int) -> None:
        assert self.store.recover(3, ["w"]) == len(self.held)
        for row in self.held:
            self.status[row.number] = S.PENDING
        self.held.clear()

    def tell(self, at: int) -> None:
        tell_all(self.store)
        assert self.store.to_tell("s", 99) == []

    def cancel(self, at: int) -> None:
        wanted = [number for number in self.status if number % 6 == at]
        count = self.store.cancel("s", wanted)
        hit = [number for number in wanted if self.status[number].unfinished()]
        assert count == len(hit)
        for number in hit:
            self.status[number] = S.CANCELLED
        for row in [row for row in self.held if row.number in hit]:
            self.drop(row)

    def retry(self, at: int) -> None:
        wanted = [number for number in self.status if number % 6 == at]
        hit = [number for number in wanted if self.status[number] in (S.FAILED, S.CANCELLED)]
        assert self.store.retry("s", wanted) == len(hit)
        for number in hit:
            self.status[number] = S.PENDING
        # A retry begins anew at attempt 0: what an older try says could count again, and none runs by now.
        self.stale = [row for row in self.stale if row.number not in hit]

    def check(self) -> None:
        for number, expected in self.status.items():
            assert status(self.store, number) is expected
        search = self.store.search("s")
        assert search is not None
        assert search.scheduled == len(self.status) <= 12


@given(steps=STEPS)
@settings(
    max_examples=2000 if PROFILE == "prove" else 12,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_37_the_store_agrees_with_a_dictionary(store: Store, steps: list[tuple[str, int]]) -> None:
    store.database.write(lambda c: c.execute(text("DELETE FROM searches")))
    model = Model(opened(store))
    for name, at in steps:
        getattr(model, name)(at)
    model.check()
    assert store.count_unfinished("s") == model.unfinished


@pytest.mark.parametrize("status", list(S))
def test_37_the_model_knows_every_move(status: S) -> None:
    moves: dict[S, set[S]] = {
        S.PENDING: {S.QUEUED, S.CANCELLED},
        S.QUEUED: {S.RUNNING, S.PENDING, S.CANCELLED},
        S.RUNNING: {S.SUCCEEDED, S.FAILED, S.PENDING, S.CANCELLED},
        S.SUCCEEDED: set(),
        S.FAILED: {S.PENDING},
        S.CANCELLED: {S.PENDING},
    }
    found: Any = set(EVOLUTION_TRANSITIONS[status])
    assert found == moves[status]
