"""The plain samplers: at random, and every point of a grid.
They learn nothing; their archive has one cell, which holds the best.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenuto.errors import SearchError
from tenuto.search.archive import Archive, ParetoFront, Verdict
from tenuto.search.outcome import Outcome, is_feasible, point
from tenuto.search.proposals import InFlight, Proposal, Setup
from tenuto.search.spaces import Points, Space
from tenuto.tasks.arguments import guarded_by

if TYPE_CHECKING:
    from random import Random


class RandomSearch:
    """Candidates drawn uniformly."""

    has_front = True

    def definition(self) -> dict[str, Any]:
        return {"kind": "random"}

    def begin(self, setup: Setup) -> "RandomRun":
        return RandomRun(setup)


class Remembering:
    """Keeps the best of the told outcomes."""

    def __init__(self, setup: Setup) -> None:
        self.archive = Archive(maximize=setup.maximize)
        self.front = ParetoFront(setup.directions) if len(setup.directions) > 1 else None

    def tell(self, number: int, proposal: Proposal, outcome: Outcome | None) -> tuple[Verdict, int | None]:
        if outcome is None or outcome.objective is None:
            return Verdict.FAILED, None
        if not is_feasible(outcome):
            return Verdict.WORSE, None
        if self.front is not None:
            return self.front.add(number, proposal.values, outcome.objectives, point(outcome)), None
        return self.archive.add(number, proposal.values, outcome.objective, point(outcome))


class RandomRun(Remembering):
    """Random search in the course of one search."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._domain = setup.domain

    def ask(self, number: int, rng: "Random", in_flight: Sequence[InFlight]) -> Proposal | None:
        return Proposal(self._domain.draw(rng))


@guarded_by(SearchError)
class GridSearch:
    """Every combination of the parameters' values: all options, all whole numbers, and 10 reals.

    `steps`: so many numbers of each parameter instead, also of whole ones.
    """

    has_front = True

    def __init__(self, steps: int | None = None) -> None:
        if steps is not None and (type(steps) is not int or steps < 1):
            raise SearchError(f"GridSearch: steps={steps!r} is not a whole number above 0")
        self.steps = steps

    def definition(self) -> dict[str, Any]:
        return {"kind": "grid", "steps": self.steps}

    def begin(self, setup: Setup) -> "GridRun":
        if not isinstance(setup.domain, Space):
            raise SearchError("GridSearch needs a space: objects that functions make have no grid")
        return GridRun(setup, Points(setup.domain, self.steps))


class GridRun(Remembering):
    """Grid search in the course of one search: the first point that was not tried, by whatever hand."""

    def __init__(self, setup: Setup, points: Points) -> None:
        super().__init__(setup)
        self._points = points
        self._tried: set[int | None] = set()
        self._first = 0
        """All points before this one were tried."""

    def ask(self, number: int, rng: "Random", in_flight: Sequence[InFlight]) -> Proposal | None:
        while self._first in self._tried:
            self._first += 1
        flying = {self._points.number(one.proposal.values) for one in in_flight}
        at = self._first
        while at in self._tried or at in flying:
            at += 1
        return Proposal(self._points.values(at)) if at < self._points.count else None

    def tell(self, number: int, proposal: Proposal, outcome: Outcome | None) -> tuple[Verdict, int | None]:
        self.skip(proposal)
        return super().tell(number, proposal, outcome)

    def skip(self, proposal: Proposal) -> None:
        """Leaves out a point that is, to the task, one that was tried."""
        self._tried.add(self._points.number(proposal.values))
