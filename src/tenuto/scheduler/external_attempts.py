"""Attempts that another system runs, as far as this scheduler waits for them: asked for, awaited, revoked.
Judges nothing: `attempts` says what an attempt amounts to.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from tenuto.errors import LaunchRefused
from tenuto.launchers.clusters import Clusters
from tenuto.launchers.protocols import Process
from tenuto.lifecycle.states import JobState
from tenuto.scheduler.jobs import Job
from tenuto.workspace.claims import Claim, Claimer, claim, claimer
from tenuto.workspace.derive import ClusterReport
from tenuto.workspace.derive_table import Claimed
from tenuto.workspace.job_directory import Settled
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.ports import Machine
from tenuto.workspace.records import LaunchRecord

logger = logging.getLogger("tenuto.scheduler")

T = TypeVar("T")


class Awaiting:
    """A context in which a scheduler waits for one attempt, and its job says what its cluster says of it."""

    __slots__ = ("_handovers", "_job", "_launch", "_loop", "_told")  # a generator would take 400 bytes more

    def __init__(self, handovers: ExternalAttempts, job: Job, launch: LaunchRecord) -> None:
        self._handovers = handovers
        self._job = job
        self._launch = launch
        self._loop = asyncio.get_running_loop()
        self._told = handovers.clusters.told(job.paths, launch, self._tell)

    def __enter__(self) -> None:
        self._handovers.awaited[self._job] = self._launch
        self._told.__enter__()

    def __exit__(self, *_: object) -> None:
        self._handovers.awaited.pop(self._job, None)
        self._told.__exit__(None, None, None)

    def _tell(self) -> None:
        """Called in a thread of the cluster's."""
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(self._handovers.explain, self._job, self._launch)


class ExternalAttempts:
    """The external attempts of one scheduler's jobs; to be used in the loop's thread, but for `ask`."""

    def __init__(self, machine: Machine, clusters: Clusters) -> None:
        self._machine = machine
        self.clusters = clusters
        self.awaited: dict[Job, LaunchRecord] = {}
        """The attempts that are handed over, or being handed over."""
        self._revoked: dict[Job, asyncio.Future[None]] = {}
        """Wakes the coroutine that waits for an attempt, when that has ended or this scheduler revokes it."""

    def ask(self, paths: JobPaths, launch: LaunchRecord) -> ClusterReport:
        """What the cluster of an attempt knows of it."""
        return self.clusters.report(paths, launch)

    def process(self, job: Job, launch: LaunchRecord) -> Process | None:
        """The process of an attempt that a cluster has, pending or running."""
        return self.clusters.process(job.paths, launch)

    def awaiting(self, job: Job, launch: LaunchRecord) -> Awaiting:
        """While this lasts, a request to stop the job revokes its attempt, if that has not begun."""
        return Awaiting(self, job, launch)

    def explain(self, job: Job, launch: LaunchRecord) -> None:
        """Has a job that waits in its cluster say why: the queue is full, it is held, no answer comes."""
        if self.awaited.get(job) is launch and job.state is JobState.SCHEDULED:
            job.explain(self.ask(job.paths, launch).message)

    async def unless_revoked(
        self, job: Job, begin: Callable[[], Coroutine[Any, Any, T]], late: Callable[[T], None] | None = None
    ) -> T | None:
        """What the coroutine that `begin` makes returns; None once the attempt was revoked.

        `late`: gets what the coroutine returns after that; without it the coroutine is cancelled.
        """
        loop = asyncio.get_running_loop()
        waiting = loop.create_task(_outcome(begin))
        changed = self._revoked[job] = loop.create_future()
        waiting.add_done_callback(partial(_wake, changed))  # `asyncio.wait` would take 1 kB more a job
        try:
            await changed
            if waiting.done():
                returned, refused = waiting.result()
                if refused is not None:
                    raise refused
                return returned
        finally:
            self._revoked.pop(job, None)
            if not waiting.done():
                if late is None:
                    waiting.cancel()
                else:
                    waiting.add_done_callback(lambda done: _hand_on(done, late))
        return None

    def is_awaited(self, job: Job) -> bool:
        """Whether an attempt of the job is handed over."""
        return job in self.awaited

    def is_revoked(self, job: Job, launch: LaunchRecord) -> bool:
        """Whether a scheduler gave the attempt up before it began."""
        made = claimer(self._machine, job.paths, launch.nonce)
        return isinstance(made, Claim) and made.by is Claimer.SCHEDULER

    def stop(self, job: Job) -> None:
        """A request to stop is written down: an attempt that has not begun is revoked, and never begins."""
        launch = self.awaited.get(job)
        if launch is None:
            return
        with contextlib.suppress(OSError):  # then its runner reads the request
            if claim(self._machine, job.paths, launch.nonce, Claimer.SCHEDULER):
                self.clusters.stop(job.paths, launch)
                if job in self._revoked:
                    _wake(self._revoked[job], None)

    def give_up(self, job: Job, found: Settled) -> bool:
        """Makes sure, under the job's lock, that nothing begins the attempt found there any more.

        To be called before the next attempt is opened, or a marker is written for this one. False if a
        runner has begun it since its cluster was asked.
        """
        launch = found.evidence.launch
        is_external = isinstance(launch, LaunchRecord) and launch.external
        if not is_external or found.derived.marker is not None:
            return True
        assert isinstance(launch, LaunchRecord)
        if found.evidence.claimed is not Claimed.NONE:
            return True  # revoked, or the cluster said after the claim was made that it ended
        return claim(self._machine, job.paths, launch.nonce, Claimer.SCHEDULER)


async def _outcome(begin: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T | None, Exception | None]:
    """The value or the error of a coroutine: a task without a waiter must not raise."""
    try:
        return await begin(), None
    except (LaunchRefused, OSError) as refused:
        return None, refused


def _wake(changed: asyncio.Future[None], _: object) -> None:
    if not changed.done():
        changed.set_result(None)


def _hand_on(done: asyncio.Task[tuple[T | None, Exception | None]], late: Callable[[T], None]) -> None:
    if done.cancelled():
        return
    error = done.exception()
    if error is not None:
        logger.error("a start failed", extra={"action": "start_failed"}, exc_info=error)
        return
    returned, _ = done.result()
    if returned is not None:
        late(returned)
