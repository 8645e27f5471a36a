"""The archive: the best candidate of every cell, where the cells divide the space of the measures.
Plain Python; a grid divides exactly as pyribs' GridArchive does, which is its oracle in the tests.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from enum import Enum, unique
from typing import Any, NamedTuple

from tenuto.errors import SearchError
from tenuto.light import late
from tenuto.tasks.arguments import guarded_by

ribs_archives: Any = late("ribs.archives")


@unique
class Verdict(Enum):
    """What a candidate was to the archive."""

    NEW = "new"
    """The first in its cell."""
    BETTER = "better"
    """Better than the elite of its cell."""
    WORSE = "worse"
    """Not better than the elite of its cell."""
    FAILED = "failed"
    """It could not be evaluated."""


class Elite(NamedTuple):
    """The best candidate of a cell."""

    cell: int
    objective: float
    measures: tuple[float, ...]
    number: int
    values: Any
    objectives: tuple[float, ...] = ()
    """Of a search with several directions."""


class ParetoFront:
    """The Pareto front: the candidates of which no other is as good in every objective and better in one."""

    def __init__(self, directions: Sequence[bool]) -> None:
        """`directions`: of each objective, whether larger is better."""
        self._signs = [1.0 if is_larger else -1.0 for is_larger in directions]
        self._elites: dict[tuple[float, ...], list[Elite]] = {}

    def elites(self) -> list[Elite]:
        """The candidates on the front, by number; all of those that are equal."""
        return sorted(
            (elite for equal in self._elites.values() for elite in equal), key=lambda one: one.number
        )

    def add(
        self, number: int, values: Any, objectives: Sequence[float], measures: Sequence[float] = ()
    ) -> Verdict:
        """Add a candidate unless a member of the front is better; the front drops members that it beats."""
        mine = tuple(sign * one for sign, one in zip(self._signs, objectives, strict=True))
        elite = Elite(0, objectives[0], tuple(measures), number, values, tuple(objectives))
        if mine in self._elites:
            self._elites[mine].append(elite)
            return Verdict.WORSE  # the front is what it was
        if any(all(a >= b for a, b in zip(other, mine, strict=True)) for other in self._elites):
            return Verdict.WORSE
        beaten = [other for other in self._elites if all(a <= b for a, b in zip(other, mine, strict=True))]
        for other in beaten:
            del self._elites[other]
        self._elites[mine] = [elite]
        return Verdict.BETTER if beaten else Verdict.NEW


@guarded_by(SearchError)
class Archive:
    """Elites by cell, in the order in which the cells were first filled."""

    def __init__(
        self,
        cells: Sequence[int] | int = 1,
        ranges: Sequence[tuple[float, float]] = (),
        *,
        maximize: bool = True,
        offset: float = 0.0,
        epsilon: float = 1e-6,
    ) -> None:
        """`cells`: along each measure, or Voronoi cells in all; `ranges`: of each measure."""
        self._regions: Grid | Voronoi = (
            Voronoi(cells, ranges) if isinstance(cells, int) else Grid(cells, ranges, epsilon)
        )
        self._sign = 1.0 if maximize else -1.0
        self._offset = offset
        self._elites: dict[int, Elite] = {}
        self._order: list[int] = []
        self._best: Elite | None = None
        self._sum = 0.0
        self.ranges: list[tuple[float, float]] | None = self._regions.ranges
        """Within which measures lie that are not clipped; None where the ranges follow the measures."""

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return self._regions.count

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """The range of each measure as the cells are divided now."""
        return self._regions.ranges

    @property
    def shape(self) -> tuple[int, ...]:
        """How many cells lie along each measure; one number for Voronoi cells."""
        return self._regions.shape

    def __len__(self) -> int:
        return len(self._elites)

    def elites(self) -> list[Elite]:
        """The elites, in the order in which their cells were first filled."""
        return list(self._elites.values())

    @property
    def best(self) -> Elite | None:
        return self._best

    @property
    def qd_score(self) -> float:
        """The sum of what the elites' objectives are better than the offset."""
        return math.fsum(self._sign * (e.objective - self._offset) for e in self._elites.values())

    @property
    def running_qd_score(self) -> float:
        """The same, kept up with every change: quick, and exact but for rounding."""
        return self._sum - self._sign * self._offset * len(self._elites)

    @property
    def coverage(self) -> float:
        """The fraction of cells that are filled."""
        return len(self._elites) / self.cells

    def index(self, measures: Sequence[float]) -> int:
        """The cell of a point."""
        return self._regions.index(measures)

    def clips(self, measures: Sequence[float]) -> bool:
        """Whether a point lies outside the ranges, and is counted in a cell at the edge."""
        return any(
            not low <= measure <= high
            for measure, (low, high) in zip(measures, self.ranges or (), strict=False)
        )

    def position(self, cell: int) -> tuple[int, ...]:
        """Where a cell lies along each measure."""
        return self._regions.position(cell)

    def at(self, cell: int) -> Elite | None:
        """The elite of a cell."""
        return self._elites.get(cell)

    def add(
        self, number: int, values: Any, objective: float, measures: Sequence[float]
    ) -> tuple[Verdict, int]:
        """Takes a candidate in if it is the first, or better than the elite, of its cell."""
        cell = self.index(measures)
        before = self._elites.get(cell)
        if before is not None and self._sign * objective <= self._sign * before.objective:
            return Verdict.WORSE, cell
        elite = Elite(cell, objective, tuple(measures), number, values)
        self._elites[cell] = elite
        self._sum += self._sign * (objective - (before.objective if before else 0.0))
        if before is None:
            self._order.append(cell)
        if self._best is None or self._sign * objective > self._sign * self._best.objective:
            self._best = elite
        return (Verdict.NEW if before is None else Verdict.BETTER), cell

    def draw(self, rng: Any) -> Elite:
        """An elite, uniformly among the filled cells; there must be one."""
        return self._elites[self._order[rng.randrange(len(self._order))]]

    def near(self, cell: int, count: int, rng: Any) -> list[Elite]:
        """Up to so many elites of other cells, the nearest first; chance decides among equally near ones."""
        found: list[Elite] = []
        for ring in self._regions.rings(cell, self._elites):
            chosen = [other for other in ring if other != cell]
            if len(chosen) > count - len(found):
                chosen = rng.sample(chosen, count - len(found))
            found += [self._elites[other] for other in chosen]
            if len(found) == count:
                break
        return found

    def top(self, count: int) -> list[Elite]:
        """The best elites, the best first; of equal ones the older first."""
        return sorted(self._elites.values(), key=lambda e: (-self._sign * e.objective, e.number))[:count]

    def to_ribs(self) -> Any:
        """The same archive as pyribs', for its plots; needs ``pip install 'tenuto[ribs]'``."""
        return self._regions.to_ribs(self.elites(), self._sign * self._offset, self._sign)


def _check_ranges(ranges: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    found = []
    for given in ranges:
        try:
            low, high = (float(bound) for bound in given)
        except (TypeError, ValueError):
            raise SearchError(f"ranges: {given!r} is not a pair of numbers such as (0, 1)") from None
        if not low < high or not math.isfinite(low) or not math.isfinite(high):
            raise SearchError(f"ranges: {given!r} is empty; write the smaller number first")
        found.append((low, high))
    return found


AUTO = "auto"
"""Ranges that follow the told outcomes."""
_FIRST_SCALING = 16
_CUT = 0.02
_MOST_CELLS = 1 << 31


def is_scaling(count: int) -> bool:
    """Whether ranges that follow the told outcomes are found anew after so many outcomes: 16, 32, 64, ..."""
    return count >= _FIRST_SCALING and count & (count - 1) == 0


def scaled_ranges(told: Sequence[Sequence[float]], dimensions: int) -> list[tuple[float, float]]:
    """The 2nd and the 98th percentile of each measure, of the outcomes up to the last scaling.

    `told`: the measures of all outcomes, in the order in which they were told. Before: 0 to 1.
    """
    if len(told) < _FIRST_SCALING:
        return [(0.0, 1.0)] * dimensions
    counted = told[: 1 << (len(told).bit_length() - 1)]
    return [_middle(sorted(point[at] for point in counted)) for at in range(dimensions)]


def _middle(values: list[float]) -> tuple[float, float]:
    low, high = (_quantile(values, part) for part in (_CUT, 1 - _CUT))
    if high - low > 1e-9 * max(abs(low), abs(high)):
        return low, high
    width = max(abs(low), 1.0) / 2  # all the same: it lies in the middle
    return low - width, high + width


def _quantile(values: list[float], part: float) -> float:
    at = part * (len(values) - 1)
    before = int(at)
    following = min(before + 1, len(values) - 1)
    return values[before] + (at - before) * (values[following] - values[before])


class Grid:
    """Cells of equal size along each measure."""

    def __init__(self, cells: Sequence[int], ranges: Sequence[tuple[float, float]], epsilon: float) -> None:
        self.shape = tuple(cells)
        self.ranges = _check_ranges(ranges)
        if len(self.shape) != len(self.ranges) or not self.shape:
            raise SearchError(f"cells={list(self.shape)}, ranges={list(ranges)}: one entry for each measure")
        if any(type(size) is not int or size < 1 for size in self.shape):
            raise SearchError(f"cells={list(self.shape)}: each is a whole number above 0")
        self._epsilon = epsilon
        self.count = math.prod(self.shape)
        if self.count >= _MOST_CELLS:
            raise SearchError(f"cells={list(self.shape)} are {self.count}: more than a database counts, 2^31")

    def index(self, measures: Sequence[float]) -> int:
        cell = 0
        for size, (low, high), measure in zip(self.shape, self.ranges, measures, strict=True):
            at = (size * (measure - low) + self._epsilon) / (high - low)
            cell = cell * size + (0 if at < 1 else size - 1 if at >= size else int(at))
        return cell

    def position(self, cell: int) -> tuple[int, ...]:
        found = []
        for size in reversed(self.shape):
            cell, at = divmod(cell, size)
            found.append(at)
        return tuple(reversed(found))

    def rings(self, cell: int, filled: dict[int, Elite]) -> Iterator[list[int]]:
        """The filled cells at a Chebyshev distance of 1, 2 and 3, then all others."""
        at = self.position(cell)
        near: set[int] = {cell}
        for distance in (1, 2, 3):
            if (2 * distance + 1) ** len(at) <= 4 * len(filled) + 25:
                candidates: Iterator[int] = self._around(at, distance)
            else:
                candidates = (other for other in filled if _chebyshev(self.position(other), at) == distance)
            ring = sorted({other for other in candidates if other in filled} - near)
            near.update(ring)
            yield ring
        yield [other for other in filled if other not in near]

    def _around(self, at: tuple[int, ...], distance: int) -> Iterator[int]:
        spans = [
            range(max(0, middle - distance), min(size, middle + distance + 1))
            for middle, size in zip(at, self.shape, strict=True)
        ]
        for position in itertools.product(*spans):
            cell = 0
            for size, part in zip(self.shape, position, strict=True):
                cell = cell * size + part
            yield cell

    def to_ribs(self, elites: list[Elite], offset: float, sign: float) -> Any:
        archive = ribs_archives.GridArchive(
            solution_dim=1, dims=self.shape, ranges=self.ranges, epsilon=self._epsilon, qd_score_offset=offset
        )
        return _filled(archive, elites, sign)


class Voronoi:
    """Cells around the points of a Halton sequence, which fill the ranges evenly."""

    def __init__(self, count: int, ranges: Sequence[tuple[float, float]]) -> None:
        if isinstance(count, bool) or count < 1:
            raise SearchError(f"cells={count!r}: give a whole number above 0")
        self.ranges = _check_ranges(ranges)
        if count > 1 and not self.ranges:
            raise SearchError(f"cells={count} needs ranges=[(low, high), ...], one for each measure")
        self.count = count
        self.shape = (count,)
        self.points = [
            tuple(_halton(number, prime) for prime in _primes(len(self.ranges)))
            for number in range(1, count + 1)
        ]

    def index(self, measures: Sequence[float]) -> int:
        if self.count == 1:
            return 0
        point = [
            min(max((m - low) / (high - low), 0.0), 1.0)
            for m, (low, high) in zip(measures, self.ranges, strict=True)
        ]
        return min(range(self.count), key=lambda cell: math.dist(self.points[cell], point))

    def position(self, cell: int) -> tuple[int, ...]:
        return (cell,)

    def rings(self, cell: int, filled: dict[int, Elite]) -> Iterator[list[int]]:
        middle = self.points[cell]
        for other in sorted(filled, key=lambda one: (math.dist(self.points[one], middle), one)):
            yield [other]

    def to_ribs(self, elites: list[Elite], offset: float, sign: float) -> Any:
        centroids = [
            [low + part * (high - low) for part, (low, high) in zip(point, self.ranges, strict=True)]
            for point in self.points
        ]
        archive = ribs_archives.CVTArchive(
            solution_dim=1, centroids=centroids, ranges=self.ranges, qd_score_offset=offset
        )
        return _filled(archive, elites, sign)


def _filled(archive: Any, elites: list[Elite], sign: float) -> Any:
    if elites:
        archive.add(
            [[elite.number] for elite in elites],
            [sign * elite.objective for elite in elites],
            [list(elite.measures) for elite in elites],
        )
    return archive


def _chebyshev(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


def _halton(number: int, base: int) -> float:
    found, fraction = 0.0, 1.0
    while number:
        fraction /= base
        number, digit = divmod(number, base)
        found += fraction * digit
    return found


def _primes(count: int) -> list[int]:
    found: list[int] = []
    for number in itertools.count(2):
        if len(found) == count:
            break
        if all(number % prime for prime in found):
            found.append(number)
    return found
