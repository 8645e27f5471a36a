"""Turns: whose queued jobs of a service are next, read and written inside a claim's transaction.
Moves no job; `requests` does.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from sqlalchemy import BindParameter, Connection, bindparam, func, insert, select, text, update

from tenuto.database import Prepared, now_ms
from tenuto.lifecycle.service import ServiceState
from tenuto.service.decisions import LONGEST_WAIT_S, ActiveJob, QueuedUser, QueueView, Quota, UserQueue
from tenuto.service.rows import JobRow
from tenuto.service.tables import HAS_ENDED, IS_ACTIVE, QUEUED, jobs, turns

LONGEST_WAIT_MS = int(2 * LONGEST_WAIT_S * 1000)
"""No job is told to wait for longer: one that seems to was queued before the clock was set back."""

_USERS = Prepared(
    text(
        """
    WITH RECURSIVE waiting(user_id) AS (
      SELECT min(user_id) FROM jobs WHERE state = 'Queued' AND service = :service
      UNION ALL
      SELECT (SELECT min(user_id) FROM jobs
              WHERE state = 'Queued' AND service = :service AND user_id > waiting.user_id)
      FROM waiting WHERE waiting.user_id IS NOT NULL
    )
    SELECT waiting.user_id, turns.turn,
           CASE WHEN turns.turn IS NULL THEN (
             SELECT min(id) FROM jobs
             WHERE state = 'Queued' AND service = :service AND user_id = waiting.user_id) END
    FROM waiting LEFT JOIN turns ON turns.service = :service AND turns.user_id = waiting.user_id
    WHERE waiting.user_id IS NOT NULL
    """
    )
)
"""The users with queued jobs and their last turns, and the oldest job of each user without a turn: no two
turns are the same. By a loose index scan: its cost grows with the users, not with the jobs.
"""

_OF_SERVICE: BindParameter[str] = bindparam("of_service")
_OF_USER: BindParameter[str] = bindparam("of_user")
_ACTIVE = Prepared(
    select(jobs.c.user_id, func.count())
    .where(IS_ACTIVE, jobs.c.service == _OF_SERVICE)
    .group_by(jobs.c.user_id)
)
_AT_NODES = Prepared(select(jobs.c.node, func.count()).where(IS_ACTIVE).group_by(jobs.c.node))
# Not the first of all rows: where most are queued, SQLite would read the table from its beginning.
_FIRST_QUEUED = Prepared(select(func.min(jobs.c.user_id)).where(QUEUED, jobs.c.service == _OF_SERVICE))
_QUEUED_SERVICES = Prepared(
    text(
        """
    WITH RECURSIVE waiting(service) AS (
      SELECT min(service) FROM jobs WHERE state = 'Queued'
      UNION ALL
      SELECT (SELECT min(service) FROM jobs WHERE state = 'Queued' AND service > waiting.service)
      FROM waiting WHERE waiting.service IS NOT NULL
    )
    SELECT service FROM waiting WHERE service IS NOT NULL
    """
    )
)
"""The services with queued jobs, by a loose index scan."""
_QUEUED_OF = Prepared(
    select(jobs.c.id)
    .where(QUEUED, jobs.c.service == _OF_SERVICE, jobs.c.user_id == _OF_USER)
    .limit(bindparam("most"))
)
_LAST_TURN = Prepared(select(func.max(turns.c.turn)).where(turns.c.service == _OF_SERVICE))
_TURNS = Prepared(select(turns.c.user_id, turns.c.turn).where(turns.c.service == _OF_SERVICE))
_READY = Prepared(
    select(jobs.c.id)
    .where(QUEUED, jobs.c.service == _OF_SERVICE, jobs.c.user_id == _OF_USER)
    .where((jobs.c.ready_at <= now_ms()) | (jobs.c.ready_at > now_ms() + bindparam("longest_ms")))
    .order_by(jobs.c.id)
    .limit(bindparam("most"))
)
_SET_TURN = Prepared(
    update(turns).where(turns.c.service == _OF_SERVICE, turns.c.user_id == _OF_USER).returning(turns.c.turn)
)
_ADD_TURN = Prepared(insert(turns))
_COMPETITORS = Prepared(
    select(jobs.c.user_id, jobs.c.started_at, jobs.c.state).where(IS_ACTIVE, jobs.c.service == _OF_SERVICE)
)
_QUEUED_USERS = Prepared(
    select(jobs.c.user_id, func.count(), func.min(jobs.c.id))
    .where(QUEUED, jobs.c.service == _OF_SERVICE)
    .group_by(jobs.c.user_id)
)
_BEFORE = Prepared(
    select(func.count()).where(
        QUEUED,
        jobs.c.service == _OF_SERVICE,
        jobs.c.user_id == _OF_USER,
        jobs.c.id < bindparam("job"),
    )
)
LATELY = 500
"""Of so many jobs that ended last, of all services, those of one service tell how long its jobs run."""
_LATELY = (
    select(jobs.c.service, jobs.c.state, jobs.c.started_at, jobs.c.ended_at)
    .where(HAS_ENDED)
    .order_by(jobs.c.ended_at.desc())
    .limit(LATELY)
    .subquery()
)
_RUNS = Prepared(
    select(_LATELY.c.ended_at - _LATELY.c.started_at).where(
        _LATELY.c.service == _OF_SERVICE,
        _LATELY.c.state == ServiceState.COMPLETED.value,
        _LATELY.c.started_at.is_not(None),
    )
)
_NOW = Prepared(select(now_ms()))


def competitors(connection: Connection, service: str) -> list[ActiveJob]:
    """The active jobs of a service."""
    return [
        ActiveJob(user, started_at if state == ServiceState.RUNNING.value else None)
        for user, started_at, state in _COMPETITORS.rows(connection, {"of_service": service})
    ]


def line_of(connection: Connection, row: JobRow, known: QueueView | None = None) -> QueueView:
    """The queue of a job's service, as the job sees it; ``known``: as another job of it saw it just now."""
    of_service = {"of_service": row.service}
    if known is None:
        turn_of: dict[str, int] = {row[0]: row[1] for row in _TURNS.rows(connection, of_service)}
        queued = {
            user: QueuedUser(jobs, oldest, turn_of.get(user, 0))
            for user, jobs, oldest in _QUEUED_USERS.rows(connection, of_service)
        }
        runs_ms = [max(run[0], 0) for run in _RUNS.rows(connection, of_service)]
        now = int(_NOW.rows(connection)[0][0])
        known = QueueView(row.user_id, 0, queued, competitors(connection, row.service), runs_ms, now)
    before = _BEFORE.rows(connection, {**of_service, "of_user": row.user_id, "job": row.id})[0][0]
    # One that was claimed just now, or came since: it is in no queue that is known.
    queued = {row.user_id: QueuedUser(1, row.id, 0), **known.queued}
    return known._replace(user=row.user_id, before=before, queued=queued)


def active_jobs(connection: Connection, service: str) -> dict[str, int]:
    """How many jobs of the service are active, by user."""
    return {row[0]: row[1] for row in _ACTIVE.rows(connection, {"of_service": service})}


def is_queued(connection: Connection, service: str) -> bool:
    """True if a job of the service waits in the queue."""
    return _FIRST_QUEUED.rows(connection, {"of_service": service})[0][0] is not None


def jobs_at_nodes(connection: Connection) -> dict[str, int]:
    """How many active jobs each node has, of all services and servers."""
    return {row[0]: row[1] for row in _AT_NODES.rows(connection) if row[0] is not None}


def queued_jobs(connection: Connection, user: str, most: int) -> int:
    """How many jobs of a user wait, of all services; counting ends at ``most``."""
    services = [row[0] for row in _QUEUED_SERVICES.rows(connection)]
    values = {"of_user": user, "most": most}
    return sum(len(_QUEUED_OF.rows(connection, {**values, "of_service": service})) for service in services)


def take_turns(connection: Connection, at: str = "claims") -> None:
    """Lets one transaction at a time do something: claim jobs, since services share nodes, or count a user's.

    SQLite has one writer anyway.
    """
    if connection.dialect.name == "postgresql":
        key = zlib.crc32(f"tenuto service {at}".encode())
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})


def queues_of(
    connection: Connection, service: str, quota: Quota, active: Mapping[str, int], most: int
) -> tuple[int, list[UserQueue]]:
    """The last turn of the service, and the queues of the users who may be next, as far as needed."""
    found = _USERS.rows(connection, {"service": service})
    last_turn = _LAST_TURN.rows(connection, {"of_service": service})[0][0] or 0
    # In the order of `next_jobs`: if few places are free, the queues of the first users are read alone.
    ranked = sorted(
        (active.get(user, 0), turn or 0, oldest or 0, user)
        for user, turn, oldest in found
        if active.get(user, 0) < quota.runs_per_user
    )
    queues: list[UserQueue] = []
    for has, turn, _, user in ranked:
        free = min(most, quota.runs_per_user - has)
        values = {"of_service": service, "of_user": user, "most": free, "longest_ms": LONGEST_WAIT_MS}
        ready = tuple(row[0] for row in _READY.rows(connection, values))
        if ready:
            queues.append(UserQueue(user, has, turn, ready))
        if len(queues) >= most:
            break
    return last_turn, queues


def set_turn(connection: Connection, service: str, user: str, turn: int) -> None:
    """Notes when a user was served last."""
    mine = {"of_service": service, "of_user": user, "turn": turn}
    if not _SET_TURN.rows(connection, mine):
        _ADD_TURN.rows(connection, {"service": service, "user_id": user, "turn": turn})
