"""The archive of a search as a monitor shows it: axes, the elite of each cell, how both grew; plain values.
Reads only, and makes no archive anew: cells and objectives are columns of the candidates.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select

from tenuto.database import Database
from tenuto.jobs.row import row_key
from tenuto.lifecycle.evolution import EvolutionStatus
from tenuto.lifecycle.owner_names import Door
from tenuto.search.archive import Archive
from tenuto.search.tables import evolution_jobs, jobs, searches

MOST_POINTS = 200
"""How many instants the growth of an archive has."""


def archive_panel(database: Database, name: str) -> dict[str, Any] | None:
    """The archive of a search; None if its sampler keeps none."""
    search = database.read(lambda c: c.execute(select(searches).where(searches.c.id == name)).one())
    definition = json.loads(search.definition)
    sampler = definition.get("sampler") or {}
    if not sampler.get("cells") or not sampler.get("ranges"):
        return None
    query = (
        select(jobs.number, jobs.cell, jobs.objective, jobs.completed_at)
        .where(jobs.search_id == name, jobs.status == EvolutionStatus.SUCCEEDED.value, jobs.cell.is_not(None))
        .order_by(jobs.told, jobs.number)
    )
    sign = 1 if definition.get("direction", "max") == "max" else -1
    told = database.read(lambda c: c.execute(query).all())
    elites, growth = _elites(told, sign)
    axes = _axes(sampler)
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
        "in_flight": _in_flight(database, name, position),
        "total": math.prod(axis["cells"] for axis in axes),
        "direction": "max" if sign > 0 else "min",
        "offset": float(sampler.get("offset") or 0.0),
        "history": growth,
    }


def _elites(told: Sequence[Any], sign: int) -> tuple[list[Any], list[list[Any]]]:
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


def _in_flight(database: Database, name: str, position: Callable[[int], Sequence[int]]) -> list[list[Any]]:
    """Candidates that are being evaluated, each in the cell of its parent: no other is known."""
    parents = evolution_jobs.alias("parents")
    query = (
        select(jobs.number, parents.c.cell)
        .join(parents, (parents.c.search_id == jobs.search_id) & (parents.c.number == jobs.parent))
        .where(
            jobs.search_id == name,
            jobs.status == EvolutionStatus.RUNNING.value,
            parents.c.cell.is_not(None),
        )
        .order_by(jobs.number)
    )
    found = database.read(lambda c: c.execute(query).all())
    return [[*position(row.cell), row_key(Door.SEARCH, name, str(row.number))] for row in found]


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
