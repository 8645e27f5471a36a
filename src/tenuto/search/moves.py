"""What every change of a row leaves besides: a line in `evolution_moves`, a higher counter, a wake-up.
Called inside the transaction of the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

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


class Move(NamedTuple):
    """A change of a row's status, as `evolution_moves` keeps it."""

    search_id: str
    number: int
    attempt: int
    status: EvolutionStatus
    message: str | None = None


def record(
    connection: Connection,
    name: str,
    rows: Iterable[Any],
    status: EvolutionStatus,
    message: str | None = None,
) -> None:
    """Writes one line for each row of a search, given as (number, attempt), by one INSERT."""
    record_moves(connection, [Move(name, number, attempt, status, message) for number, attempt in rows])


def record_moves(connection: Connection, moves: Sequence[Move]) -> None:
    """Writes one line for each move, of any searches, by one INSERT."""
    if moves:
        connection.execute(_LINES, [{**move._asdict(), "status": move.status.value} for move in moves])


def bump(connection: Connection, name: str, **values: Any) -> None:
    """Says that something of the search changed, together with other columns of its row."""
    connection.execute(_BUMP.values(values) if values else _BUMP, {"name": name})


def wake_search(connection: Connection, name: str) -> None:
    """Wakes the schedulers once the transaction is committed."""
    announce(connection, SEARCH)
