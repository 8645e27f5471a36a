"""A job's state, and what every change of it sets in motion.
Starts nothing and reads no files: the scheduler's `Job` overrides the hooks.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from typing import NamedTuple, Protocol

from tenuto.lifecycle.states import JobFailureStatus, JobState, StateRecord, transition


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

    __slots__ = ("_began", "clock", "job_id", "state_record", "task_id")

    def __init__(self, job_id: str, task_id: str, clock: Now) -> None:
        self.job_id = job_id
        self.task_id = task_id
        self.clock = clock
        self.state_record = StateRecord()
        """Changed by `set_state` and `explain` only."""
        self._began: float | None = None
        """When it was seen to run, by a clock that is never set."""

    @property
    def _state(self) -> JobState:
        return self.state_record.state

    @property
    def state(self) -> JobState:
        return self.state_record.state

    @state.setter
    def state(self, state: JobState) -> None:
        self.set_state(state)

    @property
    def failure_status(self) -> JobFailureStatus | None:
        return self.state_record.reason

    @property
    def submittime(self) -> datetime | None:
        return self.state_record.submittime

    @property
    def starttime(self) -> datetime | None:
        return self.state_record.starttime

    @property
    def endtime(self) -> datetime | None:
        return self.state_record.endtime

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
        before, now = self.state_record, self.clock.now()
        self.state_record = self._timed(transition(before, state, now, reason, message), now, since)
        change = counter_change(before.state, state)
        if change is not _NO_CHANGE:
            self._count(change)
        if state is JobState.WAITING and before.state.finished():
            self._reset_final_state()
        self._changed(before, now, attempt)

    def _timed(self, record: StateRecord, now: datetime, since: datetime | None) -> StateRecord:
        """A record whose end is as long after its start as the job ran, whatever was done to the clock."""
        if record.state is JobState.RUNNING:
            self._began = self.clock.uptime()
            if since is not None and since < now:
                self._began -= (now - since).total_seconds()
                return record._replace(starttime=since)
        elif record.state is JobState.WAITING:
            self._began = None
        elif self._began is not None and record.starttime is not None and record.state.finished():
            ran = timedelta(seconds=self.clock.uptime() - self._began)
            return record._replace(endtime=record.starttime + ran)
        elif since is not None and record.state.finished():
            return record._replace(endtime=since)
        return record

    def explain(self, message: str | None) -> None:
        """Say why the job is still where it is; to say the same again changes nothing."""
        if message != self.state_record.message:
            self.state_record = self.state_record._replace(message=message)
            self._explained(self.clock.now())

    def _count(self, change: CounterChange) -> None:
        """A hook: the owners of the job have more or less to wait for."""

    def _reset_final_state(self) -> None:
        """A hook: the job runs again after a final state, so its knowledge of that state no longer holds."""

    def _changed(self, before: StateRecord, now: datetime, attempt: int | None) -> None:
        """A hook: the job moved on at `now`."""

    def _explained(self, now: datetime) -> None:
        """A hook: the job got another reason to be where it is at `now`."""
