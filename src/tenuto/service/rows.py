"""A service job as its row shows it, and its path through the states.
Plain values; `requests` reads and writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tenuto.lifecycle.service import ServiceState


class NewJob(NamedTuple):
    """An upload that is to become a job."""

    user_id: str
    service: str
    directory: str
    idempotency_key: str | None = None
    body_sha256: str | None = None
    callback: str | None = None
    token_id: int | None = None
    bytes_in: int | None = None
    command: str = ""
    """Of its service, as `encoded_command` has it; empty: the upload's own `run.sh`."""


class UserLimits(NamedTuple):
    """What one user may have at once; None: no limit."""

    queued: int | None = None
    stored_bytes: int | None = None
    connections: int | None = None

    def over(self, others: UserLimits) -> UserLimits:
        """These, and where there is none, the others."""
        return UserLimits(*(own if own is not None else one for own, one in zip(self, others, strict=True)))


NO_LIMITS = UserLimits()


class JobRow(NamedTuple):
    """The row of a job. Instants are milliseconds of the database's clock."""

    id: int
    user_id: str
    service: str
    state: ServiceState
    message: str
    claim: int
    """How often the job was claimed or taken over; what an older claimant writes has no effect."""
    server_id: str | None
    node: str | None
    """The node that has the job, or may have it."""
    payload_id: int | None
    directory: str
    idempotency_key: str | None
    body_sha256: str | None
    created_at: int
    ready_at: int
    tried_at: int | None
    """When it was first tried to be sent."""
    started_at: int | None
    ended_at: int | None
    terminate_at: int | None
    exit_code: int | None
    result_bytes: int | None
    result_sha256: str | None
    callback: str | None = None
    """The address that is told of its end."""
    token_id: int | None = None
    """Of the token that it was uploaded with."""
    bytes_in: int | None = None
    """Of its files as they were uploaded."""
    cpu_s: float | None = None
    memory_peak: int | None = None
    command: str | None = None
    """What it was accepted for, whatever its service is by now; None: an older server accepted it."""


class Move(NamedTuple):
    """A state that a job reached."""

    id: int
    job_id: int
    state: ServiceState
    message: str
    at: int


class Page(NamedTuple):
    """Which jobs are listed: the newest first, ids below ``before``."""

    user_id: str | None = None
    service: str | None = None
    state: ServiceState | None = None
    before: int | None = None
    limit: int = 100


_STATE = JobRow._fields.index("state")
_MOVE_STATE = Move._fields.index("state")


def job_of(row: Sequence[Any]) -> JobRow:
    """A row of the table as a value."""
    return JobRow._make((*row[:_STATE], ServiceState(row[_STATE]), *row[_STATE + 1 :]))


def move_of(row: Sequence[Any]) -> Move:
    """A row of the table of moves as a value."""
    return Move._make((*row[:_MOVE_STATE], ServiceState(row[_MOVE_STATE]), *row[_MOVE_STATE + 1 :]))


def instant(ms: int | None) -> str | None:
    """An instant of the database's clock, as RFC 3339."""
    if ms is None:
        return None
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
