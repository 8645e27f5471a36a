"""One attempt at a job, from the lock to the verdict: the start sequence of the lifecycle.
It works on one job at a time; which job, and when, is `base`'s business.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial

from tenuto.errors import LaunchRefused, LockLost, WorkspaceError
from tenuto.launchers.instructions import instruct
from tenuto.launchers.protocols import Process, StartOrder
from tenuto.launchers.runner.exits import ENDED
from tenuto.launchers.script import job_script
from tenuto.lifecycle.states import JobFailureStatus, JobState, Standing
from tenuto.scheduler.decisions import (
    Arrival,
    Tries,
    Verdict,
    after_attempt,
    on_arrival,
    tries_of,
    tries_to_come,
)
from tenuto.scheduler.handover import Handovers
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.tokens import NO_TOKENS, Grant, recorded
from tenuto.workspace import job_directory
from tenuto.workspace.claims import Claimer, claim
from tenuto.workspace.derive import Derived
from tenuto.workspace.derive_table import Action
from tenuto.workspace.inotify import DirectoryWatch
from tenuto.workspace.job_directory import Settled
from tenuto.workspace.markers import Marker
from tenuto.workspace.ports import DESCENDANTS_BYTE, Liveness, LockHandle, Machine
from tenuto.workspace.records import LaunchRecord, LocksRecord, PidRecord, StatusRecord, StopRecord

POLL_S = 2.0
"""How long a change of a directory can stay unseen where the kernel does not tell."""
FIRST_POLL_S = 0.02
DIRECTORY_GONE = "DIR_GONE: its directory was deleted while it ran"
STALE_LOCK_S = 60.0
"""How long a process may hold the lock of a job whose runner is dead before the job counts as lost."""


class Attempts:
    """Starts jobs, waits for them, and says what became of them."""

    def __init__(
        self,
        machine: Machine,
        watch: Callable[[str], DirectoryWatch | None],
        handovers: Handovers,
        behind: Callable[[], int] = lambda: 0,
    ) -> None:
        """`behind`: how many jobs wait."""
        self.machine = machine
        self._handovers = handovers
        self._ask = handovers.ask
        self._watch_directory = watch
        self._behind = behind
        self._refused: set[str] = set()
        """The nonces of attempts that the machine refused, and whose record could not be written."""

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

    def look(self, job: Job) -> Settled:
        """What the directory of a job shows, and its cluster knows; from any thread."""
        return job_directory.look(self.machine, job.paths, ask=self._ask)

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

    # Starting

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
            if not job.launcher.external:  # of others nobody else holds the tokens
                held.callback(grant.close)
            found = job_directory.settle(self.machine, job.paths, lock, ask=self._ask)
            self._schedule(job, found)
            found = await self._swept(job, lock, found)
            if _answers(job, found):
                self.mend(job, found, lock)
                return self._verdict(job, found)
            if found.derived.action is not Action.WATCH and not self._handovers.give_up(job, found):
                return None
            if on_arrival(found.derived, once=job.once) is Arrival.TAKE:
                return self._concluded(job, found)
            if found.derived.action is Action.WATCH:
                return None
            if found.derived.action is Action.SWEEP:
                launch = _launch(found) or self._open(job, lock, found)
                self._mark(job, launch, JobFailureStatus.LOST, found.derived.message)
                return Verdict(JobState.ERROR, JobFailureStatus.LOST, found.derived.message)
            launch = self._open(job, lock, found, grant.environment)
            stop = job.stop
            if stop is not None:  # cancelled while leftovers were ended, or while the machine was short
                self._mark(job, launch, stop.reason, stop.message)
                return Verdict(JobState.ERROR, stop.reason, stop.message)
            held.pop_all()
            return launch

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

    def _tries(self, launch: LaunchRecord | None) -> Tries:
        """The counts that an attempt recorded, and whether it was refused by the machine."""
        tries = tries_of(launch)
        if launch is not None and launch.nonce in self._refused:
            self._refused.discard(launch.nonce)
            return tries._replace(withdrawn=True)
        return tries

    def _schedule(self, job: Job, found: Settled) -> None:
        """Moves a job to SCHEDULED, told with the attempt that is about to be opened, or that was found.

        Before anything is waited for, and so before that attempt is recorded: a job that is READY meanwhile
        would be cancelled as if nothing had begun.
        """
        is_found = _answers(job, found) or found.derived.action is Action.WATCH
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

    async def _await_elsewhere(self, job: Job, launch: LaunchRecord, process: Process) -> None:
        """Waits, pending or running, until the process has ended or the attempt is revoked."""
        if self._handovers.is_revoked(job, launch):
            return
        if job.state is JobState.SCHEDULED:
            if not await self._handovers.unless_revoked(job, process.confirmed):
                return
            job.state = JobState.RUNNING
        await self._handovers.unless_revoked(job, process.wait)

    def _open(
        self,
        job: Job,
        lock: LockHandle,
        found: Settled,
        environment: Mapping[str, str] = NO_TOKENS.environment,
    ) -> LaunchRecord:
        """The intent, recorded before anything happens."""
        if found.derived.attempt:
            job.rotate_logs(self.machine.files)
        # From the directory, not from memory: the scheduler that counted them before may have been killed.
        tries = tries_to_come(self._explained(job, found.derived), self._tries(_launch(found)), job.retry)
        if found.derived.revoked:  # by this scheduler, perhaps, which has counted the loss before
            tries = tries._replace(lost_count=max(tries.lost_count, job.tries.lost_count))
        job.tries = tries
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
            owner=job.owners[0].id if job.owners else None,
            instructions=instruct(
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
            ),
        )
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
        job_directory.write_status(files, job.paths, _status(job, launch, job.standing))
        if grant.units:
            locks = LocksRecord(launch.attempt, grant.units, grant.directory)
            job_directory.write_locks(files, job.paths, locks)
        return params

    # Ending

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

    async def until_ended(self, job: Job) -> Verdict:
        """Waits while a process has the job, then says what the attempt amounts to."""
        pause = FIRST_POLL_S
        known = job.attempt
        give_up = self.machine.clock.monotonic() + STALE_LOCK_S
        while True:
            found = self.look(job)
            job.attempt = found.derived.attempt
            if _answers(job, found):
                if job.process is None or job.process.exit_code != ENDED:
                    self._mend_status(job)
                return self._verdict(job, found)
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
            if found.derived.action is Action.KEEP and not _answers(job, found):
                return self._unless_cancelled(job, Verdict(JobState.UNSCHEDULED, tries=job.tries))
            return self._concluded(job, found)

    def _concluded(self, job: Job, found: Settled) -> Verdict:
        """The verdict on an attempt whose runner is gone; a final one is marked, under the job's lock."""
        verdict = self._verdict(job, found)
        launch = _launch(found)
        if verdict.tries is None and found.derived.marker is None and launch is not None:
            self._mark(job, launch, verdict.reason or JobFailureStatus.LOST, verdict.message)
        return verdict

    async def _swept(self, job: Job, lock: LockHandle, found: Settled) -> Settled:
        """What the directory shows under the lock, once leftovers of an earlier attempt are gone.

        A job that lost its runner is swept, even if nobody holds the second byte: what a task starts by
        `subprocess` has no descriptor of its parent's, and goes on when runner and payload are killed.
        """
        lost = found.derived.reason is JobFailureStatus.LOST and found.derived.marker is None
        if not lost or found.evidence.liveness is Liveness.REBOOTED or found.derived.external:
            return found
        alive = await job.launcher.sweep(job.paths, _launch(found))
        found = job_directory.settle(self.machine, job.paths, lock, ask=self._ask)
        if alive:
            message = f"its runner is gone, and what it left cannot be ended: {', '.join(map(str, alive))}"
            stuck = found.derived._replace(action=Action.SWEEP, message=message)
            return found._replace(derived=stuck)
        return found

    def _verdict(self, job: Job, found: Settled) -> Verdict:
        job.attempt = found.derived.attempt
        marker = found.derived.marker
        job.marker = marker and marker.gist()
        launch = _launch(found)
        if launch is not None:
            job.tries = tries_of(launch)
        verdict = after_attempt(self._explained(job, found.derived), job.tries, job.retry)
        return self._unless_cancelled(job, verdict)

    def _explained(self, job: Job, derived: Derived) -> Derived:
        """A runner that vanished after it was asked to stop did what it was asked: it is not tried again."""
        stop = None
        if derived.marker is None:
            if derived.reason is JobFailureStatus.LOST or derived.external:
                stop = self._wish(job)
        elif derived.reason is JobFailureStatus.LOST:
            # Another scheduler marked it, which could not know: a full disk had not taken the wish.
            stop = job.stop
        return derived if stop is None else derived._replace(reason=stop.reason, message=stop.message)

    def _wish(self, job: Job) -> StopRecord | None:
        """The wish to stop the current attempt: of a person here, or written down by another process."""
        return job.stop or job_directory.read_stop(self.machine.files, job.paths, job.attempt)

    def _unless_cancelled(self, job: Job, verdict: Verdict) -> Verdict:
        """A job that a person wants to end is not tried again, whatever ended the attempt."""
        wish = None if verdict.tries is None else self._wish(job)
        if wish is None or wish.reason is not JobFailureStatus.CANCELLED:
            return verdict
        return Verdict(JobState.ERROR, wish.reason, wish.message)

    def _is_cancelled(self, job: Job) -> bool:
        wish = self._wish(job)
        return wish is not None and wish.reason is JobFailureStatus.CANCELLED

    def _mark(self, job: Job, launch: LaunchRecord, reason: JobFailureStatus, message: str | None) -> None:
        """Writes the marker that a runner could not write, under the job's lock."""
        now = self.machine.clock.now()
        marker = Marker(
            attempt=launch.attempt,
            nonce=launch.nonce,
            reason=reason,
            message=message,
            starttime=job.starttime,
            endtime=now,
        )
        standing = job.standing._replace(state=JobState.ERROR, reason=reason, message=message, endtime=now)
        job_directory.finish(self.machine.files, job.paths, marker, _status(job, launch, standing))
        job.marker = marker

    # Watching

    async def _watch_runner(self, job: Job, found: Settled) -> bool:
        """Waits for the end of the runner that another scheduler started; False if it is not known yet."""
        launch = _launch(found)
        if launch is not None and launch.external:
            return await self._watch_elsewhere(job, launch)
        process = self._process_of(job, found)
        if process is None or found.derived.state is not JobState.RUNNING:
            return False
        job.attach(process)
        if job.state is JobState.SCHEDULED:
            pid = found.evidence.pid
            job.set_state(JobState.RUNNING, since=pid.started if isinstance(pid, PidRecord) else None)
        if job.stop is None and self._is_cancelled(job):
            job.stop = self._wish(
                job
            )  # the process that wrote it down may have died before it told the runner
        self.request_stop(job)
        await process.wait()
        return True

    async def _watch_elsewhere(self, job: Job, launch: LaunchRecord) -> bool:
        """Waits for an attempt that a cluster has; False if nobody can be asked for it."""
        process = self._handovers.process(job, launch)
        if process is None:
            return False
        job.attach(process)
        with self._handovers.awaiting(job, launch):
            if job.stop is None and self._is_cancelled(job):
                job.stop = self._wish(job)
            self.request_stop(job)
            await self._await_elsewhere(job, launch, process)
        return True

    def _process_of(self, job: Job, found: Settled) -> Process | None:
        launch = _launch(found)
        pid = found.evidence.pid
        if launch is None or not isinstance(pid, PidRecord) or pid.attempt != launch.attempt:
            return None
        return job.launcher.find(job.paths, launch, pid)

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


def _end_late(process: Process) -> None:
    """A cluster took an attempt after it was revoked: its runner would exit at once; it need not wait."""
    process.signal_stop()
    process.close()


def _status(job: Job, launch: LaunchRecord, standing: Standing) -> StatusRecord:
    return StatusRecord(job.job_id, job.task_id, standing, launch.attempt, launch.retry_count)


def _answers(job: Job, found: Settled) -> bool:
    """Whether what is found ends the wait: a final state that is news to the owners of the job.

    Of two schedulers one may find the failure of an attempt that began after its own submission: that is the
    answer, and no reason to try again. The other way round, a failure known before is none, though its marker
    lies there until the holder of the lock has opened the next attempt.
    """
    if found.derived.action is not Action.KEEP:
        return False
    # Not `>`: when a person deletes the directory, the attempts are counted from 1 again.
    is_done = found.derived.state is JobState.DONE and not job.reruns
    return job.once or is_done or found.derived.attempt != job.answered


def _launch(found: Settled) -> LaunchRecord | None:
    launch = found.evidence.launch
    return launch if isinstance(launch, LaunchRecord) else None
