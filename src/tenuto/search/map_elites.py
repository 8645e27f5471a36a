"""MAP-Elites: children of elites, which fill and improve the cells of an archive (Mouret and Clune, 2015).
Asks for one candidate at a time, with any number in flight; keeps no state that the log does not give back.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tenuto.errors import SearchError
from tenuto.search.archive import AUTO, Archive, Verdict, is_scaling, scaled_ranges
from tenuto.search.outcome import Outcome, is_feasible, point
from tenuto.search.proposals import InFlight, Proposal, Setup
from tenuto.tasks.arguments import guarded_by

if TYPE_CHECKING:
    from random import Random


class Variation(Protocol):
    """Makes the units of a child from those of two parents."""

    def vary(self, parent: list[float], second: list[float], rng: "Random") -> list[float]: ...

    def definition(self) -> dict[str, Any]: ...


@guarded_by(SearchError)
class IsoLine:
    """A Gaussian step, and one along the line between the parents (Vassiliades and Mouret, 2018)."""

    def __init__(self, iso: float = 0.01, line: float = 0.2) -> None:
        self._iso = _sigma("IsoLine", iso)
        self._line = _sigma("IsoLine", line)

    def definition(self) -> dict[str, Any]:
        return {"kind": "isoline", "iso": self._iso, "line": self._line}

    def vary(self, parent: list[float], second: list[float], rng: "Random") -> list[float]:
        along = rng.gauss(0.0, self._line)
        iso, gauss = self._iso, rng.gauss
        return [a + gauss(0.0, iso) + along * (b - a) for a, b in zip(parent, second, strict=True)]


@guarded_by(SearchError)
class Gaussian:
    """A Gaussian step from one parent."""

    def __init__(self, sigma: float = 0.1) -> None:
        self._sigma = _sigma("Gaussian", sigma)

    def definition(self) -> dict[str, Any]:
        return {"kind": "gaussian", "sigma": self._sigma}

    def vary(self, parent: list[float], second: list[float], rng: "Random") -> list[float]:
        return [a + rng.gauss(0.0, self._sigma) for a in parent]


@guarded_by(SearchError)
class Mixed:
    """One of several variations, drawn for each child by weight."""

    def __init__(self, *variations: Variation, weights: Sequence[float] | None = None) -> None:
        """`weights`: one for each variation; without, all are equally likely."""
        if not variations:
            raise SearchError("Mixed: give the variations to choose from")
        self._variations = variations
        self._weights = list(weights) if weights is not None else [1.0] * len(variations)
        is_sound = all(0 <= weight < float("inf") for weight in self._weights) and sum(self._weights) > 0
        if len(self._weights) != len(variations) or not is_sound:
            raise SearchError(f"Mixed: {len(variations)} variations need as many weights, not {weights!r}")

    def definition(self) -> dict[str, Any]:
        inner = [variation.definition() for variation in self._variations]
        return {"kind": "mixed", "variations": inner, "weights": self._weights}

    def vary(self, parent: list[float], second: list[float], rng: "Random") -> list[float]:
        drawn = rng.choices(self._variations, self._weights)[0]
        return drawn.vary(parent, second, rng)


def _sigma(name: str, sigma: Any) -> float:
    if isinstance(sigma, bool) or not isinstance(sigma, int | float) or not 0 <= sigma < float("inf"):
        raise SearchError(
            f"{name}: {sigma!r} is no standard deviation; it is a fraction of the range, such as 0.1"
        )
    return float(sigma)


# Islands: archives that evolve apart and now and then send their best to the next.
# With one island there is one archive and no migration.


class Islands:
    """The archive of the whole search, and one for each island."""

    def __init__(self, make: Callable[[], Archive], count: int, migrate_every: int, migrants: int) -> None:
        self.whole = make()
        self._archives = [make() for _ in range(count)] if count > 1 else [self.whole]
        self._migrate_every = migrate_every
        self._migrants = migrants
        self._told = 0

    def of(self, number: int) -> int:
        """The island of a proposal."""
        return number % len(self._archives)

    def archive(self, island: int) -> Archive:
        """The archive of an island."""
        return self._archives[island % len(self._archives)]

    def add(
        self, island: int, number: int, values: Any, objective: float, measures: Sequence[float]
    ) -> tuple[Verdict, int]:
        """Adds a candidate to its island and to the whole, whose verdict counts."""
        archive = self.archive(island)
        if archive is not self.whole:
            archive.add(number, values, objective, measures)
        return self.whole.add(number, values, objective, measures)

    def count_tell(self) -> None:
        """Counts the told outcomes; after each `migrate_every` the best of each island go to the next."""
        self._told += 1
        if len(self._archives) == 1 or self._told % self._migrate_every:
            return
        leaving = [archive.top(self._migrants) for archive in self._archives]
        for island, elites in enumerate(leaving):
            following = self._archives[(island + 1) % len(self._archives)]
            for elite in elites:
                following.add(elite.number, elite.values, elite.objective, elite.measures)


@guarded_by(SearchError)
class MapElites:
    """A search for the best candidate of every cell of the measures.

    `cells`: how many along each measure (a list), or how many Voronoi cells in all; `ranges`: of each
    measure, or "auto": from the 2nd to the 98th percentile of the told ones, found anew after 16, 32, 64, ...
    outcomes, when the archive is filled again with all of them; `measures`: their names, where the task gives
    them by name; `variation`: how a child differs from its parents; `start`: how many candidates are drawn at
    random first, and `inspirations`: how many elites beside the parent a child is shown (by default as the
    settings say, 16 and 3); `islands` evolve apart, and after every `migrate_every` outcomes send their best
    `migrants` on; `offset`: the objective that counts as nothing in the QD score; `epsilon`: as pyribs'
    GridArchive.
    """

    def __init__(
        self,
        cells: Sequence[int] | int,
        ranges: Sequence[tuple[float, float]] | str,
        *,
        measures: Sequence[str] | None = None,
        variation: Variation | None = None,
        start: int | None = None,
        islands: int = 1,
        migrate_every: int = 100,
        migrants: int = 2,
        inspirations: int | None = None,
        offset: float = 0.0,
        epsilon: float = 1e-6,
    ) -> None:
        self.measures = tuple(measures) if measures is not None else ()
        self.is_scaled = ranges == AUTO
        if isinstance(ranges, str):
            if not self.is_scaled:
                raise SearchError(f'ranges={ranges!r}: give a pair for each measure, or "{AUTO}"')
            if isinstance(cells, int) and not self.measures:
                raise SearchError(f'ranges="{AUTO}" with cells={cells} needs the names of the measures')
            ranges = scaled_ranges((), len(self.measures) if isinstance(cells, int) else len(cells))
        Archive(cells, ranges, epsilon=epsilon)  # refuses ranges that cannot be divided, at the call
        self.measure_count = len(ranges)
        if self.measures and len(self.measures) != len(ranges):
            raise SearchError(
                f"measures={list(self.measures)} names {len(self.measures)}, ranges has {len(ranges)}"
            )
        for name, value, least in (
            ("start", 16 if start is None else start, 1),
            ("islands", islands, 1),
            ("migrate_every", migrate_every, 1),
            ("migrants", migrants, 0),
            ("inspirations", 3 if inspirations is None else inspirations, 0),
        ):
            if type(value) is not int or value < least:
                raise SearchError(f"MapElites: {name}={value!r} is not a whole number of at least {least}")
        if not (math.isfinite(offset) and math.isfinite(epsilon) and epsilon >= 0):
            raise SearchError(
                f"MapElites: offset={offset}, epsilon={epsilon}: finite, and epsilon not below 0"
            )
        if len(set(self.measures)) < len(self.measures):
            raise SearchError(f"measures={list(self.measures)}: each has a name of its own")
        self.cells = cells if isinstance(cells, int) else list(cells)
        self.ranges = [(float(low), float(high)) for low, high in ranges]
        self.variation = variation if variation is not None else IsoLine()
        self.start = start
        self.islands = islands
        self.migrate_every = migrate_every
        self.migrants = migrants
        self.inspirations = inspirations
        self.offset = offset
        self.epsilon = epsilon

    def definition(self) -> dict[str, Any]:
        return {
            "kind": "map-elites",
            "cells": self.cells,
            "ranges": AUTO if self.is_scaled else [list(bounds) for bounds in self.ranges],
            "measures": list(self.measures),
            "variation": self.variation.definition(),
            "start": self.start,
            "islands": self.islands,
            "migrate_every": self.migrate_every,
            "migrants": self.migrants,
            "inspirations": self.inspirations,
            "offset": self.offset,
            "epsilon": self.epsilon,
        }

    def begin(self, setup: Setup) -> "MapElitesRun":
        """The sampler of one search."""
        return MapElitesRun(self, setup)


class MapElitesRun:
    """MAP-Elites in the course of one search."""

    def __init__(self, declared: MapElites, setup: Setup) -> None:
        self._declared = declared
        self._domain = setup.domain
        self._start = setup.start if declared.start is None else declared.start
        self._inspirations = setup.inspirations if declared.inspirations is None else declared.inspirations
        self._maximize = setup.maximize
        self._told: list[tuple[int, int, Any, float, tuple[float, ...]]] = []
        """What the archives are filled with anew when their ranges change: island, number, and the rest."""
        self._islands = self._fresh()

    def _fresh(self) -> Islands:
        declared = self._declared
        ranges = declared.ranges
        if declared.is_scaled:
            ranges = scaled_ranges([one[-1] for one in self._told], declared.measure_count)

        def make() -> Archive:
            archive = Archive(
                declared.cells,
                ranges,
                maximize=self._maximize,
                offset=declared.offset,
                epsilon=declared.epsilon,
            )
            if declared.is_scaled:
                archive.ranges = None
            return archive

        return Islands(make, declared.islands, declared.migrate_every, declared.migrants)

    def _scale(self) -> None:
        """Divides the ranges of the told outcomes anew, and fills the cells again."""
        self._islands = self._fresh()
        for one in self._told:
            self._islands.add(*one)
            self._islands.count_tell()

    @property
    def archive(self) -> Archive:
        """The archive of all islands together."""
        return self._islands.whole

    def ask(self, number: int, rng: "Random", in_flight: Sequence[InFlight]) -> Proposal | None:
        island = self._islands.of(number)
        archive = self._islands.archive(island)
        if number <= self._start or not len(archive):
            return Proposal(self._domain.draw(rng), island=island)
        parent, second = archive.draw(rng), archive.draw(rng)
        near = archive.near(parent.cell, self._inspirations, rng)
        values = self._domain.vary(
            self._declared.variation, parent.values, second.values, [elite.values for elite in near], rng
        )
        return Proposal(values, parent.number, tuple(elite.number for elite in near), island)

    def tell(self, number: int, proposal: Proposal, outcome: Outcome | None) -> tuple[Verdict, int | None]:
        verdict, cell = Verdict.FAILED, None
        if outcome is not None and not is_feasible(outcome):
            verdict = Verdict.WORSE
        elif outcome is not None and outcome.objective is not None:
            told = (proposal.island, number, proposal.values, outcome.objective, point(outcome))
            verdict, cell = self._islands.add(*told)
            if self._declared.is_scaled:
                self._told.append(told)
                if is_scaling(len(self._told)):
                    self._scale()
                    return verdict, self.archive.index(told[-1])
        self._islands.count_tell()
        return verdict, cell
