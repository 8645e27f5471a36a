"""Owns the rows of the table: a case of a workload, at one size, for one system, against its target.
Draws nothing, measures nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from bench.measure import Measured, Summary, spread

OURS = "tenuto"
FLOOR = "floor"
REF_S = 0.006
"""What the reference took on the machine on which the targets were set; only ratios carry over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table. `value` is a median for the whole size, in `unit`."""

    workload: str
    case: str
    system: str
    size: int
    unit: str = "s"
    value: float | None = None
    spread: float | None = None
    each: float | None = None  # of one job
    x_wall: float | None = None  # one job in references, by wall time
    x_cpu: float | None = None  # and by CPU time
    ref_wall_s: float | None = None
    ref_cpu_s: float | None = None
    load: float | None = None  # average, before the first repetition
    target: str = ""
    judged: float | None = None
    limit: float | None = None
    note: str = ""
    raw: tuple[Any, ...] = ()

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none, or nothing was measured."""
        return None if self.judged is None or self.limit is None else self.judged <= self.limit

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in (None, "", ())}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Row:
        known = {field.name for field in fields(cls)}
        values = {name: value for name, value in found.items() if name in known}
        return cls(**{**values, "raw": tuple(values.get("raw", ()))})


@dataclass(frozen=True, slots=True)
class Target:
    """What a row must reach."""

    text: str
    limit: float
    whole: bool  # of all jobs together; else of one


def refs_each(limit: float) -> Target:
    """At most so many references for a job, by wall time."""
    return Target(f"<= {limit:g} x ref", limit, whole=False)


def seconds_each(limit_s: float) -> Target:
    """At most so long for a job on the machine of the targets; judged in references."""
    return Target(f"<= {limit_s * 1e3:g} ms ({limit_s / REF_S:.2g} x ref)", limit_s / REF_S, whole=False)


def seconds_whole(limit_s: float) -> Target:
    """At most so long for everything on the machine of the targets; judged in references."""
    return Target(f"<= {limit_s:g} s ({limit_s / REF_S:.3g} x ref)", limit_s / REF_S, whole=True)


def timed(
    workload: str,
    case: str,
    system: str,
    size: int,
    measured: Measured,
    target: Target | None = None,
    note: str = "",
) -> Row:
    """The row of something measured beside the reference, by wall time."""
    x_wall = measured.x_wall(size)
    return Row(
        workload=workload,
        case=case,
        system=system,
        size=size,
        value=measured.cost.wall_s,
        spread=measured.cost.wall_spread,
        each=measured.cost.wall_s / size,
        x_wall=x_wall,
        x_cpu=measured.x_cpu(size),
        ref_wall_s=measured.ref.wall_s,
        ref_cpu_s=measured.ref.cpu_s,
        load=measured.load,
        target=target.text if target else "",
        judged=(x_wall * size if target.whole else x_wall) if target else None,
        limit=target.limit if target else None,
        note=note,
        raw=(*(asdict(cost) for cost in measured.cost.raw),),
    )


def by_cpu(
    workload: str,
    case: str,
    system: str,
    size: int,
    cost: Summary,
    load: float,
    target: str = "",
    limit_s: float | None = None,
    note: str = "",
) -> Row:
    """The row of something judged by its CPU seconds as they are."""
    return Row(
        workload=workload,
        case=case,
        system=system,
        size=size,
        unit="s CPU",
        value=cost.cpu_s,
        spread=cost.cpu_spread,
        each=cost.cpu_s / size,
        load=load,
        target=target,
        judged=cost.cpu_s if target else None,
        limit=limit_s,
        note=note,
        raw=(*(asdict(one) for one in cost.raw),),
    )


def plain(
    workload: str,
    case: str,
    system: str,
    size: int,
    unit: str,
    values: Sequence[float],
    load: float,
    target: str = "",
    limit: float | None = None,
    note: str = "",
) -> Row:
    """The row of something that is no time of a job."""
    return Row(
        workload=workload,
        case=case,
        system=system,
        size=size,
        unit=unit,
        value=statistics.median(values),
        spread=spread(values),
        load=load,
        target=target,
        judged=statistics.median(values) if target else None,
        limit=limit,
        note=note,
        raw=tuple(values),
    )


def missing(workload: str, case: str, system: str, size: int, why: str) -> Row:
    """The row of something that could not be measured."""
    return Row(workload=workload, case=case, system=system, size=size, note=why)
