"""How the process hears of jobs: events, frozen in the loop when they happen, told off the loop in order.
A subscriber that raises is logged and changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from enum import Enum, unique
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tenuto.lifecycle.events import Event, JobExplainedEvent, JobStateChangedEvent, JobSubmittedEvent
from tenuto.lifecycle.states import JobState, StateRecord
from tenuto.scheduler.workers import Worker, call_safely, takes
from tenuto.tasks.arguments import refused
from tenuto.workspace.event_writer import EventWriter

if TYPE_CHECKING:
    from tenuto.scheduler.jobs import Job
    from tenuto.scheduler.owners import Owner

logger = logging.getLogger("tenuto.scheduler")


@unique
class LogStep(Enum):
    """The `action` of a line; `docs/architecture.md` lists them."""

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
    record = job.state_record
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
            "state": record.state.name,
            "reason": record.reason.name if record.reason else None,
            "attempt": job.attempt,
            "owner": owner.id if owner is not None else None,
        },
    )


def log_state(job: Job) -> None:
    """The step that a change of state is; an end says which."""
    state, reason, message = job.state_record[:3]
    words = [state.name if state.finished() else None, reason and reason.name, message]
    log_step(_STEPS[state], job, message=": ".join(filter(None, words)))


Subscriber = Callable[[Event], object]

NOBODY = ""
"""The owner in events of a job whose owners have all left."""


class Listener:
    """The way of experimaestro to hear of every job of the process: override the calls that you want.

    Each call is made in a thread of the scheduler's, once for a change, however many owners the job has.
    """

    def job_submitted(self, job: Job) -> None:
        """A job was submitted (again, if it was known)."""

    def job_state(self, job: Job, record: StateRecord) -> None:
        """A job moved to `record`; by now it may have moved on."""

    def job_explained(self, job: Job, message: str | None) -> None:
        """A job got another reason to be where it is."""


class _Heard(NamedTuple):
    """A listener, and its calls in one form, however it spells them.

    ``job_state(job)`` without the record, ``on_job_submitted(job)`` and ``on_job_state_changed(job)`` are
    the spellings of experimaestro. An object need not have all the calls.
    """

    listener: object
    job_submitted: Callable[[Job], object]
    job_state: Callable[[Job, StateRecord], object]
    job_explained: Callable[[Job, str | None], object]

    @classmethod
    def of(cls, listener: object) -> _Heard:
        def found(*names: str) -> Callable[..., object] | None:
            return next((call for name in names if callable(call := getattr(listener, name, None))), None)

        submitted = found("on_job_submitted", "job_submitted")
        state = found("on_job_state_changed", "job_state")
        explained = found("job_explained")
        if isinstance(listener, type) or not (submitted or state or explained):
            raise refused(
                "add_listener()", "an object with a method job_state() or job_submitted()", listener
            )
        takes_record = state is None or takes(state, 2)
        return cls(
            listener,
            submitted or _unheard,
            state if state and takes_record else lambda job, _: (state or _unheard)(job),
            explained or _unheard,
        )


def _unheard(*_: object) -> None:
    """The call that a listener does not have."""


class EventSink(Protocol):
    """Takes events: a journal, or a sender to one."""

    def write(self, event: Event) -> object: ...


class StateListener:
    """experimaestro's name for the subscriber that writes the events of an owner into its journal."""

    def __init__(self, writer: EventSink) -> None:
        self._writer = writer

    def hear(self, event: Event) -> None:
        """Write the event."""
        self._writer.write(event)


def state_record_of(event: JobStateChangedEvent) -> StateRecord:
    """Where the job stood after the change."""
    return StateRecord(
        event.state, event.reason, event.message, event.submittime, event.starttime, event.endtime
    )


class Announcer:
    """Makes events of what happens to jobs, and tells owners, subscribers and listeners of them.

    The calls that make events belong to the loop: nothing else changes a job, so a state read there is the
    job at the moment of the change. A thread that reads the job later finds another attempt.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._subscribers: tuple[Subscriber, ...] = ()
        self._listeners: tuple[_Heard, ...] = ()

    # From any thread

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers = (*self._subscribers, subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers = tuple(known for known in self._subscribers if known != subscriber)

    def add_listener(self, listener: Listener) -> None:
        self._listeners = (*self._listeners, _Heard.of(listener))

    def remove_listener(self, listener: Listener) -> None:
        self._listeners = tuple(known for known in self._listeners if known.listener is not listener)

    def tell(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function off the loop, after everything that was told before."""
        self._worker.call(partial(function, *arguments))

    # In the loop

    def submitted(self, job: Job, owner: Owner) -> None:
        """An owner asked for a job."""
        event = JobSubmittedEvent(
            timestamp=job.clock.now(),
            job_id=job.job_id,
            task_id=job.task_id,
            owner=owner.id,
            tags=job.tags,
            depends_on=job.linked,
            transient=job.transient,
        )
        self._announce(owner, event)
        for listener in self._listeners:
            self.tell(listener.job_submitted, job)

    def changed(self, job: Job, before: StateRecord, now: datetime, attempt: int | None) -> None:
        """A job moved to another state."""
        record = job.state_record
        state = record.state
        # By comparing, not by asking: this runs five times for each job.
        has_ended = state >= JobState.DONE or (
            state is JobState.WAITING and JobState.SCHEDULED <= before.state <= JobState.RUNNING
        )
        fields = {
            "timestamp": now,
            "job_id": job.job_id,
            "task_id": job.task_id,
            "state": state,
            "attempt": job.attempt if attempt is None else attempt,
            "reason": record.reason,
            "message": record.message,
            "submittime": record.submittime,
            "starttime": record.starttime,
            "endtime": record.endtime,
            "exit_code": job.exit_code if has_ended else None,
            "retry_count": job.retry_count,
        }
        for owner in job.owners or (None,):
            id = NOBODY if owner is None else owner.id
            self._announce(owner, JobStateChangedEvent(owner=id, **fields))  # type: ignore[arg-type]
        for listener in self._listeners:
            self.tell(listener.job_state, job, record)

    def explained(self, job: Job, now: datetime) -> None:
        """A job got another reason to be where it is."""
        message = job.state_record.message
        for owner in job.owners or (None,):
            event = JobExplainedEvent(
                timestamp=now,
                job_id=job.job_id,
                task_id=job.task_id,
                owner=NOBODY if owner is None else owner.id,
                state=job.state,
                attempt=job.attempt,
                message=message,
            )
            self._announce(owner, event)
        for listener in self._listeners:
            self.tell(listener.job_explained, job, message)

    def _announce(self, owner: Owner | None, event: Event) -> None:
        if owner is not None:
            self._worker.call(partial(owner.hear, event))
        for subscriber in self._subscribers:
            self._worker.call(partial(subscriber, event))


# The journal of one owner, and the subscribers who hear its entries.
# Who the owner is does not matter; files are written in groups, off the loop.


class OwnerJournal:
    """Writes the events of an owner; all but `end` and `subscribe` belong to the thread that tells events."""

    def __init__(self, writer: EventWriter, soon: Callable[[Callable[[], None]], None]) -> None:
        """`soon` has a function called after all that is to be told by now: `Scheduler.tell`."""
        self._writer = writer
        self._soon = soon
        self._subscribers: tuple[Subscriber, ...] = ()
        self._unheard: list[Event] = []
        """Events that are not in the file yet: events of many jobs are written together."""

    def subscribe(self, subscriber: Subscriber) -> None:
        """Pass each event from now on to a subscriber, after it was written; from any thread."""
        self._subscribers = (*self._subscribers, subscriber)

    def write(self, event: Event) -> None:
        """Take an event, which is written soon, together with later ones."""
        self._writer.add(event)
        self._unheard.append(event)
        if len(self._unheard) == 1:
            self._soon(self._flush)

    def end(self, event: Event | None = None) -> None:
        """Write the last event, and close; from another thread, once everything was told."""
        if event is not None:
            self._writer.add(event)
            self._unheard.append(event)
        try:
            self._flush()
        finally:
            self._writer.close()

    def _flush(self) -> None:
        events, self._unheard = self._unheard, []
        try:
            self._writer.flush()
        finally:
            for event in events if self._subscribers else ():
                for subscriber in self._subscribers:
                    call_safely(lambda: subscriber(event))  # noqa: B023  called at once
