"""Turns: whose queued jobs of a service are next, read and written inside a claim's transaction.
Moves no job; `requests` does.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping

from sqlalchemy import BindParameter, Connection, bindparam, exists, func, select, text, tuple_, update

from tenuto.database import Prepared, now_ms
from tenuto.lifecycle.service import ServiceState
from tenuto.service.decisions import LONGEST_WAIT_S, ActiveJob, QueuedUser, QueueView, Quota, UserQueue
from tenuto.service.rows import JobRow
from tenuto.service.tables import HAS_ENDED, IS_ACTIVE, IS_NOTED, QUEUED, jobs, turns

LONGEST_WAIT_MS = int(2 * LONGEST_WAIT_S * 1000)
"""No job is told to wait for longer: one that seems to was queued before the clock was set back."""
AT_ONCE = 64
"""Users whose turns are read together."""
_BEGIN = {"turn": -1, "oldest": 0}
"""Before the first of them."""

_OF_SERVICE: BindParameter[str] = bindparam("of_service")
_OF_USER: BindParameter[str] = bindparam("of_user")
_IS_HIS = (turns.c.service == _OF_SERVICE) & (turns.c.user_id == _OF_USER)
_WAITING = Prepared(
    select(turns.c.user_id, turns.c.turn, turns.c.oldest)
    .where(IS_NOTED, turns.c.service == _OF_SERVICE)
    .where(tuple_(turns.c.turn, turns.c.oldest) > tuple_(bindparam("turn"), bindparam("oldest")))
    .order_by(turns.c.turn, turns.c.oldest)
    .limit(bindparam("most"))
)
"""The users with queued jobs, by turns: its cost grows neither with the jobs nor with the users."""
_ACTIVE = Prepared(
    select(jobs.c.user_id, func.count())
    .where(IS_ACTIVE, jobs.c.service == _OF_SERVICE)
    .group_by(jobs.c.user_id)
)
_AT_NODES = Prepared(select(jobs.c.node, func.count()).where(IS_ACTIVE).group_by(jobs.c.node))
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
_HIS_QUEUED = (QUEUED, jobs.c.service == _OF_SERVICE, jobs.c.user_id == _OF_USER)
_QUEUED_OF = Prepared(select(jobs.c.id).where(*_HIS_QUEUED).limit(bindparam("most")))
_LAST_TURN = Prepared(select(func.max(turns.c.turn)).where(turns.c.service == _OF_SERVICE))
_READY = Prepared(
    select(jobs.c.id)
    .where(*_HIS_QUEUED)
    .where((jobs.c.ready_at <= now_ms()) | (jobs.c.ready_at > now_ms() + bindparam("longest_ms")))
    .order_by(jobs.c.id)
    .limit(bindparam("most"))
)
_JOIN = Prepared(
    text(
        """
    INSERT INTO turns (service, user_id, turn, oldest) VALUES (:service, :user_id, 0, :job)
    ON CONFLICT (service, user_id) DO UPDATE SET oldest = excluded.oldest
    WHERE turns.oldest IS NULL OR turns.oldest > excluded.oldest
    """
    )
)
_LOCK = Prepared(select(turns.c.turn).where(_IS_HIS).with_for_update())
_OLDEST = select(func.min(jobs.c.id)).where(*_HIS_QUEUED).scalar_subquery()
_NOTE = Prepared(update(turns).where(_IS_HIS).values(oldest=_OLDEST))
UNNOTED = Prepared(
    select(jobs.c.service, jobs.c.user_id, func.min(jobs.c.id))
    .where(QUEUED)
    .group_by(jobs.c.service, jobs.c.user_id)
    .having(~exists().where(IS_NOTED, turns.c.service == jobs.c.service, turns.c.user_id == jobs.c.user_id))
)
"""(service, user, oldest job) of queued jobs without a note: a server of an older version queued them."""
STALE = Prepared(
    select(turns.c.service, turns.c.user_id).where(
        IS_NOTED,
        ~exists().where(QUEUED, jobs.c.service == turns.c.service, jobs.c.user_id == turns.c.user_id),
    )
)
"""(service, user) of notes without a queued job: such a server took the last one."""
_COMPETITORS = Prepared(
    select(jobs.c.user_id, jobs.c.started_at, jobs.c.state).where(IS_ACTIVE, jobs.c.service == _OF_SERVICE)
)
_TURN = select(turns.c.turn).where(turns.c.service == _OF_SERVICE, turns.c.user_id == jobs.c.user_id)
_QUEUED_USERS = Prepared(
    select(jobs.c.user_id, func.count(), func.min(jobs.c.id), _TURN.scalar_subquery())
    .where(QUEUED, jobs.c.service == _OF_SERVICE)
    .group_by(jobs.c.user_id)
)
_BEFORE = Prepared(select(func.count()).where(*_HIS_QUEUED, jobs.c.id < bindparam("job")))
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


def now(connection: Connection) -> int:
    """The database's clock."""
    return int(_NOW.rows(connection)[0][0])


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
        queued = {
            user: QueuedUser(jobs, oldest, turn or 0)
            for user, jobs, oldest, turn in _QUEUED_USERS.rows(connection, of_service)
        }
        runs_ms = [max(run[0], 0) for run in _RUNS.rows(connection, of_service)]
        active = competitors(connection, row.service)
        known = QueueView(row.user_id, 0, queued, active, runs_ms, now(connection))
    before = _BEFORE.rows(connection, {**of_service, "of_user": row.user_id, "job": row.id})[0][0]
    # One that was claimed just now, or came since: it is in no queue that is known.
    queued = {row.user_id: QueuedUser(1, row.id, 0), **known.queued}
    return known._replace(user=row.user_id, before=before, queued=queued)


def active_jobs(connection: Connection, service: str) -> dict[str, int]:
    """How many jobs of the service are active, by user."""
    return {row[0]: row[1] for row in _ACTIVE.rows(connection, {"of_service": service})}


def is_queued(connection: Connection, service: str) -> bool:
    """True if a job of the service waits in the queue."""
    return bool(_WAITING.rows(connection, {"of_service": service, **_BEGIN, "most": 1}))


def jobs_at_nodes(connection: Connection) -> dict[str, int]:
    """How many active jobs each node has, of all services and servers."""
    return {row[0]: row[1] for row in _AT_NODES.rows(connection) if row[0] is not None}


def queued_jobs(connection: Connection, user: str, most: int) -> int:
    """How many jobs of a user wait, of all services; counting ends at ``most``."""
    services = [row[0] for row in _QUEUED_SERVICES.rows(connection)]
    values = {"of_user": user, "most": most}
    return sum(len(_QUEUED_OF.rows(connection, {**values, "of_service": service})) for service in services)


def take_turns(connection: Connection, at: str = "claims") -> None:
    """Lets one transaction at a time claim jobs, since services share nodes, or count a user's jobs."""
    if connection.dialect.name == "postgresql":  # SQLite has one writer
        key = zlib.crc32(f"tenuto service {at}".encode())
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})


def queues_of(
    connection: Connection, service: str, quota: Quota, active: Mapping[str, int], most: int
) -> tuple[int, list[UserQueue]]:
    """The last turn of the service, and the queues of the users who may be next, as far as needed."""
    last_turn = _LAST_TURN.rows(connection, {"of_service": service})[0][0] or 0
    queues: list[UserQueue] = []
    for user, turn in _ranked(connection, service, active):
        free = min(most, quota.runs_per_user - active.get(user, 0))
        if free <= 0:
            continue
        values = {"of_service": service, "of_user": user, "most": free, "longest_ms": LONGEST_WAIT_MS}
        ready = tuple(row[0] for row in _READY.rows(connection, values))
        if ready:
            queues.append(UserQueue(user, active.get(user, 0), turn, ready))
        if len(queues) >= most:
            break
    return last_turn, queues


def _ranked(connection: Connection, service: str, active: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """The users with queued jobs and their turns, in the order of `next_jobs`."""
    later: list[tuple[int, int, int, str]] = []
    after = _BEGIN
    while found := _WAITING.rows(connection, {"of_service": service, **after, "most": AT_ONCE}):
        for user, turn, oldest in found:
            if user in active:
                later.append((active[user], turn, oldest, user))
            else:
                yield user, turn
        after = {"turn": turn, "oldest": oldest}
    for _, turn, _, user in sorted(later):
        yield user, turn


def join_queue(connection: Connection, service: str, user: str, job: int) -> None:
    """Notes that a user has a queued job, in the transaction that queues it.

    It locks the note until the end of the transaction: `note_queue` waits, and sees the job then.
    """
    _JOIN.rows(connection, {"service": service, "user_id": user, "job": job})


def note_queue(connection: Connection, service: str, user: str, **turn: int) -> None:
    """Notes the oldest queued job of a user, or that none is left; ``turn``: the user was served now.

    Called after the rows of jobs were changed: two transactions that lock them in another order would wait
    for each other.
    """
    his = {"of_service": service, "of_user": user}
    _LOCK.rows(connection, his)
    _NOTE.rows(connection, {**his, **turn})
