"""Archives and emitters of pyribs as the sampler of a search, asked and told in generations of their own.
Keeps no state that the log does not give back: told outcomes are replayed into fresh copies.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tenuto.errors import SearchError
from tenuto.light import late, sha256
from tenuto.search.archive import Archive, Verdict
from tenuto.search.outcome import Outcome, is_feasible, point
from tenuto.search.proposals import InFlight, Proposal, Setup
from tenuto.search.spaces import Real, Space
from tenuto.tasks.arguments import guarded_by

if TYPE_CHECKING:
    from random import Random

numpy: Any = late("numpy")
_NUDGE = 1e-9
_LARGEST_SEED = 1 << 64
_SHORT = 16
_PARTS = ("_opt", "_grad_opt", "_ranker")
"""What an emitter consists of, that is made of its arguments."""

log = logging.getLogger("tenuto.search")


@guarded_by(SearchError)
class RibsSampler:
    """Emitters of pyribs (CMA-ME, CMA-MAE, ...) on one of its archives, as a user of pyribs builds them.

    `archive`, `emitters`: not used themselves but copied, so that a search can begin anew; give each emitter
    a seed, or a killed search continues with other proposals. `batch`: how many solutions all emitters
    ask for together, where they do not say so themselves; the next generation begins when all were evaluated.
    `measures`: their names, where the task gives them by name.
    """

    def __init__(
        self,
        archive: Any,
        emitters: Iterable[Any],
        *,
        batch: int | None = None,
        measures: Sequence[str] | None = None,
    ) -> None:
        if not hasattr(archive, "measure_dim"):
            raise SearchError(f"RibsSampler: archive={archive!r:.80} is no archive of pyribs")
        self._pristine = (archive, list(emitters))
        if not self._pristine[1]:
            raise SearchError("RibsSampler: give at least one emitter")
        if any(getattr(emitter, "archive", None) is not archive for emitter in self._pristine[1]):
            raise SearchError("RibsSampler: every emitter is to be made with the archive that is given here")
        sizes = [getattr(emitter, "batch_size", None) for emitter in self._pristine[1]]
        known = None if None in sizes else sum(size for size in sizes if size is not None)
        if known is None and batch is None:
            raise SearchError("RibsSampler: an emitter has no batch_size: give batch=, for all together")
        if batch is not None and known not in (None, batch):
            raise SearchError(f"RibsSampler: batch={batch}, but the emitters ask for {known} solutions")
        self.batch: int = known if known is not None else batch or 1
        self.measure_count = int(archive.measure_dim)
        self.measures = tuple(measures or ())
        if self.measures and len(self.measures) != self.measure_count:
            raise SearchError(
                f"RibsSampler: measures={list(self.measures)}, but the archive has {self.measure_count}"
            )

    def definition(self) -> dict[str, Any]:
        archive, emitters = self._pristine
        return {
            "kind": "ribs",
            "archive": described(archive),
            "measures": list(self.measures),
            "emitters": {str(at): described(emitter) for at, emitter in enumerate(emitters, 1)},
            "batch": self.batch,
        }

    def begin(self, setup: Setup) -> RibsRun:
        """The sampler of one search, on copies of archive and emitters."""
        if not isinstance(setup.domain, Space) or not all(
            isinstance(dimension, Real) for dimension in setup.domain.dimensions.values()
        ):
            raise SearchError("RibsSampler varies real numbers only: give a space of Real(...)")
        size = sum(dimension.size for dimension in setup.domain.dimensions.values())
        wanted = int(self._pristine[0].solution_dim)
        if size != wanted:
            raise SearchError(f"RibsSampler: the space has {size} numbers, and the archive {wanted}")
        archive, emitters = copy.deepcopy(self._pristine)
        for part in (archive, *emitters):
            if not is_seeded(part):
                kind = type(part).__name__
                log.warning("a %s has no seed: a restart continues with other proposals", kind)
        return RibsRun(archive, emitters, self.batch, setup.domain, setup.maximize)


class RibsRun:
    """pyribs in the course of one search.

    A proposal's `island` is one more than its place among all that emitters asked for; 0: not asked by them.
    """

    def __init__(
        self, archive: Any, emitters: Sequence[Any], batch: int, space: Space, maximize: bool
    ) -> None:
        self._ribs = archive
        self._emitters = emitters
        self._batch = batch
        self._space = space
        self._sign = 1.0 if maximize else -1.0
        self.archive = _mirror(archive, maximize)
        self._generation = 0
        self._asked: list[Any] | None = None
        """What each emitter asked for in this generation."""
        self._told: dict[int, tuple[list[float], Outcome | None]] = {}
        self._highest = -1
        self._keys: set[str] = set()

    def ask(self, number: int, rng: Random, in_flight: Sequence[InFlight]) -> Proposal | None:
        place = max([self._highest, *(one.proposal.island - 1 for one in in_flight)]) + 1
        generation, at = divmod(place, self._batch)
        if generation > self._generation:
            return None  # until all of this generation were told
        solution = self._solution(at)
        values = self._values(solution)
        flying = [one.proposal.values for one in in_flight]
        while values in flying or self._space.key(values) in self._keys:  # equal ones are tried once
            values = self._values([x + rng.gauss(0, _NUDGE) * max(abs(x), 1.0) for x in solution])
        return Proposal(values, island=place + 1)

    def tell(self, number: int, proposal: Proposal, outcome: Outcome | None) -> tuple[Verdict, int | None]:
        if outcome is not None and not is_feasible(outcome):
            self.tell(number, proposal, None)
            return Verdict.WORSE, None
        place = proposal.island - 1
        self._keys.add(self._space.key(proposal.values))
        if place >= 0 and place not in self._told and place >= self._generation * self._batch:
            self._told[place] = (self._flat(proposal.values), outcome)
            self._highest = max(self._highest, place)
            while self._is_told():
                self._close()
        if outcome is None or outcome.objective is None:
            return Verdict.FAILED, None
        return self.archive.add(number, proposal.values, outcome.objective, point(outcome))

    def _solution(self, at: int) -> list[float]:
        """The solution at that place of this generation, of whichever emitter asked for it."""
        for solutions in self._solutions():
            if at < len(solutions):
                found: list[float] = solutions[at].tolist()
                return found
            at -= len(solutions)
        raise IndexError(at)

    def _solutions(self) -> list[Any]:
        if self._asked is None:
            self._asked = [emitter.ask() for emitter in self._emitters]
            count = sum(len(solutions) for solutions in self._asked)
            if count != self._batch:
                raise SearchError(f"RibsSampler: the emitters asked for {count} solutions, not {self._batch}")
        return self._asked

    def _places(self) -> range:
        return range(self._generation * self._batch, (self._generation + 1) * self._batch)

    def _is_told(self) -> bool:
        return all(place in self._told for place in self._places())

    def _close(self) -> None:
        """Tells the emitters of a generation, in the order in which they asked."""
        sizes = [len(solutions) for solutions in self._solutions()]
        rows = [self._told.pop(place) for place in self._places()]
        data = self._data(rows)
        added = self._add(data, [outcome is not None for _, outcome in rows])
        begin = 0
        # Emitters restart from elites: as long as there is none they learn nothing, and ask anew.
        for emitter, size in zip(self._emitters, sizes, strict=True) if len(self._ribs) else ():
            part = slice(begin, begin + size)
            emitter.tell(
                **{name: column[part] for name, column in data.items()},
                add_info={name: column[part] for name, column in added.items()},
            )
            begin += size
        self._generation += 1
        self._asked = None

    def _data(self, rows: list[tuple[list[float], Outcome | None]]) -> dict[str, Any]:
        """A generation as columns; a failed solution is as bad as the worst, at the edge of the measures."""
        good = [outcome.objective for _, outcome in rows if outcome is not None]
        worst = min((self._sign * value for value in good if value is not None), default=0.0)
        edge = numpy.asarray(self._ribs.lower_bounds).tolist()
        objectives, measures = [], []
        for _, outcome in rows:
            is_good = outcome is not None and outcome.objective is not None
            objectives.append(self._sign * outcome.objective if is_good else worst)  # type: ignore[union-attr,operator]
            measures.append(list(point(outcome)) if is_good else edge)  # type: ignore[arg-type]
        array = numpy.array
        return {
            "solution": array([values for values, _ in rows]),
            "objective": array(objectives),
            "measures": array(measures),
        }

    def _add(self, data: dict[str, Any], is_good: list[bool]) -> dict[str, Any]:
        """Adds successes to the archive; a failure changes nothing there."""
        chosen = numpy.array(is_good)
        if not chosen.any():
            return {"status": numpy.zeros(len(chosen), int), "value": numpy.zeros(len(chosen))}
        found = self._ribs.add(**{name: column[chosen] for name, column in data.items()})
        whole = {}
        for name, column in found.items():
            filled = numpy.full(len(chosen), column.min() - 1 if name == "value" else 0, column.dtype)
            filled[chosen] = column
            whole[name] = filled
        return whole

    def _values(self, solution: Sequence[float]) -> dict[str, Any]:
        values = {}
        begin = 0
        for name, dimension in self._space.dimensions.items():
            assert isinstance(dimension, Real)
            numbers = [
                min(max(float(x), dimension.low), dimension.high)
                for x in solution[begin : begin + dimension.size]
            ]
            begin += dimension.size
            values[name] = dimension.nested(numbers) if dimension.shape else numbers[0]
        return values

    def _flat(self, values: dict[str, Any]) -> list[float]:
        found: list[float] = []
        for name, dimension in self._space.dimensions.items():
            assert isinstance(dimension, Real)
            found += dimension.flat(values[name]) if dimension.shape else [values[name]]
        return found


def _entropy(value: Any) -> Any:
    """The seed of a generator of numpy; None for another value."""
    return getattr(getattr(getattr(value, "bit_generator", value), "seed_seq", value), "entropy", None)


def described(part: Any, depth: int = 1) -> dict[str, str]:
    """What an archive or emitter was made with, as plain data: seeds, numbers, texts, and arrays."""
    found = {"kind": type(part).__name__}
    for name, value in sorted(vars(part).items()):
        entropy = _entropy(value)
        if entropy is not None:
            is_own = isinstance(entropy, int) and entropy >= _LARGEST_SEED
            found[name] = "none" if is_own else repr(entropy)
        elif isinstance(value, str | int | float):
            found[name] = str(value)
        elif hasattr(value, "tobytes"):
            is_short = value.size <= _SHORT
            found[name] = repr(value.tolist()) if is_short else sha256(value.tobytes()).hexdigest()[:16]
        elif depth and name in _PARTS and hasattr(value, "__dict__"):
            found |= {f"{name}.{key}": text for key, text in described(value, depth - 1).items()}
    return found


def is_seeded(part: Any, depth: int = 1) -> bool:
    """Whether an emitter, and its parts, draws the same numbers in each process."""
    for name, value in vars(part).items():
        entropy = _entropy(value)
        if isinstance(entropy, int) and entropy >= _LARGEST_SEED:
            return False
        if depth and name != "_archive" and hasattr(value, "__dict__") and not is_seeded(value, depth - 1):
            return False
    return True


def _mirror(archive: Any, maximize: bool) -> Archive:
    """Our archive with the cells of theirs, where it is a grid: to be shown, and to know new cells."""
    if type(archive).__name__ != "GridArchive":
        return Archive(maximize=maximize)
    ranges = list(zip(archive.lower_bounds.tolist(), archive.upper_bounds.tolist(), strict=True))
    return Archive([int(size) for size in archive.dims], ranges, maximize=maximize)
