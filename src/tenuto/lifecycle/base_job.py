"""A job's state, and what every change of it sets in motion.
Starts nothing and reads no files: the scheduler's `Job` overrides the hooks.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from typing import NamedTuple, Protocol

from tenuto.lifecycle.states import JobFailureStatus, JobState, Standing, transition


class Now(Protocol):
    """As much of a clock as a job needs."""

    def now(self) -> datetime: ...

    def uptime(self) -> float: ...


class CounterChange(NamedTuple):
    """What a change of state adds to the counters of each owner."""

    unfinished: int
    failed: int


_NO_CHANGE = CounterChange(0, 0)


@cache
def counter_change(before: JobState, after: JobState) -> CounterChange:
    change = CounterChange(
        unfinished=after.unfinished() - before.unfinished(),
        failed=(after is JobState.ERROR) - (before is JobState.ERROR),
    )
    return _NO_CHANGE if change == _NO_CHANGE else change


class BaseJob:
    """A job as the lifecycle sees it: an identity, and where it stands."""

    __slots__ = ("_began", "clock", "job_id", "standing", "task_id")

    def __init__(self, job_id: str, task_id: str, clock: Now) -> None:
        self.job_id = job_id
        self.task_id = task_id
        self.clock = clock
        self.standing = Standing()
        """Changed by `set_state` and `explain` only."""
        self._began: float | None = None
        """When it was seen to run, by a clock that is never set."""

    @property
    def _state(self) -> JobState:
        return self.standing.state

    @property
    def state(self) -> JobState:
        return self.standing.state

    @state.setter
    def state(self, state: JobState) -> None:
        self.set_state(state)

    @property
    def failure_status(self) -> JobFailureStatus | None:
        return self.standing.reason

    @property
    def submittime(self) -> datetime | None:
        return self.standing.submittime

    @property
    def starttime(self) -> datetime | None:
        return self.standing.starttime

    @property
    def endtime(self) -> datetime | None:
        return self.standing.endtime

    def set_state(
        self,
        state: JobState,
        reason: JobFailureStatus | None = None,
        message: str | None = None,
        *,
        attempt: int | None = None,
        since: datetime | None = None,
    ) -> None:
        """Move to `state`: check the table, stamp times, count, reset the future, tell the subscribers.

        Counters and the future come before the subscribers, so that a subscriber finds the change complete.
        `attempt`: the attempt that the change belongs to, where the job is not yet at it. `since`: when a job
        began that is found running, or ended that is found done.
        """
        before, now = self.standing, self.clock.now()
        self.standing = self._timed(transition(before, state, now, reason, message), now, since)
        change = counter_change(before.state, state)
        if change is not _NO_CHANGE:
            self._count(change)
        if state is JobState.WAITING and before.state.finished():
            self._reset_final_state()
        self._changed(before, now, attempt)

    def _timed(self, standing: Standing, now: datetime, since: datetime | None) -> Standing:
        """A standing whose end is as long after its start as the job ran, whatever was done to the clock."""
        if standing.state is JobState.RUNNING:
            self._began = self.clock.uptime()
            if since is not None and since < now:
                self._began -= (now - since).total_seconds()
                return standing._replace(starttime=since)
        elif standing.state is JobState.WAITING:
            self._began = None
        elif self._began is not None and standing.starttime is not None and standing.state.finished():
            ran = timedelta(seconds=self.clock.uptime() - self._began)
            return standing._replace(endtime=standing.starttime + ran)
        elif since is not None and standing.state.finished():
            return standing._replace(endtime=since)
        return standing

    def explain(self, message: str | None) -> None:
        """Say why the job is still where it is; to say the same again changes nothing."""
        if message != self.standing.message:
            self.standing = self.standing._replace(message=message)
            self._explained(self.clock.now())

    def _count(self, change: CounterChange) -> None:
        """A hook: the owners of the job have more or less to wait for."""

    def _reset_final_state(self) -> None:
        """A hook: the job runs again after a final state, so its knowledge of that state no longer holds."""

    def _changed(self, before: Standing, now: datetime, attempt: int | None) -> None:
        """A hook: the job moved on at `now`."""

    def _explained(self, now: datetime) -> None:
        """A hook: the job got another reason to be where it is at `now`."""
