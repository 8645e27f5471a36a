"""The rows of a search as they go out: promoted to QUEUED, and returned when they could not be sent.
Each method is one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, func, literal_column, select, update

from tenuto.database import Database, announce, now_ms
from tenuto.lifecycle.evolution import EvolutionStatus
from tenuto.search.moves import WORK, bump, record
from tenuto.search.rows import Sent
from tenuto.search.tables import DISPATCH_ORDER, evolution_jobs, is_due, is_status, jobs

S = EvolutionStatus
_LONGEST_BACKOFF_MS = 60_000


class DispatchStore:
    """What a scheduler does to candidates that wait."""

    database: Database

    def dispatch(self, name: str, limit: int, is_probe: bool = False) -> list[Sent]:
        """Promotes the candidates that are due to QUEUED, the best first; a probe does not wait until due."""
        query = (
            select(jobs.id, jobs.number, jobs.sends, jobs.attempt)
            .where(jobs.search_id == name, is_status(S.PENDING))
            .order_by(*DISPATCH_ORDER)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        if not is_probe:
            query = query.where(is_due(now_ms()))
        return self.database.write(lambda connection: _promote(connection, name, query))

    def forget_backoff(self, name: str) -> None:
        """Lets candidates that could not be sent go out at once: the broker is back."""
        statement = (
            update(evolution_jobs)
            .where(jobs.search_id == name, is_status(S.PENDING), jobs.not_before.is_not(None))
            .values(not_before=None, sends=0)
        )
        self.database.write(lambda connection: connection.execute(statement))

    def promote(self, name: str, ids: Sequence[str]) -> list[Sent]:
        """Promotes these candidates to QUEUED, as far as they are PENDING."""
        return self.database.write(
            lambda connection: _promote(connection, name, _THESE, {"name": name, "ids": ids})
        )

    def send_failed(self, name: str, ids: Sequence[str], backoff_ms: int) -> int:
        """Returns rows whose message could not be sent to PENDING, to be sent later each time."""

        def work(connection: Connection) -> int:
            shift = func.min if connection.dialect.name == "sqlite" else func.least
            wait = shift(backoff_ms * _power_of_two(), _LONGEST_BACKOFF_MS)
            statement = (
                update(evolution_jobs)
                .where(jobs.id.in_(ids), is_status(S.QUEUED))
                .values(
                    status=S.PENDING.value,
                    scheduled_at=jobs.created_at,
                    sends=jobs.sends + 1,
                    not_before=now_ms() + wait,
                )
                .returning(jobs.number, jobs.attempt)
            )
            returned = connection.execute(statement).all()
            record(connection, name, returned, S.PENDING, "could not be sent")
            bump(connection, name)
            return len(returned)

        return self.database.write(work)


# Statements of every candidate are built once: that takes longer than to run them.
_THESE = (
    select(jobs.id, jobs.number, jobs.sends, jobs.attempt)
    .where(
        jobs.search_id == bindparam("name"),
        jobs.id.in_(bindparam("ids", expanding=True)),
        is_status(S.PENDING),
    )
    .order_by(*DISPATCH_ORDER)
    .with_for_update()
)
_QUEUE = (
    update(evolution_jobs)
    .where(jobs.id.in_(bindparam("ids", expanding=True)))
    .values(status=S.QUEUED.value, scheduled_at=now_ms())
)


def _promote(
    connection: Connection, name: str, query: Any, parameters: dict[str, Any] | None = None
) -> list[Sent]:
    rows = connection.execute(query, parameters).all()
    if not rows:
        return []
    connection.execute(_QUEUE, {"ids": [row.id for row in rows]})
    record(connection, name, [(row.number, row.attempt) for row in rows], S.QUEUED)
    bump(connection, name)
    announce(connection, WORK)
    return [Sent(row.id, row.number, row.sends) for row in rows]


def _power_of_two() -> Any:
    """2 to the power of the sends of a row, at most 6: beyond, the longest back-off is reached."""
    capped: Any = literal_column("CASE WHEN evolution_jobs.sends > 6 THEN 6 ELSE evolution_jobs.sends END")
    return literal_column("1").op("<<")(capped)
