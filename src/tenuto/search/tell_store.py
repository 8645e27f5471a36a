"""The log of a search: what a replica reads of it, and outcomes that are told.
Each method is one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, Double, Integer, bindparam, select, update

from tenuto.database import Database, now_ms
from tenuto.lifecycle.evolution import EvolutionStatus
from tenuto.search.kept_outcomes import Judgement
from tenuto.search.moves import bump, record, wake_search
from tenuto.search.rows import LogRow, Told
from tenuto.search.search_store import locked
from tenuto.search.tables import TO_TELL, UNFINISHED, evolution_jobs, jobs, searches

S = EvolutionStatus


class TellStore:
    """What a scheduler does to candidates that ended."""

    database: Database

    def read_log(
        self, name: str, after_number: int, after_told: int
    ) -> tuple[int, list[LogRow], list[LogRow]]:
        """What a replica has not seen: the counter `told`, rows by number, and tells in their order."""

        def work(connection: Connection) -> tuple[int, list[LogRow], list[LogRow]]:
            told = connection.execute(select(searches.c.told).where(searches.c.id == name)).scalar_one()
            query = select(*_LOG_COLUMNS).where(jobs.search_id == name)
            new = query.where(jobs.number > after_number).order_by(jobs.number)
            rows = [_log_row(row) for row in connection.execute(new)]
            seen = query.where(jobs.told > after_told, jobs.number <= after_number)
            tells = [_log_row(row) for row in connection.execute(seen)] if after_number else []
            tells += [row for row in rows if row.told is not None and row.told > after_told]
            tells.sort(key=_when_told)
            return told, rows, tells

        return self.database.read(work)

    def finish_by_hand(self, name: str, number: int, found: Judgement) -> bool:
        """Ends a candidate that no job evaluates; False if it is not unfinished."""
        kept = found._asdict() | {"status": found.status.value, "completed_at": now_ms()}
        statement = (
            update(evolution_jobs)
            .where(jobs.search_id == name, jobs.number == number, UNFINISHED)
            .values(kept)
            .returning(jobs.number, jobs.attempt)
        )

        def work(connection: Connection) -> bool:
            rows = connection.execute(statement).all()
            if rows:
                record(connection, name, rows, found.status, found.message)
                bump(connection, name)
                wake_search(connection, name)
            return bool(rows)

        return self.database.write(work)

    def verdict(self, name: str, number: int) -> str | None:
        """What the archive said of a candidate; None if it was not told."""
        query = select(jobs.verdict).where(jobs.search_id == name, jobs.number == number)
        return self.database.read(lambda connection: connection.execute(query).scalar_one_or_none())

    def proposal(self, name: str, number: int) -> Any:
        """The values of a candidate."""
        query = select(jobs.proposal).where(jobs.search_id == name, jobs.number == number)
        return json.loads(self.database.read(lambda c: c.execute(query).scalar_one()))["values"]

    def to_tell(self, name: str, limit: int, number: int | None = None) -> list[LogRow]:
        """Candidates that ended and were not told, the first that ended first; or the one of that number."""
        query = _TO_TELL if number is None else _TO_TELL.where(jobs.number == number)
        given = {"name": name, "most": limit}
        return self.database.read(
            lambda connection: [_log_row(row) for row in connection.execute(query, given)]
        )

    def tell(self, name: str, told: int, tell: Callable[[], Sequence[Told]], maximize: bool) -> int | None:
        """Tells candidates, if the counter still is `told`; None if it is not.

        `tell()` is called while the search's row is locked and gives the rows in their order; it is called
        again if the transaction is repeated, and must give the same.
        """

        def work(connection: Connection) -> int | None:
            here = locked(connection, name)
            if here.told != told:
                return None
            rows = tell()
            _tell(connection, name, here, rows, maximize)
            return len(rows)

        return self.database.write(work)


_LOG_COLUMNS = (
    jobs.number,
    jobs.status,
    jobs.proposal,
    jobs.island,
    jobs.parent,
    jobs.outcome,
    jobs.told,
    jobs.completed_at,
    jobs.id,
    jobs.cost,
    jobs.task_id,
    jobs.job_id,
    jobs.reused,
    jobs.objective,
    jobs.message,
    jobs.failure,
)


_STATUSES = {status.value: status for status in EvolutionStatus}


def _log_row(row: Any) -> LogRow:
    """A row as samplers and tells see it: only one that SUCCEEDED has an objective."""
    number, status, *others = row
    read = LogRow(number, _STATUSES[status], *others)
    return read if read.status is S.SUCCEEDED or read.objective is None else read._replace(objective=None)


def _when_told(row: LogRow) -> int:
    return row.told or 0


# Statements of every candidate are built once: that takes longer than to run them.
_TO_TELL = (
    select(*_LOG_COLUMNS)
    .where(jobs.search_id == bindparam("name"), TO_TELL)
    .order_by(jobs.completed_at, jobs.number)
    .limit(bindparam("most", type_=Integer))
)
_TELL = (
    update(evolution_jobs)
    .where(jobs.id == bindparam("the_id"))
    .values(
        told=bindparam("new_told"),
        verdict=bindparam("new_verdict"),
        cell=bindparam("new_cell", type_=Integer),
    )
)


_TOLD = (
    update(searches)
    .where(searches.c.id == bindparam("name"))
    .values(
        told=bindparam("new_told"),
        changed=searches.c.changed + 1,
        cost=searches.c.cost + bindparam("more", type_=Double),
        clipped=searches.c.clipped + bindparam("outside", type_=Integer),
        best_objective=bindparam("best", type_=Double),
        best_number=bindparam("number", type_=Integer),
    )
)


def _tell(connection: Connection, name: str, here: Any, rows: Sequence[Told], maximize: bool) -> None:
    best, best_number = here.best_objective, here.best_number
    cost = 0.0
    lines = [
        {"the_id": row.id, "new_told": at, "new_verdict": row.verdict, "new_cell": row.cell}
        for at, row in enumerate(rows, here.told + 1)
    ]
    if lines:
        connection.execute(_TELL, lines)
    for row in rows:
        if row.message is not None:
            failed = {
                "status": S.FAILED.value,
                "objective": None,
                "failure": "FAILED",
                "message": row.message,
            }
            connection.execute(update(evolution_jobs).where(jobs.id == row.id).values(failed))
        cost += row.cost
        if row.objective is not None and row.message is None:
            is_better = best is None or (row.objective > best if maximize else row.objective < best)
            if is_better:
                best, best_number = row.objective, row.number
    told = {"new_told": here.told + len(rows), "more": cost, "best": best, "number": best_number}
    outside = sum(row.is_clipped for row in rows)
    connection.execute(_TOLD, {"name": name, "outside": outside, **told})
    wake_search(connection, name)
