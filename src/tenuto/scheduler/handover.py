"""Attempts that another system runs, as far as this scheduler waits for them: asked for, awaited, revoked.
Judges nothing: what an attempt amounts to is `attempts`' business.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterator
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


class Handovers:
    """The external attempts of one scheduler's jobs; to be used in the loop's thread, but for `ask`."""

    def __init__(self, machine: Machine, clusters: Clusters) -> None:
        self._machine = machine
        self._clusters = clusters
        self._awaited: dict[Job, LaunchRecord] = {}
        """The attempts that are handed over, or being handed over."""
        self._revoked: dict[Job, asyncio.Future[None]] = {}
        """Wakes the coroutine that waits for an attempt which this scheduler revokes."""

    def ask(self, paths: JobPaths, launch: LaunchRecord) -> ClusterReport:
        """What the cluster of an attempt knows of it."""
        return self._clusters.report(paths, launch)

    def process(self, job: Job, launch: LaunchRecord) -> Process | None:
        """The process of an attempt that a cluster has, pending or running."""
        return self._clusters.process(job.paths, launch)

    @contextlib.contextmanager
    def awaiting(self, job: Job, launch: LaunchRecord) -> Iterator[None]:
        """While this lasts, a wish to stop the job revokes its attempt, if that has not begun."""
        self._awaited[job] = launch
        loop = asyncio.get_running_loop()

        def tell() -> None:
            """Called in a thread of the cluster's."""
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(self._explain, job, launch)

        try:
            with self._clusters.told(job.paths, launch, tell):
                yield
        finally:
            self._awaited.pop(job, None)

    def _explain(self, job: Job, launch: LaunchRecord) -> None:
        """Has a job that waits in its cluster say why: the queue is full, it is held, no answer comes."""
        if self._awaited.get(job) is launch and job.state is JobState.SCHEDULED:
            job.explain(self.ask(job.paths, launch).message)

    async def unless_revoked(
        self, job: Job, begin: Callable[[], Coroutine[Any, Any, T]], late: Callable[[T], None] | None = None
    ) -> T | None:
        """What the coroutine that `begin` makes returns; None once the attempt was revoked.

        `late`: gets what the coroutine returns after that; without it the coroutine is cancelled.
        """
        loop = asyncio.get_running_loop()
        waiting = loop.create_task(_outcome(begin))
        revoked = self._revoked[job] = loop.create_future()
        try:
            await asyncio.wait({waiting, revoked}, return_when=asyncio.FIRST_COMPLETED)
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
        return job in self._awaited

    def is_revoked(self, job: Job, launch: LaunchRecord) -> bool:
        """Whether a scheduler gave the attempt up before it began."""
        made = claimer(self._machine, job.paths, launch.nonce)
        return isinstance(made, Claim) and made.by is Claimer.SCHEDULER

    def stop(self, job: Job) -> None:
        """A wish to stop is written down: an attempt that has not begun is revoked, and never begins."""
        launch = self._awaited.get(job)
        if launch is None:
            return
        with contextlib.suppress(OSError):  # then its runner reads the wish
            if claim(self._machine, job.paths, launch.nonce, Claimer.SCHEDULER):
                self._clusters.stop(job.paths, launch)
                revoked = self._revoked.get(job)
                if revoked is not None and not revoked.done():
                    revoked.set_result(None)

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
    """What a coroutine returned, or what it was refused with: a task nobody waits for must not raise."""
    try:
        return await begin(), None
    except (LaunchRefused, OSError) as refused:
        return None, refused


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
