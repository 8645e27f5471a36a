"""Who hears of jobs: listeners in this process, and the journal of each owner.
Both are called off the loop, one event after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tenuto.lifecycle.events import Event, JobStateChangedEvent, JobSubmittedEvent
from tenuto.lifecycle.states import Standing

if TYPE_CHECKING:
    from tenuto.scheduler.jobs import Job


class Listener:
    """Override what you want to hear of; each call is made in a thread of the scheduler's."""

    def job_submitted(self, job: Job) -> None:
        """A job was submitted (again, if it was known)."""

    def job_state(self, job: Job, standing: Standing) -> None:
        """A job moved to what `standing` says; by now it may have moved on."""


class EventSink(Protocol):
    """Takes events: a journal, or whoever passes them on to one."""

    def write(self, event: Event) -> object: ...


class StateListener(Listener):
    """Writes what happens to the jobs of one run into the journal of its experiment."""

    def __init__(self, writer: EventSink, experiment_id: str, run_id: str) -> None:
        self._writer = writer
        self._experiment_id = experiment_id
        self._run_id = run_id

    def job_submitted(self, job: Job) -> None:
        self._writer.write(
            JobSubmittedEvent(
                timestamp=job.clock.now(),
                job_id=job.job_id,
                task_id=job.task_id,
                experiment_id=self._experiment_id,
                run_id=self._run_id,
                tags=job.tag_texts,
                depends_on=tuple(dependency.origin.job_id for dependency in job.dependencies),
                transient=job.transient,
            )
        )

    def job_state(self, job: Job, standing: Standing) -> None:
        self._writer.write(
            JobStateChangedEvent(
                timestamp=job.clock.now(),
                job_id=job.job_id,
                task_id=job.task_id,
                state=standing.state,
                attempt=job.attempt,
                reason=standing.reason,
                message=standing.message,
                submittime=standing.submittime,
                starttime=standing.starttime,
                endtime=standing.endtime,
                exit_code=job.exit_code,
                retry_count=job.retry_count,
            )
        )
