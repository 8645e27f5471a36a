"""What running candidates logged, as rows: written by workers while a pruner is set, read by schedulers.
Decides nothing: `pruning` does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select, text, update

from tenuto.database import Database, now_ms
from tenuto.lifecycle.evolution import EvolutionStatus
from tenuto.search.candidate_rows import bump, move_rows, wake_search
from tenuto.search.pruning import Curve, Other, Pruner, counted
from tenuto.search.rows import Claimed
from tenuto.search.tables import evolution_jobs, evolution_points, is_status, jobs

S = EvolutionStatus
PRUNED = "PRUNED"
"""The failure of a row that a pruner stopped; its status is CANCELLED."""
Points = Sequence[tuple[int, float]]
"""Steps and values."""

_ADD = text(
    "INSERT INTO evolution_points (search_id, number, attempt, step, value) "
    "VALUES (:search_id, :number, :attempt, :step, :value) ON CONFLICT DO NOTHING"
)
_LARGEST = 1 << 63


class PointStore:
    """What workers and schedulers do to the points of candidates."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_points(self, row: Claimed, points: Points, maximize: bool, *, has_ended: bool = False) -> bool:
        """Adds what a candidate logged; False if the row is no longer that attempt's: it is to be stopped.

        `has_ended`: its end is about to be written, so no scheduler is woken to judge it.
        """
        lines = [
            {
                "search_id": row.search_id,
                "number": row.number,
                "attempt": row.attempt,
                "step": step,
                "value": (-math.inf if maximize else math.inf) if math.isnan(value) else value,
            }
            for step, value in points
            if -_LARGEST <= step < _LARGEST
        ]
        own = select(jobs.id).where(jobs.id == row.id, is_status(S.RUNNING), jobs.attempt == row.attempt)

        def work(connection: Connection) -> bool:
            is_own = connection.execute(own).one_or_none() is not None
            if is_own and lines:
                connection.execute(_ADD, lines)
                if not has_ended:
                    bump(connection, row.search_id)
                    wake_search(connection, row.search_id)
            return is_own

        return self._database.write(work) if lines else self._database.read(work)

    def curves(
        self, name: str, after_told: int, maximize: bool
    ) -> tuple[dict[int, Curve], dict[int, Other], int]:
        """The curves of the candidates that run, of those told since, and the last told of these."""
        c = evolution_points.c
        query = (
            select(c.number, c.step, c.value, jobs.status, jobs.told)
            .join(
                evolution_jobs,
                (jobs.search_id == c.search_id) & (jobs.number == c.number) & (jobs.attempt == c.attempt),
            )
            .where(c.search_id == name, is_status(S.RUNNING) | (jobs.told > after_told))
            .order_by(c.number, c.step)
        )
        running: dict[int, dict[int, float]] = {}
        told: dict[int, dict[int, float]] = {}
        succeeded: set[int] = set()
        last = after_told
        for row in self._database.read(lambda connection: connection.execute(query).all()):
            curves = running if row.status == S.RUNNING.value else told
            curves.setdefault(row.number, {})[row.step] = counted(row.value, maximize)
            if row.status == S.SUCCEEDED.value:
                succeeded.add(row.number)
            last = max(last, row.told or 0)
        return dict(running), {n: Other(curve, n in succeeded) for n, curve in told.items()}, last

    def prune(self, name: str, number: int, step: int, value: float, message: str) -> bool:
        """Stops a candidate that runs, with its last value; its worker ends the payload."""
        outcome: dict[str, Any] = {"objective": value if math.isfinite(value) else None, "pruned": step}
        statement = (
            update(evolution_jobs)
            .where(jobs.search_id == name, jobs.number == number, is_status(S.RUNNING))
            .values(
                status=S.CANCELLED.value,
                failure=PRUNED,
                message=message,
                outcome=json.dumps(outcome),
                completed_at=now_ms(),
                lease_until=None,
                cost=0.0,
            )
            .returning(jobs.number, jobs.attempt)
        )
        return bool(self._database.write(lambda c: move_rows(c, name, statement, S.CANCELLED, message)))


class Pruning:
    """Prunes the candidates of one search, for its scheduler."""

    def __init__(self, database: Database, name: str, pruner: Pruner, maximize: bool) -> None:
        self._store = PointStore(database)
        self._name = name
        self._pruner = pruner
        self._maximize = maximize
        self._ended: dict[int, Other] = {}
        self._told = 0
        self._judged: dict[int, int] = {}
        """Candidate -> the last step of its that was judged."""

    def prune(self) -> int:
        """Judges each new step of running candidates; how many candidates were stopped."""
        running, told, self._told = self._store.curves(self._name, self._told, self._maximize)
        self._ended |= told
        count = 0
        for number, curve in running.items():
            others = [other for at, other in self._ended.items() if at != number]
            others += [Other(one, False) for at, one in running.items() if at != number]
            for step in [step for step in curve if step > self._judged.get(number, -_LARGEST)]:
                self._judged[number] = step
                why = self._pruner.verdict({at: curve[at] for at in curve if at <= step}, step, others)
                if why is not None:
                    value = curve[step] if self._maximize else -curve[step]
                    message = f"pruned at step {step}, with {value:.6g}: {why}"
                    count += self._store.prune(self._name, number, step, value, message)
                    break
        return count
