"""Jobs between their submission and their start: they wait, sleep, are ready, or end without having run.
It starts nothing itself: what is ready goes into the queue.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from weakref import WeakSet

from tenuto.lifecycle.states import JobFailureStatus, JobState, TransientMode
from tenuto.scheduler.decisions import known_end
from tenuto.scheduler.dependencies import WaitingGraph
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.ready import ReadyQueue
from tenuto.scheduler.token_desks import TokenDesks
from tenuto.workspace import job_directory
from tenuto.workspace.ports import Machine


class WaitingRoom:
    """Which jobs wait for which, and which sleep; to be used in the loop's thread only."""

    def __init__(
        self, machine: Machine, ready: ReadyQueue, tokens: TokenDesks, changed: Callable[[], None]
    ) -> None:
        """`changed` is called when jobs ended, or fell asleep."""
        self.jobs: set[Job] = set()
        """All that are to run, or run."""
        self._machine = machine
        self._ready = ready
        self._tokens = tokens
        self._changed = changed
        self._graph: WaitingGraph[Job] = WaitingGraph()
        self._asleep: WeakSet[Job] = WeakSet()
        """Transient jobs that nobody needs."""

    # Coming

    def enter(self, first: Job) -> None:
        """Has a job wait for what it depends on; wakes transient jobs that are needed now."""
        ended: list[Job] = []
        for job in self._with_sleepers(first):
            if job.state is not JobState.WAITING:
                job.state = JobState.WAITING
            self.jobs.add(job)
            failed = [d.origin for d in job.dependencies if d.origin.state is JobState.ERROR]
            unfinished = [d.origin for d in job.dependencies if d.origin.state is not JobState.DONE]
            if failed:
                ended += self._strand([job, *self._graph.failed(job)], failed[0])
            elif self._graph.add(job, unfinished):
                job.state = JobState.READY
                self._ready.append(job)
        # Only now is it known who needs whom; and only then may anything start.
        self._spare_unneeded_by(ended)
        self._ready.start_what_fits()

    def enter_transient(self, job: Job) -> None:
        """A new job sleeps until another job or an owner needs it."""
        self._asleep.add(job)

    def enter_again(self, job: Job) -> None:
        """A job that waited for something else has to be run after all, if it is needed."""
        if job.transient is not TransientMode.NONE and not self._graph.is_awaited(job):
            self._put_to_sleep(job)
            self._spare_unneeded_by([job])
        else:
            self.enter(job)

    def make_ready(self, jobs: Sequence[Job]) -> None:
        """All of them, before the first is started: it may be refused, and others not be needed then."""
        for job in jobs:
            job.state = JobState.READY
            self._ready.append(job)
        self._ready.start_what_fits()

    # Going

    def withdraw(self, job: Job) -> None:
        """A job no longer waits for anything."""
        self._graph.withdraw(job)
        if job.needs:
            self._tokens.withdraw(job)

    def leave(self, job: Job) -> None:
        """A job has ended, or sleeps: the jobs that wait for its end are told, and its tokens are free."""
        self.jobs.discard(job)
        if job.needs:
            self._tokens.release(job)
        job.attach(None)
        if job._final_state is not None and not job._final_state.done():
            job._final_state.set_result(job.state)

    def pass_on(self, job: Job) -> None:
        """A job has ended: what waited for it is ready, or cannot run."""
        if job.state is JobState.DONE:
            self.make_ready(self._graph.done(job))
        else:
            self._spare_unneeded_by([job, *self._strand(self._graph.failed(job), job)])

    def _strand(self, jobs: Sequence[Job], cause: Job) -> Sequence[Job]:
        """Jobs that cannot run because another failed; their directories are not touched."""
        root = cause.standing.message if cause.failure_status is JobFailureStatus.DEPENDENCY else None
        message = root or f"{cause.task_id} {cause.job_id[:12]} failed ({_reason(cause)})"
        for job in jobs:
            job.set_state(JobState.ERROR, JobFailureStatus.DEPENDENCY, message)
            self.leave(job)
        self._changed()
        return jobs

    # Sleeping

    def is_asleep(self, job: Job) -> bool:
        """Whether nobody needs a transient job."""
        return job in self._asleep

    def _with_sleepers(self, first: Job) -> list[Job]:
        """A job, and those that sleep and are needed for it, each once; they are awake then."""
        if first in self._asleep:
            self._wake(first)
        woken = [first]
        for job in woken:
            for needed in job.dependencies:
                if needed.origin in self._asleep:
                    self._wake(needed.origin)
                    woken.append(needed.origin)
        return woken

    def _wake(self, job: Job) -> None:
        """A job or an owner needs a job that slept: how it ended elsewhere meanwhile is no answer to that."""
        self._asleep.discard(job)
        with contextlib.suppress(OSError):  # its start looks again, and says what is wrong
            job.answered = known_end(job_directory.look(self._machine, job.paths).derived)

    def _put_to_sleep(self, job: Job) -> None:
        """Nobody needs a transient job any more."""
        self.withdraw(job)
        if job.state is JobState.READY:
            job.state = JobState.WAITING
        job.state = JobState.UNSCHEDULED
        self.leave(job)
        job._final_state = None
        self._asleep.add(job)
        self._changed()

    def _spare_unneeded_by(self, ended: Iterable[Job]) -> None:
        """Jobs ended without having run: a transient job that waits for their sake alone need not run."""
        pending = list(ended)
        while pending:
            for needed in self._needed_only_by(pending.pop()):
                self._put_to_sleep(needed)
                pending.append(needed)

    def _needed_only_by(self, job: Job) -> list[Job]:
        """The transient jobs that wait, and that only a job needed which does not wait any more."""
        return [
            needed
            for needed in (dependency.origin for dependency in job.dependencies)
            if needed.transient is not TransientMode.NONE
            and needed.state in (JobState.WAITING, JobState.READY)
            and not self._graph.is_awaited(needed)
        ]


def _reason(job: Job) -> str:
    return job.failure_status.name if job.failure_status else job.state.name
