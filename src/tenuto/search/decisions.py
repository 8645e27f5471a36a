"""The decisions of a search: how many candidates to make, and whether it is to end.
Pure: functions of values; reads no clock and no row.
"""

from __future__ import annotations

from dataclasses import dataclass

from tenuto.lifecycle.evolution import SearchEnd, SearchState

MOST_SURROUNDINGS = 5
"""Failures in a row that are the surroundings': more would burn the budget for nothing."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """When a search ends, and how much may be in flight; None: no bound."""

    max_unfinished: int
    max_total: int | None = None
    batch: int | None = None
    max_seconds: float | None = None
    max_cost: float | None = None
    target: float | None = None
    stall: int | None = None
    seed_population: int = 16
    maximize: bool = True


@dataclass(frozen=True, slots=True)
class SearchStanding:
    """Where a search stands."""

    state: SearchState
    scheduled: int = 0
    told: int = 0
    unfinished: int = 0
    to_tell: int = 0
    cost: float = 0.0
    active_s: float = 0.0
    best: float | None = None
    succeeded: int = 0
    failed: int = 0
    since_better: int = 0
    is_exhausted: bool = False
    surroundings: int = 0
    """The failures of the surroundings, not of candidates, that came last, in a row."""


@dataclass(frozen=True, slots=True)
class DispatchPlan:
    """What to do next: how many candidates to make, and why to stop, if so."""

    to_schedule: int = 0
    stop: SearchEnd | None = None
    ends_now: bool = False
    """Nothing is in flight and everything was told: the search may end."""
    pauses: bool = False
    """The surroundings fail: a person has to mend them first."""


def plan(view: SearchStanding, bounds: Bounds) -> DispatchPlan:
    """What a search does next."""
    is_quiet = view.unfinished == 0 and view.to_tell == 0
    if view.state is SearchState.ENDED:
        return DispatchPlan()
    if view.state is SearchState.DRAINING:
        return DispatchPlan(ends_now=is_quiet)
    stop = _stop(view, bounds)
    if stop is not None:
        return DispatchPlan(stop=stop, ends_now=is_quiet)
    if view.state is SearchState.PAUSED:
        return DispatchPlan()
    if view.surroundings >= MOST_SURROUNDINGS:
        return DispatchPlan(pauses=True)
    if is_quiet and bounds.max_total is not None and view.scheduled >= bounds.max_total:
        return DispatchPlan(stop=SearchEnd.TOTAL, ends_now=True)
    if is_quiet and view.is_exhausted:
        return DispatchPlan(stop=SearchEnd.EXHAUSTED, ends_now=True)
    return DispatchPlan(to_schedule=_room(view, bounds))


def _stop(view: SearchStanding, bounds: Bounds) -> SearchEnd | None:
    if bounds.target is not None and view.best is not None:
        is_reached = view.best >= bounds.target if bounds.maximize else view.best <= bounds.target
        if is_reached:
            return SearchEnd.TARGET
    if bounds.max_cost is not None and view.cost >= bounds.max_cost:
        return SearchEnd.COST
    if bounds.max_seconds is not None and view.active_s >= bounds.max_seconds:
        return SearchEnd.TIME
    if bounds.stall is not None and view.since_better >= bounds.stall:
        return SearchEnd.STALL
    if view.succeeded == 0 and view.failed >= bounds.seed_population:
        return SearchEnd.FAILING
    return None


def _room(view: SearchStanding, bounds: Bounds) -> int:
    room = bounds.max_unfinished - view.unfinished
    if bounds.batch is not None:
        room = min(room, bounds.batch)
    if bounds.max_total is not None:
        room = min(room, bounds.max_total - view.scheduled)
    if bounds.max_cost is not None and view.told and view.cost > 0:
        mean = view.cost / view.told
        # As long as what is in flight is expected to leave something of the budget.
        affordable = int((bounds.max_cost - view.cost) / mean) - view.unfinished
        room = min(room, affordable if affordable > 0 else int(view.unfinished == 0))
    return max(room, 0)
