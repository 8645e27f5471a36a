"""What became of an action on a job."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, unique
from typing import NamedTuple

from tenuto.jobs.key import JobKey


@unique
class Outcome(Enum):
    """What became of an action on one job."""

    ASKED = "asked to stop"
    RETRIED = "run again"
    DELETED = "deleted"
    MOVED = "moved"
    WOULD_KILL = "would be killed"
    WOULD_RETRY = "would be run again"
    WOULD_DELETE = "would be deleted"
    WOULD_MOVE = "would be moved"
    STALE = "another attempt by now"
    NOT_RUNNING = "not running"
    STARTING = "is being started"
    ELSEWHERE = "runs on another machine"
    IN_USE = "in use"
    GONE = "gone already"
    REFUSED = "refused"

    @property
    def acts(self) -> bool:
        """Whether something was done, or would be."""
        return self in (
            Outcome.ASKED,
            Outcome.RETRIED,
            Outcome.DELETED,
            Outcome.MOVED,
            Outcome.WOULD_MOVE,
            Outcome.WOULD_KILL,
            Outcome.WOULD_RETRY,
            Outcome.WOULD_DELETE,
        )


class JobActed(NamedTuple):
    """One job, and what was done to it."""

    key: JobKey
    outcome: Outcome
    detail: str = ""
    attempt: int = 0
    size: int = 0
    """Bytes of its directory, where it was deleted or would be."""


Seen = Mapping[JobKey, int]
"""The attempts that a person saw, of jobs to act on; a job that is not among them is meant as it is."""


def stale(key: JobKey, seen: Seen, attempt: int) -> JobActed | None:
    """The outcome of a wish for another attempt than the current one; None if the wish holds."""
    wanted = seen.get(key, attempt)
    if wanted == attempt:
        return None
    return JobActed(key, Outcome.STALE, f"attempt {attempt} is the current one, not {wanted}", attempt)
