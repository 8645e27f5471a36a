"""A search as commands and monitors show it, from its rows alone.
Needs neither the script nor the sampler of the search.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import func, select

from tenuto.database import MemberKind, listed, now_ms
from tenuto.errors import NotFound
from tenuto.lifecycle.evolution import EvolutionStatus
from tenuto.search.archive_panel import told_cells
from tenuto.search.candidate_rows import best_candidate
from tenuto.search.kept_outcomes import OTHER_CODE
from tenuto.search.points import PRUNED
from tenuto.search.rows import SearchRow
from tenuto.search.store import Store
from tenuto.search.tables import evolution_jobs, is_status, jobs


@dataclass(frozen=True, slots=True)
class SearchOverview:
    """Where a search stands."""

    name: str
    state: str
    reason: str | None
    message: str | None
    scheduled: int
    told: int
    unfinished: int
    pending: int
    queued: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    pruned: int
    reused: int
    cost: float
    best: dict[str, Any] | None
    clipped: int
    other_code: int
    cells: int | None
    filled: int | None
    qd_score: float | None
    created: float
    started: float | None
    ended: float | None
    shape: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        """What a group does not say of itself, for programs; the keys are promised."""
        hidden = ("name", "message", "created", "started", "ended", "shape")
        return {key: getattr(self, key) for key in self.__slots__ if key not in hidden}


def overview(store: Store, name: str) -> SearchOverview:
    """Where a search stands; `NotFound` if there is none."""
    row = store.search(name)
    if row is None:
        raise NotFound(f"there is no search {name!r}")
    counts = store.statuses(name)
    reused, pruned, other_code, started = _more(store, name)
    shape, offset = _archive_of(row.definition)
    filled, score = _filled(store, row, offset)
    S = EvolutionStatus
    return SearchOverview(
        row.id,
        row.state.value,
        row.reason.name if row.reason else None,
        row.message,
        row.scheduled,
        row.told,
        counts[S.PENDING] + counts[S.QUEUED] + counts[S.RUNNING],
        counts[S.PENDING],
        counts[S.QUEUED],
        counts[S.RUNNING],
        counts[S.SUCCEEDED],
        counts[S.FAILED],
        counts[S.CANCELLED] - pruned,
        pruned,
        reused,
        row.cost,
        _best(store, row),
        row.clipped,
        other_code,
        math.prod(shape) if shape else None,
        filled if shape else None,
        score if shape else None,
        row.created_at / 1000,
        started,
        None if row.ended_at is None else row.ended_at / 1000,
        shape,
    )


def _more(store: Store, name: str) -> tuple[int, int, int, float | None]:
    query = select(
        func.count().filter(jobs.reused),
        func.count().filter(jobs.failure == PRUNED),
        func.count().filter(jobs.failure == OTHER_CODE),
        func.min(jobs.started_at),
    ).where(jobs.search_id == name)
    reused, pruned, other, started = store.database.read(lambda c: c.execute(query).one())
    return int(reused), int(pruned), int(other), None if started is None else started / 1000


def _archive_of(definition: dict[str, Any]) -> tuple[tuple[int, ...], float]:
    sampler = definition.get("sampler") or {}
    cells = sampler.get("cells")
    shape = () if cells is None else (cells,) if isinstance(cells, int) else tuple(cells)
    return shape, float(sampler.get("offset") or 0.0)


def _filled(store: Store, row: SearchRow, offset: float) -> tuple[int, float]:
    """How many cells are filled, and the sum of their elites' objectives."""
    sign = 1 if row.definition.get("direction", "max") == "max" else -1
    best: dict[int, float] = {}
    for told in told_cells(store.database, row.id, row.definition.get("sampler") or {})[1]:
        best[told.cell] = max(best.get(told.cell, -math.inf), sign * told.objective)
    return len(best), math.fsum(objective - sign * offset for objective in best.values())


def _best(store: Store, row: SearchRow) -> dict[str, Any] | None:
    best = store.database.read(lambda c: best_candidate(c, row))
    if best is None:
        return None
    number, objective = best
    query = select(jobs.proposal, jobs.outcome).where(jobs.search_id == row.id, jobs.number == number)
    found = store.database.read(lambda c: c.execute(query).one())
    outcome = json.loads(found.outcome) if found.outcome else {}
    return {
        "number": number,
        "objective": objective,
        "measures": outcome.get("measures"),
        "values": json.loads(found.proposal)["values"],
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
