"""A job's state, and what every change of it sets in motion.
Starts nothing and reads no files: the scheduler's `Job` overrides the hooks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import NamedTuple, Protocol

from tenuto.lifecycle.states import JobFailureStatus, JobState, Standing, transition

logger = logging.getLogger("tenuto.lifecycle")


class Now(Protocol):
    """As much of a clock as a job needs."""

    def now(self) -> datetime: ...


class JobOwner(Protocol):
    """Who asked for a job: a run of an experiment, a node, a search."""

    unfinishedJobs: int
    failedJobs: int


class CounterChange(NamedTuple):
    """What a change of state adds to the counters of each owner."""

    unfinished: int
    failed: int


_NO_CHANGE = CounterChange(0, 0)


@cache
def counter_change(before: JobState, after: JobState) -> CounterChange:
    return CounterChange(
        unfinished=after.unfinished() - before.unfinished(),
        failed=(after is JobState.ERROR) - (before is JobState.ERROR),
    )


class BaseJob:
    """A job as the lifecycle sees it: an identity, owners, listeners, and where it stands."""

    def __init__(self, job_id: str, task_id: str, clock: Now) -> None:
        self.job_id = job_id
        self.task_id = task_id
        self.clock = clock
        # Tuples: of a hundred thousand jobs most have none, and an empty list takes 56 bytes.
        self.owners: tuple[JobOwner, ...] = ()
        self.listeners: tuple[Callable[[BaseJob, Standing], None], ...] = ()
        self._standing = Standing()

    @property
    def standing(self) -> Standing:
        return self._standing

    @property
    def _state(self) -> JobState:
        return self._standing.state

    @property
    def state(self) -> JobState:
        return self._standing.state

    @state.setter
    def state(self, state: JobState) -> None:
        self.set_state(state)

    @property
    def failure_status(self) -> JobFailureStatus | None:
        return self._standing.reason

    @property
    def submittime(self) -> datetime | None:
        return self._standing.submittime

    @property
    def starttime(self) -> datetime | None:
        return self._standing.starttime

    @property
    def endtime(self) -> datetime | None:
        return self._standing.endtime

    def set_state(
        self,
        state: JobState,
        reason: JobFailureStatus | None = None,
        message: str | None = None,
    ) -> None:
        """Move to `state`: check the table, stamp times, count, reset the future, tell the listeners.

        Counters and the future come before the listeners, so that whoever hears of a change sees all of it.
        """
        before = self._standing
        self._standing = transition(before, state, self.clock.now(), reason, message)
        change = counter_change(before.state, state)
        if change != _NO_CHANGE:
            self._count(change)
        if state is JobState.WAITING and before.state.finished():
            self._reset_final_state()
        self._notify(before)

    def restore(self, standing: Standing) -> None:
        """Take over what a predecessor recorded (times, message) without it counting as a change of state."""
        self._standing = standing._replace(state=self._standing.state)

    def explain(self, message: str | None) -> None:
        """Say why the job is still where it is."""
        self._standing = self._standing._replace(message=message)

    def add_owner(self, owner: JobOwner) -> None:
        """Count the job, as it stands, for one more owner."""
        if not any(known is owner for known in self.owners):
            self.owners = (*self.owners, owner)
            _add(owner, counter_change(JobState.UNSCHEDULED, self.state))

    def remove_owner(self, owner: JobOwner) -> None:
        """No longer count the job for this owner."""
        if any(known is owner for known in self.owners):
            self.owners = tuple(known for known in self.owners if known is not owner)
            _add(owner, counter_change(self.state, JobState.UNSCHEDULED))

    def _count(self, change: CounterChange) -> None:
        for owner in self.owners:
            _add(owner, change)

    def _reset_final_state(self) -> None:
        """A hook: the job runs again after a final state, so `_final_state` must be a new future."""

    def _notify(self, before: Standing) -> None:
        """A hook: tell the listeners. A listener that raises is logged and changes nothing."""
        for listener in self.listeners:
            try:
                listener(self, before)
            except Exception:
                logger.exception(
                    "a listener of job %s raised", self.job_id, extra={"action": "listener_raised"}
                )


def _add(owner: JobOwner, change: CounterChange) -> None:
    owner.unfinishedJobs += change.unfinished
    owner.failedJobs += change.failed
