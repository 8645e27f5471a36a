"""What every change of a row leaves besides: a line in `evolution_moves`, a higher counter, a wake-up.
Called inside the transaction of the change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, bindparam, insert, update

from tenuto.database import announce, now_ms
from tenuto.lifecycle.evolution import EvolutionStatus
from tenuto.search.tables import evolution_moves, searches

WORK = "tenuto_work"
"""The channel that tells workers that there may be something to claim."""

SEARCH = "tenuto_search"
"""The channel that tells schedulers that a candidate ended, or a search was steered."""


# Built once: SQLAlchemy takes longer to build a statement than SQLite to run it.
_LINES = insert(evolution_moves).values(at=now_ms())
_BUMP = update(searches).where(searches.c.id == bindparam("name")).values(changed=searches.c.changed + 1)


def record(
    connection: Connection,
    name: str,
    rows: Iterable[Any],
    status: EvolutionStatus,
    message: str | None = None,
) -> None:
    """Writes one line for each row, given as (number, attempt), by one INSERT."""
    lines = [
        {"search_id": name, "number": number, "status": status.value, "attempt": attempt, "message": message}
        for number, attempt in rows
    ]
    if lines:
        connection.execute(_LINES, lines)


def bump(connection: Connection, name: str, **values: Any) -> None:
    """Says that something of the search changed, together with other columns of its row."""
    connection.execute(_BUMP.values(values) if values else _BUMP, {"name": name})


def wake_search(connection: Connection, name: str) -> None:
    """Wakes the schedulers once the transaction is committed."""
    announce(connection, SEARCH)
