"""Followers of a job: its outputs are handed over while it runs, and callbacks are called when it is done.
The owners of the job wait for them; the loop does not.
"""

from __future__ import annotations

from collections.abc import Callable

from tenuto.lifecycle.states import JobState
from tenuto.scheduler.attempts import Attempts
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.loop import Loop
from tenuto.scheduler.output_worker import TaskOutputsWorker
from tenuto.scheduler.workers import Worker


class Followers:
    """To be used in the loop's thread only."""

    def __init__(
        self, attempts: Attempts, outputs: TaskOutputsWorker, completions: Worker, loop: Loop
    ) -> None:
        self._attempts = attempts
        self._outputs = outputs
        self._completions = completions
        self._loop = loop
        self._followed: set[Job] = set()
        """Running jobs whose outputs an owner watches."""

    def read_and_follow(self, job: Job) -> None:
        """An owner watches the outputs of a job: those that are there, and those to come."""
        self._outputs.read(job)
        self.follow(job)

    def follow(self, job: Job) -> None:
        """Hands over the outputs of a job while it runs, if an owner watches them."""
        if job.state.running() and job.watched_outputs and job not in self._followed:
            self._followed.add(job)
            self._loop.spawn(self._follow_while_running(job))

    async def _follow_while_running(self, job: Job) -> None:
        try:
            while job.state.running():
                await self._attempts.changed(job.paths.private)
                self._outputs.read(job)
        finally:
            self._followed.discard(job)

    def after_outputs(self, job: Job, then: Callable[[], None]) -> None:
        """Calls in the loop once the last outputs of a job, which an owner watches, were handed over."""
        # A job that was found done counts as nothing unfinished, so its owners would not wait for this.
        release = self._outputs.hold(job)

        def handle() -> None:
            self._outputs.read(job)
            self._loop.post(then)
            self._loop.post(release)

        self._completions.call(handle)

    def call_completed(self, job: Job) -> None:
        """Calls the callbacks of a job, once it is settled: they may ask for its result."""
        if job.state is not JobState.DONE or not job.completion_callbacks:
            return
        release = self._outputs.hold(job)

        def handle() -> None:
            try:
                problem = job.done_handler(JobState.DONE)
                if problem is not None:
                    self._outputs.failed(job.owners, problem)
            finally:
                release()

        # After the outputs that were handed over before, and yet not in their thread: it may take its time.
        self._outputs.call(job, lambda: self._completions.call(handle))
