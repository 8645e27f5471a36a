"""Log lines of a job's life: one at debug level for each step, with an `action` for programs that read logs.
Decides nothing, and costs nearly nothing while debug is off.
"""

from __future__ import annotations

import logging
from enum import Enum, unique
from typing import TYPE_CHECKING

from tenuto.lifecycle.states import JobState

if TYPE_CHECKING:
    from tenuto.scheduler.jobs import Job
    from tenuto.scheduler.owners import Owner

logger = logging.getLogger("tenuto.scheduler")


@unique
class LogStep(Enum):
    """The `action` of a line; `docs/scheduler.md` lists them."""

    SUBMITTED = "submitted"
    WAITING = "waiting"
    ASLEEP = "asleep"
    READY = "ready"
    STARTED = "started"
    RUNNING = "running"
    RETRIED = "retried"
    ENDED = "ended"
    CANCELLED = "cancelled"
    WITHDRAWN = "withdrawn"
    FORGOTTEN = "forgotten"
    STARTS_PAUSED = "starts_paused"
    STARTS_RESUMED = "starts_resumed"


_STEPS = {
    JobState.UNSCHEDULED: LogStep.ASLEEP,
    JobState.WAITING: LogStep.WAITING,
    JobState.READY: LogStep.READY,
    JobState.SCHEDULED: LogStep.STARTED,
    JobState.RUNNING: LogStep.RUNNING,
    JobState.DONE: LogStep.ENDED,
    JobState.ERROR: LogStep.ENDED,
}


def is_logged() -> bool:
    """True if lines at debug level go anywhere."""
    return logger.isEnabledFor(logging.DEBUG)


def log_step(step: LogStep, job: Job, owner: Owner | None = None, message: str | None = None) -> None:
    """One step of a job, on behalf of an owner where one asked for it."""
    if not is_logged():
        return
    standing = job.standing
    logger.debug(
        "%s %s: %s%s",
        job.task_id,
        job.job_id[:12],
        step.value.replace("_", " "),
        f" ({message})" if message else "",
        extra={
            "action": step.value,
            "job_id": job.job_id,
            "task_id": job.task_id,
            "state": standing.state.name,
            "reason": standing.reason.name if standing.reason else None,
            "attempt": job.attempt,
            "owner": owner.id if owner is not None else None,
        },
    )


def log_state(job: Job) -> None:
    """The step that a change of state is; an end says which."""
    state, reason, message = job.standing[:3]
    words = [state.name if state.finished() else None, reason and reason.name, message]
    log_step(_STEPS[state], job, message=": ".join(filter(None, words)))
