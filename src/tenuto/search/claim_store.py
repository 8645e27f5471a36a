"""The rows of searches as workers change them: claimed, renewed, finished, given back, recovered.
Each method is one transaction, fenced by the row's attempt: what an older attempt says has no effect.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Connection, Integer, bindparam, select, tuple_, update

from tenuto.database import Database, announce, now_ms
from tenuto.lifecycle.evolution import EvolutionStatus, SearchState
from tenuto.search.moves import WORK, Move, bump, record_moves, wake_search
from tenuto.search.programs import PROGRAM_TASK
from tenuto.search.rows import Claimed, End
from tenuto.search.tables import DISPATCH_ORDER, evolution_jobs, is_status, jobs, searches

S = EvolutionStatus
LOST = "LOST"
SURROUNDINGS = "SURROUNDINGS"
"""The failure of a row whose surroundings failed: no agent, no evaluator, no sandbox."""
DEATHS_AN_ATTEMPT = 10
"""How many deaths of its workers a row survives, for each attempt that it may have."""


class Wish(NamedTuple):
    """What a worker would claim: at most so many rows, for so long, of all searches or of `only` these.

    `agents`: how many rows of searches of programs, which begin with an agent and count apart.
    """

    worker: str
    most: int
    lease_ms: int
    only: Collection[str] | None = None
    agents: int = 0


class ClaimStore:
    """What a worker does to rows."""

    database: Database

    def claim(
        self, worker: str, count: int, lease_ms: int, only: Collection[str] | None = None
    ) -> list[Claimed]:
        """Claims the best QUEUED rows of all running searches, or of `only` these, for one lease."""
        wish = Wish(worker, count, lease_ms, only, count)
        return self.finish_and_claim((), 0, wish)[1]

    def finish(self, ends: Sequence[End], max_attempts: int) -> set[tuple[str, int]]:
        """Writes how rows ended; returns those that still were this attempt's. LOST ones are tried again."""
        return self.finish_and_claim(ends, max_attempts, None)[0]

    def finish_and_claim(
        self, ends: Sequence[End], max_attempts: int, wish: Wish | None
    ) -> tuple[set[tuple[str, int]], list[Claimed]]:
        """`finish`, then `claim`, in one transaction: an agent does both for every candidate."""

        def work(connection: Connection) -> tuple[set[tuple[str, int]], list[Claimed]]:
            moves: list[Move] = []
            taken: set[tuple[str, int]] = set()
            for end in ends:
                row = _finish(connection, end, max_attempts)
                if row is not None:
                    taken.add((end.id, end.attempt))
                    moves.append(Move(row.search_id, row.number, row.attempt, S(row.status), end.message))
            claimed = _claim(connection, wish) if wish is not None else []
            moves += [Move(row.search_id, row.number, row.attempt, S.RUNNING) for row in claimed]
            _moved(connection, moves)
            return taken, claimed

        return self.database.write(work)

    def begin_evaluation(self, key: tuple[str, int], directory: str) -> str | None:
        """Notes which job evaluates a row that its agent is done with.

        Returns the outcome of a row of the same search that the same job evaluated, if there is one.
        """

        def work(connection: Connection) -> str | None:
            row_id, attempt = key
            noted = (
                update(evolution_jobs)
                .where(jobs.id == row_id, is_status(S.RUNNING), jobs.attempt == attempt)
                .values(directory=directory)
                .returning(jobs.search_id)
            )
            search = connection.execute(noted).scalar_one_or_none()
            same = select(jobs.outcome).where(
                jobs.search_id == search, is_status(S.SUCCEEDED), jobs.directory == directory
            )
            found: str | None = connection.execute(same.limit(1)).scalar_one_or_none()
            return found

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
            return _moved(connection, _moves(connection.execute(statement), S.PENDING, "given back"))

        return self.database.write(work)

    def recover(self, max_attempts: int, dead: Collection[str] = ()) -> int:
        """Takes back the rows whose lease is over; lost too often, they failed.

        `dead`: workers of this workspace that are known to be dead. Their jobs go on and are adopted, so that
        costs a row no attempt, and its next claim has the same number: nothing of theirs is to be fenced. A
        row whose workers die ten times as often as it may be tried ends all the same.
        """

        def work(connection: Connection) -> int:
            moves = _take_back(connection, dead, max_attempts * DEATHS_AN_ATTEMPT) if dead else []
            rows = connection.execute(_OVER).all()
            again = [row for row in rows if row.attempt < max_attempts]
            lost = [row for row in rows if row.attempt >= max_attempts]
            message = f"its worker was lost {max_attempts} times"
            for group, values in ((again, _RETURNED), (lost, {**_LOST, "message": message})):
                if group:
                    ids = [row.id for row in group]
                    connection.execute(update(evolution_jobs).where(jobs.id.in_(ids)).values(values))
            moves += _moves(again, S.PENDING, "its worker was lost") + _moves(lost, S.FAILED, LOST)
            return _moved(connection, moves)

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
    select(
        jobs.id,
        jobs.search_id,
        jobs.number,
        jobs.attempt,
        jobs.priority,
        jobs.task_id,
        jobs.job_id,
        jobs.job_attempt,
        jobs.params,
        jobs.scheduled_at,
        jobs.created_at,
    )
    .where(jobs.search_id == bindparam("name"), is_status(S.QUEUED))
    .order_by(*DISPATCH_ORDER)
    .limit(bindparam("most", type_=Integer))
    .with_for_update(skip_locked=True)
)
_IS_OVER = (is_status(S.RUNNING), jobs.lease_until < now_ms())
_OVER = (
    select(jobs.id, jobs.search_id, jobs.number, jobs.attempt)
    .where(*_IS_OVER)
    .with_for_update(skip_locked=True)
)
_ANY_OVER = select(jobs.id).where(*_IS_OVER).limit(1)
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


def has_lost_rows(connection: Connection) -> bool:
    """Whether the lease of a row is over."""
    return connection.execute(_ANY_OVER).first() is not None


def _take_back(connection: Connection, dead: Collection[str], most: int) -> list[Move]:
    """Returns the rows of dead workers; a row that ended as many workers as may be is FAILED."""
    theirs = update(evolution_jobs).where(is_status(S.RUNNING), jobs.worker.in_(dead))
    theirs = theirs.returning(jobs.search_id, jobs.number, jobs.attempt)
    died = jobs.deaths + 1
    back = theirs.where(died < most).values(attempt=jobs.attempt - 1, deaths=died, **_RETURNED)
    given_up = theirs.where(died >= most).values(
        deaths=died, message=f"its worker died {most} times", **_LOST
    )
    returned = _moves(connection.execute(back), S.PENDING, "its worker died")
    return returned + _moves(connection.execute(given_up), S.FAILED, LOST)


def _claim(connection: Connection, wish: Wish) -> list[Claimed]:
    rows, definitions = _best(connection, wish)
    if rows:
        ids = [row.id for row in rows]
        connection.execute(_CLAIM, {"ids": ids, "new_worker": wish.worker, "lease_ms": wish.lease_ms})
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


def _best(connection: Connection, wish: Wish) -> tuple[list[Any], dict[str, dict[str, Any]]]:
    """The best rows that may be claimed, locked, and the definitions of their searches."""
    running = _RUNNING_SEARCHES
    if wish.only is not None:
        running = running.where(searches.c.id.in_(wish.only))
    known = connection.execute(running).all()
    rows: list[Any] = []
    most = max(wish.most, wish.agents)
    for search in known if most > 0 else ():
        # One query for each search: the index begins with the search, and there are few that run.
        rows += connection.execute(_BEST_OF_ONE, {"name": search.id, "most": most}).all()
    rows.sort(key=lambda row: (-row.priority, row.scheduled_at, row.created_at, row.number))
    best = [row for row in rows if row.task_id == PROGRAM_TASK][: max(wish.agents, 0)]
    best += [row for row in rows if row.task_id != PROGRAM_TASK][: max(wish.most, 0)]
    needed = {row.search_id for row in best}
    return best, {one.id: json.loads(one.definition) for one in known if one.id in needed}


def _held(keys: Sequence[tuple[str, int]]) -> Any:
    return tuple_(jobs.id, jobs.attempt).in_(keys)


_ENDED = ("outcome", "objective", "cost", "failure", "message", "job_attempt", "directory", "reused")
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


def _moves(rows: Iterable[Any], status: EvolutionStatus, message: str) -> list[Move]:
    return [Move(row.search_id, row.number, row.attempt, status, message) for row in rows]


def _moved(connection: Connection, moves: Sequence[Move]) -> int:
    """Leaves what every change leaves besides; how many rows moved."""
    record_moves(connection, moves)
    for search in sorted({move.search_id for move in moves}):  # in one order: two transactions never cross
        bump(connection, search)
        wake_search(connection, search)
    if any(move.status is S.PENDING for move in moves):
        announce(connection, WORK)
    return len(moves)
