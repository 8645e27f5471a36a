"""Attempts under way, here, in another scheduler or in a cluster: watched until their end, and stopped.
Opens no attempt: that is in `attempts`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from tenuto.errors import WorkspaceError
from tenuto.launchers.protocols import Process
from tenuto.launchers.runner.terms import ENDED
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.decisions import Verdict, is_told
from tenuto.scheduler.entries import Phase
from tenuto.scheduler.handover import Handovers
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.verdicts import Verdicts, has_answer, launch_of
from tenuto.workspace import job_directory
from tenuto.workspace.derive_table import Action
from tenuto.workspace.inotify import DirectoryWatch
from tenuto.workspace.job_directory import Settled
from tenuto.workspace.ports import LockHandle, Machine
from tenuto.workspace.records import LaunchRecord, PidRecord, StopRecord

POLL_S = 2.0
"""How long a change of a directory can stay unseen where the kernel does not tell."""
FIRST_POLL_S = 0.02
DIRECTORY_GONE = "DIR_GONE: its directory was deleted while it ran"
STOP_GRACE_S = 5.0
"""How long a runner may take, beyond the grace of its job, before it is killed itself."""
STALE_LOCK_S = 60.0
"""How long a process may hold the lock of a job whose runner is dead before the job counts as lost."""


class Watches(Verdicts):
    """Waits for attempts, and says what became of them."""

    def __init__(
        self, machine: Machine, watch: Callable[[str], DirectoryWatch | None], handovers: Handovers
    ) -> None:
        super().__init__(machine, handovers)
        self._watch_directory = watch

    async def until_ended(self, job: Job) -> Verdict:
        """Waits while a process has the job, then says what the attempt amounts to."""
        pause = FIRST_POLL_S
        known = job.attempt
        give_up = self.machine.clock.monotonic() + STALE_LOCK_S
        while True:
            found = self.look(job)
            job.attempt = found.derived.attempt
            if has_answer(job, found):
                if self._is_whole(job, found):
                    return self._verdict(job, found)
                await self.changed(job.paths.directory, pause)
                pause = min(2 * pause, POLL_S)
                continue
            if known and found.derived.action is Action.START and not found.derived.attempt:
                return Verdict(JobState.ERROR, JobFailureStatus.DELETED, DIRECTORY_GONE)
            known = max(known, found.derived.attempt)
            if found.derived.action is not Action.WATCH:
                verdict = await self._judge(job)
                if verdict is not None:
                    return verdict
            elif await self._watch_runner(job, found):
                give_up = self.machine.clock.monotonic() + STALE_LOCK_S
                if not found.derived.external:
                    continue
                # A cluster may say that an attempt ended before its directory, or the fence, shows it.
            elif found.derived.state is not JobState.ERROR:
                give_up = self.machine.clock.monotonic() + STALE_LOCK_S
            elif self.machine.clock.monotonic() > give_up:
                holders = self.machine.locks.holders(job.paths.lock)
                message = f"{found.derived.message}; the lock is held by {holders or 'another machine'}"
                return Verdict(JobState.ERROR, JobFailureStatus.LOST, message)
            await self.changed(job.paths.directory, pause)
            pause = min(2 * pause, POLL_S)

    def _is_whole(self, job: Job, found: Settled) -> bool:
        """Whether what a job with a final state has left is whole; mended, unless its own runner ended here.

        False while another process, which has the lock, mends it.
        """
        if job.process is not None and job.process.exit_code == ENDED:
            return True
        if not self.mend(job, found):
            return False
        self._mend_status(job)
        return True

    async def _judge(self, job: Job) -> Verdict | None:
        """The job is free and without a final state: decided under the lock; None if another took it."""
        lock = job_directory.take_lock(self.machine, job.paths)
        if lock is None:
            return None
        with contextlib.closing(lock):
            found = job_directory.settle(self.machine, job.paths, lock, ask=self._ask)
            found = await self._swept(job, lock, found)
            if found.derived.action is Action.WATCH:
                return None
            if not self._handovers.give_up(job, found):
                return None
            was_stopped = job.spent_stop is not None
            is_old = is_told(found.derived, job.answered, once=job.once, was_stopped=was_stopped)
            if is_old and not has_answer(job, found):
                return self._unless_cancelled(job, Verdict(JobState.UNSCHEDULED, tries=job.tries))
            return self._concluded(job, found)

    async def _watch_runner(self, job: Job, found: Settled) -> bool:
        """Waits for the end of the runner that another scheduler started; False if it is not known yet."""
        launch = launch_of(found)
        if launch is not None and launch.external:
            return await self._watch_elsewhere(job, launch)
        process = self._process_of(job, found)
        if process is None or found.derived.state is not JobState.RUNNING:
            return False
        job.attach(process)
        if job.state is JobState.SCHEDULED:
            pid = found.evidence.pid
            job.set_state(JobState.RUNNING, since=pid.started if isinstance(pid, PidRecord) else None)
        self._heed_wish(job)
        await process.wait()
        return True

    async def _watch_elsewhere(self, job: Job, launch: LaunchRecord) -> bool:
        """Waits for an attempt that a cluster has; False if no cluster can be asked for it."""
        process = self._handovers.process(job, launch)
        if process is None:
            return False
        job.attach(process)
        with self._handovers.awaiting(job, launch):
            self._heed_wish(job)
            await self._await_elsewhere(job, launch, process)
        return True

    async def _await_elsewhere(self, job: Job, launch: LaunchRecord, process: Process) -> None:
        """Waits, pending or running, until the process has ended or the attempt is revoked."""
        if self._handovers.is_revoked(job, launch):
            return
        if job.state is JobState.SCHEDULED:
            if not await self._handovers.unless_revoked(job, process.confirmed):
                return
            job.state = JobState.RUNNING
        await self._handovers.unless_revoked(job, process.wait)

    def _heed_wish(self, job: Job) -> None:
        """Stop an attempt that a process wished to cancel, and died before it told the runner."""
        if job.stop is None:
            wish = self._wish(job)
            if wish is not None and wish.reason is JobFailureStatus.CANCELLED:
                job.stop = wish
        self.request_stop(job)

    def _process_of(self, job: Job, found: Settled) -> Process | None:
        launch = launch_of(found)
        pid = found.evidence.pid
        if launch is None or not isinstance(pid, PidRecord) or pid.attempt != launch.attempt:
            return None
        return job.launcher.find(job.paths, launch, pid)

    def stop(self, job: Job, message: str) -> None:
        """Have the attempt at a job end because a person cancelled it."""
        now = self.machine.clock.now()
        job.stop = StopRecord(max(job.attempt, 1), JobFailureStatus.CANCELLED, now, message)
        self.request_stop(job)

    def kill_runner(self, job: Job, attempt: int) -> None:
        """Kill a runner that did not end its job in time."""
        if job.phase is Phase.RUNNING and job.attempt == attempt and job.process is not None:
            job.process.kill()

    def request_stop(self, job: Job) -> None:
        """Asks the runner of a job to end it, if that is wanted, with the reason written down first."""
        if job.stop is None:
            return
        is_handed_over = self._handovers.is_awaited(job)
        if job.process is not None or is_handed_over:
            stop = job.stop._replace(attempt=job.attempt)
            with contextlib.suppress(OSError):  # a full disk takes the reason, but must not save the job
                job_directory.request_stop(self.machine.files, job.paths, stop)
        if is_handed_over:
            self._handovers.stop(job)
        if job.process is not None:
            job.process.signal_stop()

    async def changed(self, directory: str, timeout_s: float = POLL_S) -> None:
        """Returns when something in the directory changed, or after a while."""
        watch = self._watch_directory(directory)
        if watch is None:
            await asyncio.sleep(timeout_s)
            return
        loop = asyncio.get_running_loop()
        changed = loop.create_future()

        def wake() -> None:
            if not changed.done():
                changed.set_result(None)

        with contextlib.closing(watch):
            loop.add_reader(watch.fileno(), wake)
            try:
                async with asyncio.timeout(timeout_s):
                    await changed
            except TimeoutError:
                pass
            finally:
                loop.remove_reader(watch.fileno())

    def mend(self, job: Job, found: Settled, lock: LockHandle | None = None) -> bool:
        """Writes the parameters of a job that is done once more, if a power loss took them.

        And the status of one that runs once, if its runner was killed before it wrote that; an experiment
        does so when it ends, for its job may be one of ten thousand that are found done.
        `lock`: the job's, if the caller has it. False if it is needed, and another has it.
        """
        marker = found.derived.marker
        if job.once and marker is not None:
            self._mend_status(job, lock)
        if marker is None or found.derived.state is not JobState.DONE:
            return True
        if job_directory.has_its_params(self.machine.files, job.paths, marker):
            return True
        taken = lock or job_directory.take_lock(self.machine, job.paths)
        if taken is None:
            return False
        try:
            params = job.work.params(job.layout, job.paths)
            self.machine.files.replace(job.paths.params, params, durable=True)
        finally:
            if lock is None:
                taken.close()
        return True

    def _mend_status(self, job: Job, lock: LockHandle | None = None) -> None:
        """Writes the status as the marker says; a courtesy, as every reader of ours derives the state."""
        with contextlib.suppress(OSError, WorkspaceError):
            job_directory.mend_status(self.machine, job.paths, lock)
