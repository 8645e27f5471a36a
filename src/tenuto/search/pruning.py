"""Pruners: whether a candidate that runs is stopped, judged by its metrics and those of the others.
Pure, and loaded by every job of a search; `points` reads and writes the rows.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from tenuto.errors import SearchError
from tenuto.tasks.arguments import guarded_by

Curve = Mapping[int, float]
"""step -> value; larger is better, whatever the direction of the search."""


class Other(NamedTuple):
    """What another candidate logged."""

    curve: Curve
    has_succeeded: bool
    """False of one that runs, failed, or was pruned."""


@runtime_checkable
class Pruner(Protocol):
    """Decides from points alone, so that every scheduler decides the same."""

    def verdict(self, mine: Curve, step: int, others: Iterable[Other]) -> str | None:
        """Why a candidate that logged this step is stopped; None: it continues."""
        ...

    def definition(self) -> dict[str, Any]: ...


@guarded_by(SearchError)
class Median:
    """Stops a candidate whose best value so far is below the median of those that succeeded, at that step.

    `startup`: how many must have succeeded before; `warmup`: the step before which none is stopped.
    """

    def __init__(self, startup: int = 8, warmup: int = 5) -> None:
        self.startup = _whole("Median", "startup", startup, 1)
        self.warmup = _whole("Median", "warmup", warmup, 0)

    def definition(self) -> dict[str, Any]:
        return {"kind": "median", "startup": self.startup, "warmup": self.warmup}

    def verdict(self, mine: Curve, step: int, others: Iterable[Other]) -> str | None:
        succeeded = [other.curve for other in others if other.has_succeeded]
        there = sorted(curve[step] for curve in succeeded if step in curve)
        if step < self.warmup or len(succeeded) < self.startup or not there:
            return None
        half = len(there) // 2
        middle = there[half] if len(there) % 2 else (there[half - 1] + there[half]) / 2
        best = max(value for at, value in mine.items() if at <= step)
        return f"its best is worse than the median of {len(there)} there" if best < middle else None


@guarded_by(SearchError)
class Halving:
    """Stops a candidate that is not among the best 1/`factor` of those that came as far.

    Candidates are compared at the steps `first`, `first` x `factor`, `first` x `factor` ^ 2, ... as they come
    there (asynchronous successive halving, Li et al., 2020).
    """

    def __init__(self, first: int = 1, factor: int = 3) -> None:
        self.first = _whole("Halving", "first", first, 1)
        self.factor = _whole("Halving", "factor", factor, 2)

    def definition(self) -> dict[str, Any]:
        return {"kind": "halving", "first": self.first, "factor": self.factor}

    def verdict(self, mine: Curve, step: int, others: Iterable[Other]) -> str | None:
        before = max((at for at in mine if at < step), default=-1)
        curves = [other.curve for other in others]
        rung = self.first
        while rung <= step:
            if rung > before:
                value = mine[step]
                there = [one for curve in curves if (one := _at_rung(curve, rung)) is not None]
                better = sum(one > value for one in there)
                if better >= max((len(there) + 1) // self.factor, 1):
                    return f"{better} of {len(there)} were better at step {rung}"
            rung *= self.factor
        return None


def _at_rung(curve: Curve, rung: int) -> float | None:
    """The value with which a candidate came to a rung; None if it did not."""
    step = min((at for at in curve if at >= rung), default=None)
    return None if step is None else curve[step]


def counted(value: float, maximize: bool) -> float:
    """A value as pruners compare it: the larger the better, and nan the worst."""
    return -math.inf if math.isnan(value) else value if maximize else -value


def check_pruner(pruner: Any) -> None:
    """Raises `SearchError` for a value that is no pruner."""
    if isinstance(pruner, type) or not isinstance(pruner, Pruner):
        raise SearchError(f"pruner={pruner!r:.80} is no pruner: give Median(...) or Halving(...)")


def _whole(kind: str, name: str, value: Any, least: int) -> int:
    if type(value) is not int or value < least:
        raise SearchError(f"{kind}: {name}={value!r} is not a whole number of at least {least}")
    return value
