"""What became of an action on a job."""

from __future__ import annotations

from enum import Enum, unique
from typing import NamedTuple

from tenuto.jobs.key import JobKey


@unique
class Outcome(Enum):
    """What became of an action on one job."""

    ASKED = "asked to stop"
    NOT_RUNNING = "not running"
    STALE = "another attempt runs by now"
    ELSEWHERE = "runs on another machine"
    STARTING = "is being started"
    DELETED = "deleted"
    WOULD_DELETE = "would be deleted"
    IN_USE = "in use"
    GONE = "gone already"


class Acted(NamedTuple):
    """One job, and what was done to it."""

    key: JobKey
    outcome: Outcome
    detail: str = ""
    attempt: int = 0
    size: int = 0
    """Bytes of its directory, where it was deleted or would be."""
