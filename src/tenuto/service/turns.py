"""Turns: whose queued jobs of a service are next, read and written inside a claim's transaction.
Moves no job; `requests` does.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from sqlalchemy import Connection, func, insert, select, text, update

from tenuto.database import now_ms
from tenuto.service.decisions import LONGEST_WAIT_S, Queue, Quota
from tenuto.service.tables import IS_ACTIVE, QUEUED, jobs, turns

LONGEST_WAIT_MS = int(2 * LONGEST_WAIT_S * 1000)
"""No job is told to wait for longer: one that seems to was queued before the clock was set back."""

_USERS = text(
    """
    WITH RECURSIVE waiting(user_id) AS (
      SELECT min(user_id) FROM jobs WHERE state = 'Queued' AND service = :service
      UNION ALL
      SELECT (SELECT min(user_id) FROM jobs
              WHERE state = 'Queued' AND service = :service AND user_id > waiting.user_id)
      FROM waiting WHERE waiting.user_id IS NOT NULL
    )
    SELECT user_id FROM waiting WHERE user_id IS NOT NULL
    """
)
"""The users with queued jobs, by a loose index scan: its cost grows with the users, not with the jobs."""


def active_jobs(connection: Connection, service: str) -> dict[str, int]:
    """How many jobs of the service are active, by user."""
    query = select(jobs.c.user_id, func.count()).where(IS_ACTIVE, jobs.c.service == service)
    return {row[0]: row[1] for row in connection.execute(query.group_by(jobs.c.user_id))}


def is_queued(connection: Connection, service: str) -> bool:
    """True if a job of the service waits in the queue."""
    # Not the first of all rows: where most are queued, SQLite would read the table from its beginning.
    query = select(func.min(jobs.c.user_id)).where(QUEUED, jobs.c.service == service)
    return connection.execute(query).scalar() is not None


def take_turns(connection: Connection, service: str) -> None:
    """Lets one server at a time claim jobs of a service; SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        key = zlib.crc32(f"tenuto service {service}".encode())
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})


def queues_of(
    connection: Connection, service: str, quota: Quota, active: Mapping[str, int], most: int
) -> tuple[int, list[Queue]]:
    """The last turn of the service, and the queues of the users who may be next, as far as needed."""
    users = [row[0] for row in connection.execute(_USERS, {"service": service})]
    query = select(turns.c.user_id, turns.c.turn).where(turns.c.service == service)
    turn_of: dict[str, int] = {row[0]: row[1] for row in connection.execute(query)}
    last_turn = max(turn_of.values(), default=0)
    eligible = [user for user in users if active.get(user, 0) < quota.runs_per_user]
    eligible.sort(key=lambda user: (active.get(user, 0), turn_of.get(user, 0)))
    queues: list[Queue] = []
    for user in eligible:
        free = min(most, quota.runs_per_user - active.get(user, 0))
        ready = (
            select(jobs.c.id)
            .where(QUEUED, jobs.c.service == service, jobs.c.user_id == user)
            .where((jobs.c.ready_at <= now_ms()) | (jobs.c.ready_at > now_ms() + LONGEST_WAIT_MS))
            .order_by(jobs.c.id)
            .limit(free)
        )
        found = tuple(row[0] for row in connection.execute(ready))
        if found:
            queues.append(Queue(user, active.get(user, 0), turn_of.get(user, 0), found))
        if len(queues) >= most:
            break
    return last_turn, queues


def set_turn(connection: Connection, service: str, user: str, turn: int) -> None:
    """Notes when a user was served last."""
    mine = (turns.c.service == service) & (turns.c.user_id == user)
    if not connection.execute(update(turns).where(mine).values(turn=turn)).rowcount:
        connection.execute(insert(turns).values(service=service, user_id=user, turn=turn))
