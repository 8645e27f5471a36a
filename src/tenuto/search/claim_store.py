"""The rows of searches as workers change them: claimed, renewed, finished, given back, recovered.
Each method is one transaction, fenced by the row's attempt: what an older attempt says has no effect.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import BigInteger, Connection, Integer, bindparam, select, tuple_, update

from tenuto.database import Database, announce, now_ms
from tenuto.lifecycle.evolution import EvolutionStatus, SearchState
from tenuto.search.moves import WORK, bump, record, wake_search
from tenuto.search.rows import Claimed, End
from tenuto.search.tables import DISPATCH_ORDER, evolution_jobs, is_status, jobs, searches

S = EvolutionStatus
LOST = "LOST"
DEATHS_AN_ATTEMPT = 10
"""How many deaths of its workers a row survives, for each attempt that it may have."""


class ClaimStore:
    """What a worker does to rows."""

    database: Database

    def claim(
        self, worker: str, count: int, lease_ms: int, only: Collection[str] | None = None
    ) -> list[Claimed]:
        """Claims the best QUEUED rows of all running searches, or of `only` these, for one lease."""

        def work(connection: Connection) -> list[Claimed]:
            rows, definitions = _best(connection, count, only)
            if not rows:
                return []
            connection.execute(
                _CLAIM, {"ids": [row.id for row in rows], "new_worker": worker, "lease_ms": lease_ms}
            )
            _moved(connection, [(row.search_id, row.number, row.attempt + 1) for row in rows], S.RUNNING)
            return [
                Claimed(
                    row.id,
                    row.search_id,
                    row.number,
                    row.attempt + 1,
                    row.priority,
                    row.task_id,
                    row.job_id,
                    row.job_attempt,
                    row.params,
                    definitions[row.search_id],
                )
                for row in rows
            ]

        return self.database.write(work)

    def renew(self, worker: str, held: Iterable[tuple[str, int]], lease_ms: int) -> set[tuple[str, int]]:
        """Prolongs the leases of the rows that a worker holds; returns those that are still its own."""
        keys = list(held)
        if not keys:
            return set()
        statement = (
            update(evolution_jobs)
            .where(is_status(S.RUNNING), jobs.worker == worker, _held(keys))
            .values(lease_until=now_ms() + lease_ms)
            .returning(jobs.id, jobs.attempt)
        )
        return self.database.write(
            lambda connection: {(row.id, row.attempt) for row in connection.execute(statement)}
        )

    def own(self, worker: str) -> set[tuple[str, int]]:
        """The rows that a worker holds, as the database has them."""
        query = select(jobs.id, jobs.attempt).where(is_status(S.RUNNING), jobs.worker == worker)
        return self.database.read(
            lambda connection: {(row.id, row.attempt) for row in connection.execute(query)}
        )

    def finish(self, ends: Sequence[End], max_attempts: int) -> set[tuple[str, int]]:
        """Writes how rows ended; returns those that still were this attempt's. LOST ones are tried again."""

        def work(connection: Connection) -> set[tuple[str, int]]:
            taken: set[tuple[str, int]] = set()
            moves: dict[tuple[S, str | None], list[tuple[str, int, int]]] = {}
            for end in ends:
                row = _finish(connection, end, max_attempts)
                if row is not None:
                    taken.add((end.id, end.attempt))
                    key = (S(row.status), end.message)
                    moves.setdefault(key, []).append((row.search_id, row.number, row.attempt))
            for (status, message), rows in moves.items():
                _moved(connection, rows, status, message)
            return taken

        return self.database.write(work)

    def give_back(self, held: Iterable[tuple[str, int]]) -> int:
        """Returns rows whose payloads were stopped to PENDING; that costs them no attempt."""
        keys = list(held)
        if not keys:
            return 0

        def work(connection: Connection) -> int:
            statement = (
                update(evolution_jobs)
                .where(is_status(S.RUNNING), _held(keys))
                .values(attempt=jobs.attempt - 1, **_RETURNED)
                .returning(jobs.search_id, jobs.number, jobs.attempt)
            )
            rows = [tuple(row) for row in connection.execute(statement)]
            _moved(connection, rows, S.PENDING, "given back")
            return len(rows)

        return self.database.write(work)

    def recover(self, max_attempts: int, dead: Collection[str] = ()) -> int:
        """Takes back the rows whose lease is over; lost too often, they failed.

        `dead`: workers of this workspace that are known to be dead. Their jobs go on and are adopted, so that
        costs a row no attempt, and its next claim has the same number: nothing of theirs is to be fenced. A
        row whose workers die ten times as often as it may be tried ends all the same.
        """

        def work(connection: Connection) -> int:
            back = _take_back(connection, dead, max_attempts * DEATHS_AN_ATTEMPT) if dead else 0
            query = (
                select(jobs.id, jobs.search_id, jobs.number, jobs.attempt)
                .where(is_status(S.RUNNING), jobs.lease_until < now_ms())
                .with_for_update(skip_locked=True)
            )
            rows = connection.execute(query).all()
            again = [row for row in rows if row.attempt < max_attempts]
            lost = [row for row in rows if row.attempt >= max_attempts]
            if again:
                ids = [row.id for row in again]
                connection.execute(update(evolution_jobs).where(jobs.id.in_(ids)).values(_RETURNED))
                numbers = [(row.search_id, row.number, row.attempt) for row in again]
                _moved(connection, numbers, S.PENDING, "its worker was lost")
            if lost:
                ids = [row.id for row in lost]
                values = {**_LOST, "message": f"its worker was lost {max_attempts} times"}
                connection.execute(update(evolution_jobs).where(jobs.id.in_(ids)).values(values))
                numbers = [(row.search_id, row.number, row.attempt) for row in lost]
                _moved(connection, numbers, S.FAILED, LOST)
            return len(rows) + back

        return self.database.write(work)


# Statements of every candidate are built once: that takes longer than to run them.
_CLAIM = (
    update(evolution_jobs)
    .where(jobs.id.in_(bindparam("ids", expanding=True)))
    .values(
        status=S.RUNNING.value,
        attempt=jobs.attempt + 1,
        worker=bindparam("new_worker"),
        started_at=now_ms(),
        not_before=None,
        lease_until=now_ms() + bindparam("lease_ms", type_=BigInteger),
    )
)
_RUNNING_SEARCHES = select(searches.c.id, searches.c.definition).where(
    searches.c.state == SearchState.RUNNING.value
)
_BEST_OF_ONE = (
    select(evolution_jobs)
    .where(jobs.search_id == bindparam("name"), is_status(S.QUEUED))
    .order_by(*DISPATCH_ORDER)
    .limit(bindparam("most", type_=Integer))
    .with_for_update(skip_locked=True)
)
_RETURNED: dict[str, Any] = {
    "status": S.PENDING.value,
    "scheduled_at": jobs.created_at,
    "worker": None,
    "lease_until": None,
    "started_at": None,
}
_LOST: dict[str, Any] = {
    "status": S.FAILED.value,
    "failure": LOST,
    "completed_at": now_ms(),
    "lease_until": None,
    "cost": 0.0,
}


def _take_back(connection: Connection, dead: Collection[str], most: int) -> int:
    """Returns the rows of dead workers; a row that ended as many workers as may be is FAILED."""
    theirs = update(evolution_jobs).where(is_status(S.RUNNING), jobs.worker.in_(dead))
    theirs = theirs.returning(jobs.search_id, jobs.number, jobs.attempt)
    died = jobs.deaths + 1
    back = theirs.where(died < most).values(attempt=jobs.attempt - 1, deaths=died, **_RETURNED)
    returned = [tuple(row) for row in connection.execute(back)]
    _moved(connection, returned, S.PENDING, "its worker died")
    given_up = theirs.where(died >= most).values(
        deaths=died, message=f"its worker died {most} times", **_LOST
    )
    lost = [tuple(row) for row in connection.execute(given_up)]
    _moved(connection, lost, S.FAILED, LOST)
    return len(returned) + len(lost)


def _best(
    connection: Connection, count: int, only: Collection[str] | None
) -> tuple[list[Any], dict[str, dict[str, Any]]]:
    """The best rows that may be claimed, locked, and the definitions of their searches."""
    running = _RUNNING_SEARCHES
    if only is not None:
        running = running.where(searches.c.id.in_(only))
    known = connection.execute(running).all()
    rows: list[Any] = []
    for search in known:
        # One query for each search: the index begins with the search, and there are few that run.
        rows += connection.execute(_BEST_OF_ONE, {"name": search.id, "most": count}).all()
    rows.sort(key=lambda row: (-row.priority, row.scheduled_at, row.created_at, row.number))
    best = rows[:count]
    needed = {row.search_id for row in best}
    return best, {one.id: json.loads(one.definition) for one in known if one.id in needed}


def _held(keys: Sequence[tuple[str, int]]) -> Any:
    return tuple_(jobs.id, jobs.attempt).in_(keys)


_ENDED = ("outcome", "objective", "cost", "failure", "message", "job_attempt", "directory")
_OF_THIS_ATTEMPT = (
    update(evolution_jobs)
    .where(jobs.id == bindparam("the_id"), is_status(S.RUNNING), jobs.attempt == bindparam("the_attempt"))
    .returning(jobs.search_id, jobs.number, jobs.attempt, jobs.status)
)
_AGAIN = _OF_THIS_ATTEMPT.values({**_RETURNED, "job_attempt": bindparam("new_job_attempt")})
_FINISH = _OF_THIS_ATTEMPT.values(
    {key: bindparam(f"new_{key}", type_=jobs[key].type) for key in ("status", *_ENDED)}
    | {"completed_at": now_ms(), "lease_until": None}
)


def _finish(connection: Connection, end: End, max_attempts: int) -> Any:
    """Ends a row, or returns it if it was lost; the row, or None if it is not this attempt's any more."""
    fence = {"the_id": end.id, "the_attempt": end.attempt}
    if end.failure == LOST and end.status is S.FAILED and end.attempt < max_attempts:
        again = {**fence, "new_job_attempt": end.job_attempt}
        return connection.execute(_AGAIN, again).one_or_none()
    values = {f"new_{key}": getattr(end, key) for key in _ENDED}
    return connection.execute(_FINISH, {**fence, "new_status": end.status.value, **values}).one_or_none()


def _moved(
    connection: Connection,
    rows: Iterable[Any],
    status: EvolutionStatus,
    message: str | None = None,
) -> None:
    by_search: dict[str, list[tuple[int, int]]] = {}
    for search, number, attempt in rows:
        by_search.setdefault(search, []).append((number, attempt))
    for search, moved in sorted(
        by_search.items()
    ):  # in one order, so that two transactions cannot wait crosswise
        record(connection, search, moved, status, message)
        bump(connection, search)
        wake_search(connection, search)
        if status is S.PENDING:
            announce(connection, WORK)
