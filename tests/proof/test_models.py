"""The models hold in a small size, every planted bug is seen, and a counterexample can be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from proof.models.checker import STUCK, Step, check
from proof.models.proving import SUBJECTS, run
from proof.report import Options, text


class Counter(NamedTuple):
    """A toy: counts to three, and may fall into a hole."""

    limit: int = 3
    hole: int | None = None
    name: str = "counter"

    def initial(self) -> int:
        return 0

    def steps(self, state: int) -> Iterator[Step[int]]:
        if 0 <= state < self.limit:
            yield Step("one more", state + 1)
        if state == self.hole:
            yield Step("falls", -1, is_fault=True)

    def broken(self, state: int) -> str | None:
        return "four is too much" if state == 4 else None

    def at_rest(self, state: int) -> bool:
        return state == 3

    def show(self, state: int) -> str:
        return f"at {state}"


def test_a_model_without_fault_is_explored_completely() -> None:
    checked = check(Counter())
    assert (checked.states, checked.steps, checked.depth, checked.found) == (4, 3, 3, None)


def test_a_broken_promise_is_shown_by_a_shortest_trace() -> None:
    found = check(Counter(limit=5)).found
    assert found is not None
    assert found.text().splitlines() == [
        "  0 the beginning  at 0",
        *(f"  {n} one more       at {n}" for n in range(1, 5)),
        "    => four is too much",
    ]


def test_a_state_without_a_way_out_is_found() -> None:
    found = check(Counter(hole=1)).found
    assert found is not None
    assert (found.what, found.trace[-1]) == (STUCK, ("falls", "at -1"))


@pytest.mark.parametrize("name", SUBJECTS)
def test_each_model_has_five_bugs_planted_at_least(name: str) -> None:
    assert len(SUBJECTS[name].planted) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_the_models_hold(name: str) -> None:
    report = run(Options(small=True, planted=False), [name])
    assert report.cases[0].count > 10_000
    assert report.good, text(report)


CHEAP = ("claims and fence", "handover to a node", "cleaning against downloads")
DEAR = pytest.mark.prove("the proof plants all bugs; those of three models are planted for each change")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name in CHEAP else pytest.param(name, marks=DEAR) for name in SUBJECTS]
)
def test_every_planted_bug_is_found(name: str) -> None:
    report = run(Options(small=True), [name])
    assert len(report.planted) == len(SUBJECTS[name].planted)
    assert report.good, text(report)
