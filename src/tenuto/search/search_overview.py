"""A search as commands and monitors show it, from its rows alone: where it stands, and its archive.
Needs neither the script nor the sampler of the search, and makes no archive anew.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import func, select

from tenuto.database import Database, MemberKind, listed, now_ms
from tenuto.errors import NotFound
from tenuto.jobs.row import row_key
from tenuto.lifecycle.evolution import EvolutionStatus
from tenuto.lifecycle.owner_names import Door
from tenuto.search.archive import AUTO, Archive, scaled_ranges
from tenuto.search.candidate_rows import best_candidate
from tenuto.search.export import kept_outcome
from tenuto.search.kept_outcomes import OTHER_CODE
from tenuto.search.points import PRUNED
from tenuto.search.rows import SearchRow
from tenuto.search.store import Store
from tenuto.search.tables import evolution_jobs, is_status, jobs, searches

MOST_POINTS = 200
"""How many instants the growth of an archive has."""


def archive_panel(database: Database, name: str) -> dict[str, Any] | None:
    """The archive of a search; None if its sampler keeps none."""
    search = database.read(lambda c: c.execute(select(searches).where(searches.c.id == name)).one())
    definition = json.loads(search.definition)
    sampler = definition.get("sampler") or {}
    if not sampler.get("cells") or not sampler.get("ranges"):
        return None
    sign = 1 if definition.get("direction", "max") == "max" else -1
    sampler, told = told_cells(database, name, sampler)
    elites, growth = _elites(told, sign)
    axes = _axes(sampler)
    cells = {row.number: row.cell for row in told}
    position = _position(sampler)
    return {
        "group": f"{Door.SEARCH.value}:{name}",
        "axes": axes,
        "elites": [
            [
                *position(row.cell),
                row.objective,
                row_key(Door.SEARCH, name, str(row.number)),
                _iso(row.completed_at),
            ]
            for row in elites
        ],
        "in_flight": _in_flight(database, name, position, cells),
        "total": math.prod(axis["cells"] for axis in axes),
        "direction": "max" if sign > 0 else "min",
        "offset": float(sampler.get("offset") or 0.0),
        "history": growth,
    }


class ToldCell(NamedTuple):
    """A candidate that succeeded, and the cell that it lies in as the archive is divided now."""

    number: int
    cell: int
    objective: float
    completed_at: int


def told_cells(
    database: Database, name: str, sampler: Mapping[str, Any]
) -> tuple[Mapping[str, Any], list[ToldCell]]:
    """The sampler's definition with the ranges of now, and its candidates in the order of their telling.

    Where the ranges follow the outcomes, rows have the cells of the moment at which they were told.
    """
    is_scaled = sampler.get("ranges") == AUTO
    query = (
        select(
            jobs.number, jobs.cell, jobs.objective, jobs.completed_at, *([jobs.outcome] if is_scaled else [])
        )
        .where(jobs.search_id == name, jobs.status == EvolutionStatus.SUCCEEDED.value, jobs.cell.is_not(None))
        .order_by(jobs.told, jobs.number)
    )
    rows = database.read(lambda c: c.execute(query).all())
    if not is_scaled:
        return sampler, [ToldCell(*row) for row in rows]
    points = [json.loads(row.outcome)["measures"] for row in rows]
    cells = sampler["cells"]
    count = len(sampler.get("measures") or ()) if isinstance(cells, int) else len(cells)
    ranges = scaled_ranges(points, count)
    archive = Archive(cells, ranges, epsilon=sampler.get("epsilon", 1e-6))
    found = [
        ToldCell(row.number, archive.index(point), row.objective, row.completed_at)
        for row, point in zip(rows, points, strict=True)
    ]
    return {**sampler, "ranges": [list(pair) for pair in ranges]}, found


def _elites(told: Sequence[ToldCell], sign: int) -> tuple[list[Any], list[list[Any]]]:
    """Every elite in the order in which it took its cell, and (instant, cells filled, best) as they grew."""
    elites: dict[int, Any] = {}
    ever: list[Any] = []
    best: float | None = None
    growth: list[list[Any]] = []
    for row in told:
        before = elites.get(row.cell)
        if before is None or sign * row.objective > sign * before.objective:
            elites[row.cell] = row
            ever.append(row)
            best = row.objective if best is None else sign * max(sign * best, sign * row.objective)
            growth.append([_iso(row.completed_at), len(elites), best])
    step = max(math.ceil(len(growth) / MOST_POINTS), 1)
    return ever, growth[:-1:step] + growth[-1:]


def _in_flight(
    database: Database, name: str, position: Callable[[int], Sequence[int]], cells: Mapping[int, int]
) -> list[list[Any]]:
    """Candidates that are being evaluated, each in the cell of its parent: no other is known."""
    query = (
        select(jobs.number, jobs.parent)
        .where(jobs.search_id == name, jobs.status == EvolutionStatus.RUNNING.value)
        .order_by(jobs.number)
    )
    found = database.read(lambda c: c.execute(query).all())
    return [
        [*position(cells[row.parent]), row_key(Door.SEARCH, name, str(row.number))]
        for row in found
        if row.parent in cells
    ]


def _axes(sampler: Mapping[str, Any]) -> list[dict[str, Any]]:
    cells, ranges = sampler["cells"], sampler["ranges"]
    if isinstance(cells, int):  # Voronoi cells lie along no measure
        return [{"name": "cell", "low": 0, "high": cells, "cells": cells}]
    names = [*(sampler.get("measures") or ()), *(f"measure {number}" for number in range(len(ranges)))]
    return [
        {"name": name, "low": low, "high": high, "cells": count}
        for name, (low, high), count in zip(names, ranges, cells, strict=False)
    ]


def _position(sampler: Mapping[str, Any]) -> Callable[[int], Sequence[int]]:
    if isinstance(sampler["cells"], int):
        return lambda cell: (cell,)
    return Archive(sampler["cells"], sampler["ranges"]).position


def _iso(ms: int | None) -> str | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat()


def overview(store: Store, name: str) -> dict[str, Any]:
    """Where a search stands, beside what a group says of itself; the keys are promised.

    `NotFound` if there is no such search.
    """
    row = store.search(name)
    if row is None:
        raise NotFound(f"there is no search {name!r}")
    query = select(
        func.count().filter(jobs.reused),
        func.count().filter(jobs.failure == PRUNED),
        func.count().filter(jobs.failure == OTHER_CODE),
    ).where(jobs.search_id == name)
    reused, pruned, other_code = store.database.read(lambda c: c.execute(query).one())
    counts = {status.name.lower(): count for status, count in store.statuses(name).items()}
    shape = shape_of(row)
    filled, score = _filled(store, row) if shape else (None, None)
    return {
        "state": row.state.value,
        "reason": row.reason.name if row.reason else None,
        "scheduled": row.scheduled,
        "told": row.told,
        "unfinished": counts["pending"] + counts["queued"] + counts["running"],
        **counts,
        "cancelled": counts["cancelled"] - pruned,
        "pruned": pruned,
        "reused": reused,
        "cost": row.cost,
        "best": _best(store, row),
        "clipped": row.clipped,
        "other_code": other_code,
        "cells": math.prod(shape) if shape else None,
        "filled": filled,
        "qd_score": score,
    }


def shape_of(search: SearchRow) -> tuple[int, ...]:
    """How many cells lie along each measure of a search's archive; empty if it has none."""
    cells = (search.definition.get("sampler") or {}).get("cells")
    return () if cells is None else (cells,) if isinstance(cells, int) else tuple(cells)


def _filled(store: Store, row: SearchRow) -> tuple[int, float]:
    """How many cells are filled, and the sum of their elites' objectives."""
    sign = 1 if row.definition.get("direction", "max") == "max" else -1
    sampler = row.definition.get("sampler") or {}
    offset = float(sampler.get("offset") or 0.0)
    best: dict[int, float] = {}
    for told in told_cells(store.database, row.id, sampler)[1]:
        best[told.cell] = max(best.get(told.cell, -math.inf), sign * told.objective)
    return len(best), math.fsum(objective - sign * offset for objective in best.values())


def _best(store: Store, row: SearchRow) -> dict[str, Any] | None:
    best = store.database.read(lambda c: best_candidate(c, row))
    if best is None:
        return None
    number, objective = best
    return {
        "number": number,
        "objective": objective,
        "measures": kept_outcome(store, row.id, number).get("measures"),
        "values": store.proposal(row.id, number),
    }


def workers(store: Store) -> list[dict[str, Any]]:
    """The workers of the database, and how long ago each was seen."""
    found = store.database.read(partial(listed, kind=MemberKind.WORKER))
    now = store.database.read(lambda c: c.execute(select(now_ms())).scalar_one())
    query = (
        select(jobs.worker, func.count())
        .select_from(evolution_jobs)
        .where(is_status(EvolutionStatus.RUNNING))
        .group_by(jobs.worker)
    )
    running = {row[0]: row[1] for row in store.database.read(lambda c: c.execute(query).all())}
    return [
        {
            "name": one.id,
            "host": one.host,
            "workspace": one.workspace,
            "slots": one.slots,
            "running": running.get(one.id, 0),
            "started": one.started_at / 1000,
            "seen_s": (now - one.seen_at) / 1000,
        }
        for one in found
    ]
