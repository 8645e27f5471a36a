"""Owners that leave a job: one that no longer wants it, and one that has no more use for its end.
Ends no job itself: what no other owner wants is handed to the scheduler to be cancelled.
"""

from __future__ import annotations

from collections.abc import Callable

from tenuto.lifecycle.states import JobState
from tenuto.scheduler.inbox import Forgetting, Withdrawal
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.known import KnownJobs
from tenuto.scheduler.logbook import Step, log_step
from tenuto.scheduler.owners import Owner


class Departures:
    """Takes owners off jobs; in the loop's thread only."""

    def __init__(
        self, known: KnownJobs, cancel: Callable[[Job, str], None], changed: Callable[[], None]
    ) -> None:
        """`cancel` ends a job; `changed` is called when an owner has less to wait for."""
        self._known = known
        self._cancel = cancel
        self._changed = changed

    def withdraw(self, withdrawal: Withdrawal) -> None:
        """Ends a job that no other owner has; otherwise only this owner leaves it.

        The last owner stays the job's owner: it is told of the end, and may forget the job then.
        """
        job, owner, message = withdrawal
        if not owns(job, owner):
            return
        log_step(Step.WITHDRAWN, job, owner, message)
        if len(job.owners) == 1:
            self._cancel(job, message)
        else:
            job.remove_owner(owner)
            self._changed()

    def forget(self, forgetting: Forgetting) -> None:
        """Lets go of a job, in O(1). One that was submitted again meanwhile is kept."""
        job, owner = forgetting
        if is_at_rest(job):
            log_step(Step.FORGOTTEN, job, owner)
            job.remove_owner(owner)
            with self._known.lock:
                self._known.let_go_of(job)


def owns(job: Job, owner: Owner) -> bool:
    """True if this owner submitted the job, and has not left it."""
    return any(known is owner for known in job.owners)


def is_at_rest(job: Job) -> bool:
    """True if nothing happens to a job: it ended, or it is a transient one that sleeps."""
    return job.state.finished() or job.state is JobState.UNSCHEDULED
