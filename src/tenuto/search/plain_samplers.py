"""The plain samplers: at random, and every point of a grid.
They learn nothing; their archive has one cell, which holds the best.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenuto.errors import SearchError
from tenuto.search.archive import Archive, Verdict
from tenuto.search.outcome import Outcome, point
from tenuto.search.proposals import InFlight, Proposal, Setup
from tenuto.search.spaces import Numeric, Space

if TYPE_CHECKING:
    from random import Random


class RandomSearch:
    """Candidates drawn uniformly."""

    def definition(self) -> dict[str, Any]:
        return {"kind": "random"}

    def begin(self, setup: Setup) -> "RandomRun":
        return RandomRun(setup)


class Remembering:
    """Keeps the best of what is told."""

    def __init__(self, maximize: bool) -> None:
        self.archive = Archive(maximize=maximize)

    def tell(self, number: int, proposal: Proposal, outcome: Outcome | None) -> tuple[Verdict, int | None]:
        if outcome is None or outcome.objective is None:
            return Verdict.FAILED, None
        return self.archive.add(number, proposal.values, outcome.objective, point(outcome))


class RandomRun(Remembering):
    """Random search in the course of one search."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup.maximize)
        self._domain = setup.domain

    def ask(self, number: int, rng: "Random", in_flight: Sequence[InFlight]) -> Proposal | None:
        return Proposal(self._domain.draw(rng))


class GridSearch:
    """Every combination of `steps` values of each parameter; options and few integers are all tried."""

    def __init__(self, steps: int = 10) -> None:
        if type(steps) is not int or steps < 1:
            raise SearchError(f"GridSearch: steps={steps!r} is not a whole number above 0")
        self.steps = steps

    def definition(self) -> dict[str, Any]:
        return {"kind": "grid", "steps": self.steps}

    def begin(self, setup: Setup) -> "GridRun":
        if not isinstance(setup.domain, Space):
            raise SearchError("GridSearch needs a space: objects that functions make have no grid")
        return GridRun(setup, setup.domain, self.steps)


class GridRun(Remembering):
    """Grid search in the course of one search; the last parameter varies fastest."""

    def __init__(self, setup: Setup, space: Space, steps: int) -> None:
        super().__init__(setup.maximize)
        self._space = space
        self._choices = [
            (name, dimension, dimension.choices(steps), max(dimension.size, 1))
            for name, dimension in space.dimensions.items()
        ]
        self.count = math.prod(len(choices) ** size for _, _, choices, size in self._choices)

    def ask(self, number: int, rng: "Random", in_flight: Sequence[InFlight]) -> Proposal | None:
        rest = number - 1
        if rest >= self.count:
            return None
        values: dict[str, Any] = {}
        for name, dimension, choices, size in reversed(self._choices):
            entries = []
            for _ in range(size):
                rest, at = divmod(rest, len(choices))
                entries.append(choices[at])
            entries.reverse()
            values[name] = dimension.nested(entries) if isinstance(dimension, Numeric) else entries[0]
        return Proposal({name: values[name] for name in self._space.dimensions})
