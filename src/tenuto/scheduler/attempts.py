"""One attempt at a job, from the lock to the verdict: the start sequence of the lifecycle.
It works on one job at a time; which job, and when, is decided in `core`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial

from tenuto.errors import LaunchRefused, LockLost
from tenuto.launchers.instructions import Instructions
from tenuto.launchers.protocols import Process, StartOrder
from tenuto.launchers.script import job_script
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.decisions import (
    NO_TRIES,
    Arrival,
    Verdict,
    on_arrival,
    tries_to_come,
)
from tenuto.scheduler.handover import Handovers
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.tokens import NO_TOKENS, Grant, recorded
from tenuto.scheduler.verdicts import has_answer, launch_of, status_of
from tenuto.scheduler.watches import Watches
from tenuto.workspace import job_directory
from tenuto.workspace.claims import Claimer, claim
from tenuto.workspace.derive_table import Action
from tenuto.workspace.inotify import DirectoryWatch
from tenuto.workspace.job_directory import Settled
from tenuto.workspace.ports import DESCENDANTS_BYTE, LockHandle, Machine
from tenuto.workspace.records import EarlierAttempt, LaunchRecord, LocksRecord

MOST_EARLIER = 20
"""How many earlier attempts a launch record tells of."""


class Attempts(Watches):
    """Starts jobs, waits for them, and says what became of them."""

    def __init__(
        self,
        machine: Machine,
        watch: Callable[[str], DirectoryWatch | None],
        handovers: Handovers,
        behind: Callable[[], int] = lambda: 0,
    ) -> None:
        """`behind`: how many jobs wait."""
        super().__init__(machine, watch, handovers)
        self._behind = behind

    async def run(self, job: Job, grant: Grant | None = None) -> Verdict:
        """Starts the job, or waits for the runner that has it, until an attempt ended.

        `grant`: the locks that a job with tokens has already; they are closed when its runner has them, or
        in the end.
        """
        if grant is None:
            lock = job_directory.take_lock(self.machine, job.paths)
            if lock is None:
                return await self._until_others_ended(job)
            return await self._start(job, lock)
        with contextlib.closing(grant):
            if grant.lock is None:
                return await self._until_others_ended(job)
            return await self._start(job, grant.lock, grant)

    def announce_wait(self, job: Job) -> None:
        """Tells the launcher of a job how many jobs wait: it may prepare their starts while others run."""
        expect = getattr(job.launcher, "expect", None)
        if expect is not None and (behind := self._behind()):
            expect(behind)

    def cancel_waiting(self, job: Job, reason: JobFailureStatus, message: str) -> None:
        """Records that a job which is not running was ended by a person.

        A job that another scheduler runs meanwhile is left alone.
        """
        lock = job_directory.take_lock(self.machine, job.paths)
        if lock is None:
            return
        with contextlib.closing(lock):
            found = job_directory.settle(self.machine, job.paths, lock, ask=self._ask)
            if found.derived.action is Action.START and self._handovers.give_up(job, found):
                launch = self._open(job, lock, found)
                self._mark(job, launch, reason, message)

    async def _start(self, job: Job, lock: LockHandle, grant: Grant = NO_TOKENS) -> Verdict:
        opened = await self._opened(job, lock, grant)
        if opened is None:
            return await self._until_watched_ended(job)
        if isinstance(opened, Verdict):
            return opened
        if opened.external:
            return await self._hand_over(job, lock, opened, grant)
        process = await self._launched(job, lock, opened, grant)
        await process.wait()
        return await self.until_ended(job)

    async def _opened(self, job: Job, lock: LockHandle, grant: Grant) -> LaunchRecord | Verdict | None:
        """The attempt that is to be launched; or the verdict, if the directory shows it; or None, if another
        process has the job. Closes the lock, and the tokens of a local job, unless an attempt was opened.
        """
        with contextlib.ExitStack() as held:
            held.callback(lock.close)
            if not job.launcher.external:  # the runner of an external one holds no tokens
                held.callback(grant.close)
            found = job_directory.settle(self.machine, job.paths, lock, ask=self._ask)
            self._decide(job, found)
            self._schedule(job, found)
            found = await self._swept(job, lock, found)
            if has_answer(job, found):
                self.mend(job, found, lock)
                return self._verdict(job, found)
            if found.derived.action is not Action.WATCH and not self._handovers.give_up(job, found):
                return None
            if job.once and on_arrival(found.derived, once=True) is Arrival.TAKE:
                return self._concluded(job, found)
            if found.derived.action is Action.WATCH:
                return None
            if found.derived.action is Action.SWEEP:
                launch = launch_of(found) or self._open(job, lock, found)
                self._mark(job, launch, JobFailureStatus.LOST, found.derived.message)
                return Verdict(JobState.ERROR, JobFailureStatus.LOST, found.derived.message)
            launch = self._open(job, lock, found, grant.environment)
            stop = job.stop
            if stop is not None:  # cancelled while leftovers were ended, or while the machine was short
                self._mark(job, launch, stop.reason, stop.message)
                return Verdict(JobState.ERROR, stop.reason, stop.message)
            held.pop_all()
            return launch

    def _decide(self, job: Job, found: Settled) -> None:
        """Decide whether a job is run again, now that what it depends on is done."""
        marker = found.derived.marker
        if job.is_doubtful and job.reuse is not None and marker is not None:
            job.is_doubtful = False
            if job.rerun_of == marker.nonce and job.reuse.is_valid(job, marker):
                job.rerun_of, job.empties = None, False

    async def _launched(self, job: Job, lock: LockHandle, launch: LaunchRecord, grant: Grant) -> Process:
        """The process of an attempt on this machine, once its runner is up and has the locks."""
        with contextlib.ExitStack() as held:
            held.callback(lock.close)
            held.callback(grant.close)
            descendants = self.machine.locks.try_lock(job.paths.lock, DESCENDANTS_BYTE)
            if descendants is None:
                raise LockLost(f"something still runs in {job.paths.directory}")
            held.callback(descendants.close)
            try:
                params = self._write_files(job, launch, grant)
                process = await job.aio_run(
                    StartOrder(
                        job.paths,
                        launch,
                        lock,
                        descendants,
                        (*grant.handles, *job.slot_units),
                        params,
                        self._behind(),
                    )
                )
            except LaunchRefused as refused:
                self._mark(job, launch, JobFailureStatus.REJECTED, str(refused))
                raise
            except OSError:
                self._withdraw(job, launch)
                raise
            self.request_stop(job)
            try:
                is_running = await process.confirmed()
            except OSError:  # the machine refused the runner something: the payload never began
                await process.wait()
                self._withdraw(job, launch)
                raise
        if is_running:
            job.state = JobState.RUNNING
        return process

    def _withdraw(self, job: Job, launch: LaunchRecord) -> None:
        """Records that nothing was run; on a full disk only this scheduler knows."""
        try:
            job_directory.withdraw_attempt(self.machine.files, job.paths, launch)
        except OSError:
            self._refused.add(launch.nonce)

    def _schedule(self, job: Job, found: Settled) -> None:
        """Moves a job to SCHEDULED, told with the attempt that is about to be opened, or that was found.

        Before anything is waited for, and so before that attempt is recorded: a job that is READY meanwhile
        would be cancelled as if nothing had begun.
        """
        is_found = has_answer(job, found) or found.derived.action is Action.WATCH
        files, paths = self.machine.files, job.paths
        attempt = found.derived.attempt if is_found else job_directory.next_attempt(files, paths, found)
        job.set_state(JobState.SCHEDULED, attempt=attempt)

    async def _hand_over(self, job: Job, lock: LockHandle, launch: LaunchRecord, grant: Grant) -> Verdict:
        """Has another system run an attempt that is open: without locks, which its runner takes itself."""
        try:
            with contextlib.closing(lock):
                params = self._write_files(job, launch, grant)
        except OSError:
            self._revoke(job, launch)
            raise
        with self._handovers.awaiting(job, launch):
            try:
                order = StartOrder(job.paths, launch, None, None, params=params)
                start = partial(job.launcher.start, order)
                process = await self._handovers.unless_revoked(job, start, _end_late)
            except LaunchRefused as refused:
                self._reject(job, launch, str(refused))
                raise
            except OSError:
                self._revoke(job, launch)
                raise
            del params, order, start  # it may wait for days, beside thousands of others
            if process is not None:
                job.attach(process)
                self.request_stop(job)
                await self._await_elsewhere(job, launch, process)
        return await self.until_ended(job)

    def _revoke(self, job: Job, launch: LaunchRecord) -> None:
        """Gives up an attempt that could not be handed over."""
        with contextlib.suppress(OSError):  # then its cluster says, some day, that it never began
            claim(self.machine, job.paths, launch.nonce, Claimer.SCHEDULER)

    def _reject(self, job: Job, launch: LaunchRecord, message: str) -> None:
        """Marks an attempt that its launcher refused, unless something has the job all the same."""
        if not claim(self.machine, job.paths, launch.nonce, Claimer.SCHEDULER):
            return
        lock = job_directory.take_lock(self.machine, job.paths)
        if lock is not None:
            with contextlib.closing(lock):
                found = job_directory.read_launch(self.machine.files, job.paths)
                if found is not None and found.nonce == launch.nonce:
                    self._mark(job, launch, JobFailureStatus.REJECTED, message)

    def _open(
        self,
        job: Job,
        lock: LockHandle,
        found: Settled,
        environment: Mapping[str, str] = NO_TOKENS.environment,
    ) -> LaunchRecord:
        """The intent, recorded before anything happens."""
        if found.derived.attempt and not job.empties:
            job.rotate_logs(self.machine.files)
        # From the directory, not from memory: the scheduler that counted them before may have been killed.
        tries = tries_to_come(self._explained(job, found.derived), self._tries(launch_of(found)), job.retry)
        if found.derived.revoked:  # by this scheduler, perhaps, which has counted the loss before
            tries = tries.with_losses_of(job.tries)
        job.tries = tries
        job.grow()
        launch = job_directory.open_attempt(
            self.machine,
            job.paths,
            lock,
            found,
            launcher=job.launcher.name,
            job_name=job.job_id,
            journal=job.layout.job_journal(job.task_id, job.job_id),
            external=job.launcher.external,
            retry_count=job.tries.retry_count,
            lost_count=job.tries.lost_count,
            blameless_count=job.tries.blameless_count,
            memory_count=job.tries.memory_count,
            failed_count=job.tries.failed_count,
            earlier=_earlier(found) if job.tries != NO_TRIES else (),
            owner=job.owners[0].id if job.owners else None,
            instructions=Instructions(
                job.task_id,
                job.job_id,
                limits=job.limits,
                environment={**job.work.environment, **environment} if environment else job.work.environment,
                durability=job.durability,
                command=job.work.command(),
                submitted=job.submittime,
                retry=job.retry.recorded(),
                carbon=job.carbon_plan,
                tokens=recorded(job.tokens),
                slots=job.slots,
                record=job.record(),
                asked=getattr(job.launcher, "asked", job.asked),
            ).encode(),
            empties=job.empties,
        )
        job.life, job.empties = launch.life, False
        job.attempt = launch.attempt
        job.answered = launch.attempt - 1
        job.is_found = False
        return launch

    def _write_files(self, job: Job, launch: LaunchRecord, grant: Grant) -> bytes:
        """What the runner and its monitors read; the parameters as they are written."""
        files = self.machine.files
        params = job.work.params(job.layout, job.paths)
        job_directory.write_params(files, job.paths, params)
        job_directory.write_script(files, job.paths, job_script(job.paths.script_name))
        job_directory.write_status(files, job.paths, status_of(job, launch, job.standing))
        if grant.units:
            locks = LocksRecord(launch.attempt, grant.units, grant.directory)
            job_directory.write_locks(files, job.paths, locks)
        return params

    async def _until_others_ended(self, job: Job) -> Verdict:
        """Another process has the lock: to run the job, or only to see whether it can be removed.

        What was known of it may be of a directory that is gone by now, and must not make the new one look
        as if it had been deleted while the job ran.
        """
        job.attempt = 0
        attempt = job_directory.look(self.machine, job.paths).derived.attempt
        job.set_state(JobState.SCHEDULED, attempt=attempt)
        return await self._until_watched_ended(job)

    async def _until_watched_ended(self, job: Job) -> Verdict:
        """Waits for an attempt that another process runs, which has slots of its own."""
        job.let_go_of_slots()
        return await self.until_ended(job)


def _earlier(found: Settled) -> tuple[EarlierAttempt, ...]:
    """The story of a job that is tried again, to be kept with the attempt that is about to be opened."""
    launch, reason = launch_of(found), found.derived.reason
    if launch is None or reason is None:
        return () if launch is None else launch.earlier
    limits = Instructions.of(launch).limits
    last = EarlierAttempt(launch.attempt, reason, limits.memory_bytes, limits.walltime_s)
    return (*launch.earlier, last)[-MOST_EARLIER:]


def _end_late(process: Process) -> None:
    """A cluster took an attempt after it was revoked: its runner would exit at once; it need not wait."""
    process.signal_stop()
    process.close()
