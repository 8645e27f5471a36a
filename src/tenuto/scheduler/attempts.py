"""One attempt at a job, from the lock to the verdict: opened, started, watched, stopped, judged.
Which job, and when, is decided in `core`; the rules by which an attempt is judged are in `decisions`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from weakref import WeakSet

from tenuto.errors import LaunchRefused, LockLost, WorkspaceError
from tenuto.launchers.instructions import Instructions
from tenuto.launchers.protocols import Process, StartOrder
from tenuto.launchers.runner.runner_protocol import ENDED
from tenuto.launchers.script import job_script
from tenuto.lifecycle.states import JobFailureStatus, JobState, StateRecord
from tenuto.scheduler.decisions import (
    NO_TRIES,
    Arrival,
    Tries,
    Verdict,
    after_attempt,
    answers,
    explained,
    is_told,
    on_arrival,
    runs_once,
    tries_of,
    tries_to_come,
    unless_cancelled,
)
from tenuto.scheduler.entries import Phase
from tenuto.scheduler.external_attempts import ExternalAttempts
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.loop import Loop
from tenuto.scheduler.tokens import NO_TOKENS, Grant, recorded
from tenuto.tasks.serialization import MAX_BYTES
from tenuto.tasks.stored_configs import upstream_files
from tenuto.workspace import job_directory
from tenuto.workspace.claims import Claimer, claim
from tenuto.workspace.derive import Derived
from tenuto.workspace.derive_table import Action
from tenuto.workspace.job_directory import Settled
from tenuto.workspace.layout import JobPaths, job_at
from tenuto.workspace.markers import Marker
from tenuto.workspace.ports import DESCENDANTS_BYTE, Liveness, LockHandle, Machine
from tenuto.workspace.records import (
    EarlierAttempt,
    LaunchRecord,
    LocksRecord,
    PidRecord,
    StatusRecord,
    StopRecord,
)

MOST_EARLIER = 20
"""How many earlier attempts a launch record tells of."""
POLL_S = 2.0
"""How long a change of a directory can stay unseen where the kernel does not tell."""
FIRST_POLL_S = 0.02
DIRECTORY_GONE = "DIR_GONE: its directory was deleted while it ran"
STOP_GRACE_S = 5.0
"""How long a runner may take, beyond the grace of its job, before it is killed itself."""
STALE_LOCK_S = 60.0
"""How long a process may hold the lock of a job whose runner is dead before the job counts as lost."""


_MOST_EARLIER = 20
"""Attempts of which a record tells that they were made of something else."""


class Attempts:
    """What all attempts of one scheduler share."""

    def __init__(
        self,
        machine: Machine,
        loop: Loop,
        handovers: ExternalAttempts,
        behind: Callable[[], int] = lambda: 0,
    ) -> None:
        """`behind`: how many jobs wait."""
        self.machine = machine
        self.handovers = handovers
        self.behind = behind
        self._loop = loop
        self.unpacked: WeakSet[Job] = WeakSet()
        """Jobs that lie in their directories, as all they depend on: no packer takes what a run needs."""
        self.refused: set[str] = set()
        """The nonces of attempts that the machine refused, and whose record could not be written."""

    def at(self, job: Job) -> Attempt:
        """The attempt at a job that is under way, or is to come."""
        return Attempt(self, job)

    def announce_wait(self, job: Job) -> None:
        """Tells the launcher of a job how many jobs wait: it may prepare their starts while others run."""
        expect = getattr(job.launcher, "expect", None)
        if expect is not None and (behind := self.behind()):
            expect(behind)

    async def changed(self, directory: str, timeout_s: float = POLL_S) -> None:
        """Returns when something in the directory changed, or after a while."""
        watch = self._loop.watch(directory)
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

    def look(self, job: Job) -> Settled:
        """What the directory of a job shows, and its cluster knows; from any thread."""
        return job_directory.look(self.machine, job.paths, ask=self.handovers.ask)

    def tries(self, launch: LaunchRecord | None) -> Tries:
        """The counts that an attempt recorded, and whether it was refused by the machine."""
        tries = tries_of(launch)
        if launch is not None and launch.nonce in self.refused:
            self.refused.discard(launch.nonce)
            return tries._replace(withdrawn=True)
        return tries


class Attempt:
    """One try at a job, which this scheduler makes, or watches; in the loop's thread."""

    __slots__ = ("_grant", "_handovers", "_machine", "_room", "job")

    def __init__(self, room: Attempts, job: Job) -> None:
        self._room = room
        self._machine = room.machine
        self._handovers = room.handovers
        self.job = job
        self._grant = NO_TOKENS
        """The tokens that it has."""

    async def run(self, grant: Grant | None = None) -> Verdict:
        """Starts the job, or waits for the runner that has it, until an attempt ended.

        `grant`: the locks that a job with tokens has already; they are closed when its runner has them, or
        in the end.
        """
        if grant is None:
            lock = job_directory.take_lock(self._machine, self.job.paths)
            if lock is None:
                return await self._until_others_ended()
            return await self._start(lock)
        with contextlib.closing(grant):
            if grant.lock is None:
                return await self._until_others_ended()
            self._grant = grant
            return await self._start(grant.lock)

    def cancel_waiting(self, reason: JobFailureStatus, message: str) -> None:
        """Records that a job which is not running was ended by a person.

        A job that another scheduler runs meanwhile is left alone.
        """
        lock = job_directory.take_lock(self._machine, self.job.paths)
        if lock is None:
            return
        with contextlib.closing(lock):
            found = self._settled(lock)
            if found.derived.action is Action.START and self._handovers.give_up(self.job, found):
                launch = self._open(lock, found)
                self._mark(launch, reason, message)

    async def _start(self, lock: LockHandle) -> Verdict:
        opened = await self._opened(lock)
        if opened is None:
            return await self._until_watched_ended()
        if isinstance(opened, Verdict):
            return opened
        if opened.external:
            return await self._hand_over(lock, opened)
        process = await self._launched(lock, opened)
        await process.wait()
        return await self.until_ended()

    async def _opened(self, lock: LockHandle) -> LaunchRecord | Verdict | None:
        """The attempt that is to be launched; or the verdict, if the directory shows it; or None, if another
        process has the job. Closes the lock, and the tokens of a local job, unless an attempt was opened.
        """
        with contextlib.ExitStack() as held:
            held.callback(lock.close)
            if not self.job.launcher.external:  # the runner of an external one holds no tokens
                held.callback(self._grant.close)
            found = self._settled(lock)
            self._decide(found)
            self._schedule(found)
            found = await self._swept(lock, found)
            await self._unpack_upstream()
            if has_answer(self.job, found):
                self.mend(found.derived, lock)
                return self._verdict(found)
            if found.derived.action is not Action.WATCH and not self._handovers.give_up(self.job, found):
                return None
            if on_arrival(found.derived, once=_once(self.job, found)) is Arrival.TAKE:
                return self._concluded(found)
            if found.derived.action is Action.WATCH:
                return None
            if found.derived.action is Action.SWEEP:
                launch = launch_of(found) or self._open(lock, found)
                self._mark(launch, JobFailureStatus.LOST, found.derived.message)
                return Verdict(JobState.ERROR, JobFailureStatus.LOST, found.derived.message)
            if not self.job.empties and (other := self._of_other_values(launch_of(found))) is not None:
                if self.job.retry.resumable:
                    return Verdict(JobState.ERROR, JobFailureStatus.REJECTED, other)
                self.job.empties = True
            launch = self._open(lock, found, self._grant.environment)
            stop = self.job.stop
            if stop is not None:  # cancelled while leftovers were ended, or while the machine was short
                self._mark(launch, stop.reason, stop.message)
                return Verdict(JobState.ERROR, stop.reason, stop.message)
            held.pop_all()
            return launch

    async def _unpack_upstream(self) -> None:
        """Put back what the job depends on, directly or not, and was packed: the task may open its files."""
        pending = [self.job]
        while pending:
            for one in {dependency.origin for dependency in pending.pop().dependencies}:
                if one not in self._room.unpacked:
                    await self._unpack(one.paths)
                    self._room.unpacked.add(one)
                    pending.append(one)

    async def _unpack_named(self, params: bytes) -> None:
        """The same for jobs that its parameters alone name: it was made of stored ones, or of outputs."""
        known = {self.job.paths.directory}
        known.update(dependency.origin.paths.directory for dependency in self.job.dependencies)
        pending = [(self.job.paths, params)]
        while pending:
            paths, content = pending.pop()
            for one in upstream_files(content, paths.directory):
                needed = job_at(one.rpartition("/")[0])
                if needed.directory not in known:
                    known.add(needed.directory)
                    await self._unpack(needed)
                    with contextlib.suppress(OSError, WorkspaceError):  # the task will say that it is gone
                        pending.append((needed, self._machine.files.read(one, MAX_BYTES)))

    async def _unpack(self, paths: JobPaths) -> None:
        while not job_directory.unpacked(self._machine, paths):  # noqa: ASYNC110
            await asyncio.sleep(FIRST_POLL_S)

    def _decide(self, found: Settled) -> None:
        """Decide whether a job is run again, now that its dependencies are done."""
        marker = found.derived.marker
        if self.job.is_doubtful and self.job.reuse is not None and marker is not None:
            self.job.is_doubtful = False
            if self.job.rerun_of == marker.nonce and self.job.reuse.is_valid(self.job, marker):
                self.job.rerun_of, self.job.empties, self.job.is_found = None, False, True

    async def _launched(self, lock: LockHandle, launch: LaunchRecord) -> Process:
        """The process of an attempt on this machine, once its runner is up and has the locks."""
        with contextlib.ExitStack() as held:
            held.callback(lock.close)
            held.callback(self._grant.close)
            descendants = self._machine.locks.try_lock(self.job.paths.lock, DESCENDANTS_BYTE)
            if descendants is None:
                raise LockLost(f"something still runs in {self.job.paths.directory}")
            held.callback(descendants.close)
            try:
                params = await self._write_files(launch)
                process = await self.job.aio_run(
                    StartOrder(
                        self.job.paths,
                        launch,
                        lock,
                        descendants,
                        (*self._grant.handles, *self.job.slot_units),
                        params,
                        self._room.behind(),
                    )
                )
            except LaunchRefused as refused:
                self._mark(launch, JobFailureStatus.REJECTED, str(refused))
                raise
            except OSError:
                self._withdraw(launch)
                raise
            self.request_stop()
            try:
                is_running = await process.confirmed()
            except OSError:  # the machine refused the runner something: the payload never began
                await process.wait()
                self._withdraw(launch)
                raise
        if is_running:
            self.job.state = JobState.RUNNING
        return process

    def _withdraw(self, launch: LaunchRecord) -> None:
        """Records that nothing was run; on a full disk only this scheduler knows."""
        try:
            job_directory.withdraw_attempt(self._machine.files, self.job.paths, launch)
        except OSError:
            self._room.refused.add(launch.nonce)

    def _schedule(self, found: Settled) -> None:
        """Moves a job to SCHEDULED, told with the attempt that is about to be opened, or that was found.

        Before anything is waited for, and so before that attempt is recorded: a job that is READY meanwhile
        would be cancelled as if nothing had begun.
        """
        is_found = has_answer(self.job, found) or found.derived.action is Action.WATCH
        files, paths = self._machine.files, self.job.paths
        attempt = found.derived.attempt if is_found else job_directory.next_attempt(files, paths, found)
        self.job.set_state(JobState.SCHEDULED, attempt=attempt)

    async def _hand_over(self, lock: LockHandle, launch: LaunchRecord) -> Verdict:
        """Has another system run an attempt that is open: without locks, which its runner takes itself."""
        try:
            with contextlib.closing(lock):
                params = await self._write_files(launch)
        except OSError:
            self._revoke(launch)
            raise
        with self._handovers.awaiting(self.job, launch):
            try:
                order = StartOrder(self.job.paths, launch, None, None, params=params)
                start = partial(self.job.launcher.start, order)
                process = await self._handovers.unless_revoked(self.job, start, _end_late)
            except LaunchRefused as refused:
                self._reject(launch, str(refused))
                raise
            except OSError:
                self._revoke(launch)
                raise
            del params, order, start  # it may wait for days, beside thousands of others
            if process is not None:
                self.job.attach(process)
                self.request_stop()
                await self._await_elsewhere(launch, process)
        return await self.until_ended()

    def _revoke(self, launch: LaunchRecord) -> None:
        """Gives up an attempt that could not be handed over."""
        with contextlib.suppress(OSError):  # then its cluster says, some day, that it never began
            claim(self._machine, self.job.paths, launch.nonce, Claimer.SCHEDULER)

    def _reject(self, launch: LaunchRecord, message: str) -> None:
        """Marks an attempt that its launcher refused, unless something has the job all the same."""
        if not claim(self._machine, self.job.paths, launch.nonce, Claimer.SCHEDULER):
            return
        lock = job_directory.take_lock(self._machine, self.job.paths)
        if lock is not None:
            with contextlib.closing(lock):
                found = job_directory.read_launch(self._machine.files, self.job.paths)
                if found is not None and found.nonce == launch.nonce:
                    self._mark(launch, JobFailureStatus.REJECTED, message)

    def _of_other_values(self, launch: LaunchRecord | None) -> str | None:
        """Why an attempt that another process made since the submission cannot be gone on with."""
        record = None if launch is None else launch.instructions.get("record")
        if self.job.reuse is None or not isinstance(record, dict):
            return None
        return self.job.reuse.other_values(self.job, record)

    def _open(
        self,
        lock: LockHandle,
        found: Settled,
        environment: Mapping[str, str] = NO_TOKENS.environment,
    ) -> LaunchRecord:
        """The intent, recorded before anything happens."""
        if found.derived.attempt and not self.job.empties:
            self.job.rotate_logs(self._machine.files)
        # From the directory, not from memory: the scheduler that counted them before may have been killed.
        tries = tries_to_come(
            self._explained(found.derived), self._room.tries(launch_of(found)), self.job.retry
        )
        if found.derived.revoked:  # by this scheduler, perhaps, which has counted the loss before
            tries = tries.with_losses_of(self.job.tries)
        self.job.tries = tries
        self.job.grow()
        launch = job_directory.open_attempt(
            self._machine,
            self.job.paths,
            lock,
            found,
            launcher=self.job.launcher.name,
            job_name=self.job.job_id,
            journal=self.job.layout.job_journal(self.job.task_id, self.job.job_id),
            external=self.job.launcher.external,
            retry_count=self.job.tries.retry_count,
            lost_count=self.job.tries.lost_count,
            blameless_count=self.job.tries.blameless_count,
            memory_count=self.job.tries.memory_count,
            failed_count=self.job.tries.failed_count,
            earlier=_earlier(found) if self.job.tries != NO_TRIES else (),
            owner=self.job.owners[0].id if self.job.owners else None,
            instructions=Instructions(
                self.job.task_id,
                self.job.job_id,
                limits=self.job.limits,
                environment={**self.job.work.environment, **environment},
                durability=self.job.durability,
                command=self.job.work.command(),
                submitted=self.job.submittime,
                retry=self.job.retry.recorded(),
                carbon=self.job.carbon_plan,
                tokens=recorded(self.job.tokens),
                slots=self.job.slots,
                record=self._record(found),
                asked=getattr(self.job.launcher, "asked", self.job.asked),
                keeps_logs=getattr(self.job.work, "keeps_logs", False),
            ).encode(),
            empties=self.job.empties,
        )
        self.job.life, self.job.empties = launch.life, False
        self.job.attempt = launch.attempt
        self.job.answered = launch.attempt - 1
        self.job.is_found = False
        return launch

    def _record(self, found: Settled) -> Mapping[str, object]:
        """What the result will be made of, and what the attempts were made of that it continues."""
        made, launch = self.job.record(), launch_of(found)
        earlier = None if launch is None else launch.instructions.get("record")
        if self.job.empties or not self.job.retry.resumable or not isinstance(earlier, dict) or not earlier:
            return made
        told = earlier.get("earlier")
        known = [*told] if isinstance(told, list) else []
        part = {name: earlier[name] for name in ("code", "files", "made_from") if name in earlier}
        is_same = all(part.get(name) == made.get(name) for name in ("code", "made_from"))
        if part not in known and (self.job.reuse is None or not is_same):  # a retry sees code when it runs
            known.append(part)
        return {**made, "earlier": known[-_MOST_EARLIER:]} if known else made

    async def _write_files(self, launch: LaunchRecord) -> bytes:
        """What the runner and its monitors read; the parameters as they are written."""
        files = self._machine.files
        params = self.job.work.params(self.job.layout, self.job.paths)
        job_directory.write_params(files, self.job.paths, params)
        job_directory.write_script(files, self.job.paths, job_script(self.job.paths.script_name))
        job_directory.write_status(files, self.job.paths, status_of(self.job, launch, self.job.state_record))
        if self._grant.units:
            locks = LocksRecord(launch.attempt, self._grant.units, self._grant.directory)
            job_directory.write_locks(files, self.job.paths, locks)
        await self._unpack_named(params)
        return params

    async def _until_others_ended(self) -> Verdict:
        """Another process has the lock: to run the job, or only to see whether it can be removed.

        Earlier facts may be of a directory that is gone by now, and must not make the new one look
        as if it had been deleted while the job ran.
        """
        self.job.attempt = 0
        attempt = job_directory.look(self._machine, self.job.paths).derived.attempt
        self.job.set_state(JobState.SCHEDULED, attempt=attempt)
        return await self._until_watched_ended()

    async def _until_watched_ended(self) -> Verdict:
        """Waits for an attempt that another process runs, which has slots of its own."""
        self.job.let_go_of_slots()
        return await self.until_ended()

    async def until_ended(self) -> Verdict:
        """Waits while a process has the job, then says what the attempt amounts to."""
        pause = FIRST_POLL_S
        known = self.job.attempt
        give_up = self._machine.clock.monotonic() + STALE_LOCK_S
        while True:
            found = self._room.look(self.job)
            self.job.attempt = found.derived.attempt
            if has_answer(self.job, found):
                if self._is_whole(found):
                    return self._verdict(found)
                await self._room.changed(self.job.paths.directory, pause)
                pause = min(2 * pause, POLL_S)
                continue
            if known and found.derived.action is Action.START and not found.derived.attempt:
                return Verdict(JobState.ERROR, JobFailureStatus.DELETED, DIRECTORY_GONE)
            known = max(known, found.derived.attempt)
            if found.derived.action is not Action.WATCH:
                verdict = await self._judge()
                if verdict is not None:
                    return verdict
            elif await self._watch_runner(found):
                give_up = self._machine.clock.monotonic() + STALE_LOCK_S
                if not found.derived.external:
                    continue
                # A cluster may say that an attempt ended before its directory, or the fence, shows it.
            elif found.derived.state is not JobState.ERROR:
                give_up = self._machine.clock.monotonic() + STALE_LOCK_S
            elif self._machine.clock.monotonic() > give_up:
                holders = self._machine.locks.holders(self.job.paths.lock)
                message = f"{found.derived.message}; the lock is held by {holders or 'another machine'}"
                return Verdict(JobState.ERROR, JobFailureStatus.LOST, message)
            await self._room.changed(self.job.paths.directory, pause)
            pause = min(2 * pause, POLL_S)

    def _is_whole(self, found: Settled) -> bool:
        """Whether what a job with a final state left is whole; repaired, unless its own runner ended here.

        False while another process, which has the lock, repairs it.
        """
        if self.job.process is not None and self.job.process.exit_code == ENDED:
            return True
        if not self.mend(found.derived):
            return False
        self._mend_status()
        return True

    async def _judge(self) -> Verdict | None:
        """The job is free and without a final state: decided under the lock; None if another took it."""
        lock = job_directory.take_lock(self._machine, self.job.paths)
        if lock is None:
            return None
        with contextlib.closing(lock):
            found = self._settled(lock)
            found = await self._swept(lock, found)
            if found.derived.action is Action.WATCH:
                return None
            if not self._handovers.give_up(self.job, found):
                return None
            was_stopped = self.job.spent_stop is not None
            once = _once(self.job, found)
            is_old = is_told(found.derived, self.job.answered, once=once, was_stopped=was_stopped)
            if is_old and not has_answer(self.job, found):
                return self._unless_cancelled(Verdict(JobState.UNSCHEDULED, tries=self.job.tries))
            return self._concluded(found)

    async def _watch_runner(self, found: Settled) -> bool:
        """Waits for the end of the runner that another scheduler started; False if it is not known yet."""
        launch = launch_of(found)
        if launch is not None and launch.external:
            return await self._watch_elsewhere(launch)
        process = self._process_of(found)
        if process is None or found.derived.state is not JobState.RUNNING:
            return False
        self.job.attach(process)
        if self.job.state is JobState.SCHEDULED:
            pid = found.evidence.pid
            self.job.set_state(JobState.RUNNING, since=pid.started if isinstance(pid, PidRecord) else None)
        self._heed_wish()
        await process.wait()
        return True

    async def _watch_elsewhere(self, launch: LaunchRecord) -> bool:
        """Waits for an attempt that a cluster has; False if no cluster can be asked for it."""
        process = self._handovers.process(self.job, launch)
        if process is None:
            return False
        self.job.attach(process)
        with self._handovers.awaiting(self.job, launch):
            self._heed_wish()
            await self._await_elsewhere(launch, process)
        return True

    async def _await_elsewhere(self, launch: LaunchRecord, process: Process) -> None:
        """Waits, pending or running, until the process has ended or the attempt is revoked."""
        if self._handovers.is_revoked(self.job, launch):
            return
        if self.job.state is JobState.SCHEDULED:
            if not await self._handovers.unless_revoked(self.job, process.confirmed):
                return
            self.job.state = JobState.RUNNING
        await self._handovers.unless_revoked(self.job, process.wait)

    def _heed_wish(self) -> None:
        """Stop an attempt that a process asked to cancel, and died before it told the runner."""
        if self.job.stop is None:
            request = self._request()
            if request is not None and request.reason is JobFailureStatus.CANCELLED:
                self.job.stop = request
        self.request_stop()

    def _process_of(self, found: Settled) -> Process | None:
        launch = launch_of(found)
        pid = found.evidence.pid
        if launch is None or not isinstance(pid, PidRecord) or pid.attempt != launch.attempt:
            return None
        return self.job.launcher.find(self.job.paths, launch, pid)

    def stop(self, message: str) -> None:
        """Have the attempt at a job end because a person cancelled it."""
        now = self._machine.clock.now()
        self.job.stop = StopRecord(max(self.job.attempt, 1), JobFailureStatus.CANCELLED, now, message)
        self.request_stop()

    def kill_runner(self, attempt: int) -> None:
        """Kill a runner that did not end its job in time."""
        if self.job.phase is Phase.RUNNING and self.job.attempt == attempt and self.job.process is not None:
            self.job.process.kill()

    def request_stop(self) -> None:
        """Asks the runner of a job to end it, if that is wanted, with the reason written down first."""
        if self.job.stop is None:
            return
        is_handed_over = self._handovers.is_awaited(self.job)
        if self.job.process is not None or is_handed_over:
            stop = self.job.stop._replace(attempt=self.job.attempt)
            with contextlib.suppress(OSError):  # a full disk takes the reason, but must not save the self.job
                job_directory.request_stop(self._machine.files, self.job.paths, stop)
        if is_handed_over:
            self._handovers.stop(self.job)
        if self.job.process is not None:
            self.job.process.signal_stop()

    def mend(self, found: Derived, lock: LockHandle | None = None) -> bool:
        """Writes the parameters of a job that is done once more, if a power loss took them.

        And the status of a job that runs once, if its runner was killed before it wrote that; an experiment
        does so when it ends, for its job may be one of ten thousand that are found done.
        `lock`: the job's, if the caller has it. False if it is needed, and another has it.
        """
        marker = found.marker
        if self.job.once and marker is not None:
            self._mend_status(lock)
        if marker is None or found.state is not JobState.DONE:
            return True
        if job_directory.has_its_params(self._machine.files, self.job.paths, marker):
            return True
        taken = lock or job_directory.take_lock(self._machine, self.job.paths)
        if taken is None:
            return False
        try:
            params = self.job.work.params(self.job.layout, self.job.paths)
            self._machine.files.replace(self.job.paths.params, params, durable=True)
        finally:
            if lock is None:
                taken.close()
        return True

    def _mend_status(self, lock: LockHandle | None = None) -> None:
        """Writes the status as the marker says; a courtesy, as every reader of ours derives the state."""
        with contextlib.suppress(OSError, WorkspaceError):
            job_directory.mend_status(self._machine, self.job.paths, lock)

    def _settled(self, lock: LockHandle) -> Settled:
        """What the directory shows under the lock."""
        return job_directory.settle(self._machine, self.job.paths, lock, ask=self._handovers.ask)

    async def _swept(self, lock: LockHandle, found: Settled) -> Settled:
        """What the directory shows under the lock, once leftovers of an earlier attempt are gone.

        A job that lost its runner is swept, even if no process holds the second byte: what a task starts by
        `subprocess` has no descriptor of its parent's, and continues when runner and payload are killed.
        """
        lost = found.derived.reason is JobFailureStatus.LOST and found.derived.marker is None
        if not lost or found.evidence.liveness is Liveness.REBOOTED or found.derived.external:
            return found
        alive = await self.job.launcher.sweep(self.job.paths, launch_of(found))
        found = self._settled(lock)
        if alive:
            message = f"its runner is gone, and what it left cannot be ended: {', '.join(map(str, alive))}"
            stuck = found.derived._replace(action=Action.SWEEP, message=message)
            return found._replace(derived=stuck)
        return found

    def _verdict(self, found: Settled) -> Verdict:
        self.job.attempt = found.derived.attempt
        marker = found.derived.marker
        self.job.marker = marker and marker.gist()
        launch = launch_of(found)
        if launch is not None:
            self.job.tries = tries_of(launch)
            self.job.life = launch.life
            if launch.aside and found.derived.state is JobState.DONE:
                drop_aside(self._machine, self.job)
        if marker is not None and found.derived.state is JobState.DONE and self.job.reuse is not None:
            other = self.job.reuse.other_values(self.job, marker.record)
            if other is not None:  # another process started it first, with what was a default there
                return Verdict(JobState.ERROR, JobFailureStatus.REJECTED, other)
        verdict = after_attempt(self._explained(found.derived), self.job.tries, self.job.retry)
        return self._unless_cancelled(verdict)

    def _concluded(self, found: Settled) -> Verdict:
        """The verdict on an attempt whose runner is gone; a final one is marked, under the job's lock."""
        verdict = self._verdict(found)
        launch = launch_of(found)
        if verdict.tries is None and found.derived.marker is None and launch is not None:
            self._mark(launch, verdict.reason or JobFailureStatus.LOST, verdict.message)
        return verdict

    def _explained(self, derived: Derived) -> Derived:
        """A runner that vanished after it was asked to stop followed the request: it is not tried again."""
        stop = None
        if derived.marker is None:
            if derived.reason is JobFailureStatus.LOST or derived.external:
                stop = self._request()
        elif derived.reason is JobFailureStatus.LOST:
            # Another scheduler marked it, which could not know: a full disk had not taken the request.
            stop = self.job.stop
        return explained(derived, stop)

    def _request(self) -> StopRecord | None:
        """The request to stop the current attempt: of a person here, or written down by another process."""
        request = self.job.stop or job_directory.read_stop(
            self._machine.files, self.job.paths, self.job.attempt
        )
        return None if request == self.job.spent_stop else request

    def _unless_cancelled(self, verdict: Verdict) -> Verdict:
        """A job that a person wants to end is not tried again, whatever ended the attempt."""
        return verdict if verdict.tries is None else unless_cancelled(verdict, self._request())

    def _mark(self, launch: LaunchRecord, reason: JobFailureStatus, message: str | None) -> None:
        """Writes the marker that a runner could not write, under the job's lock."""
        now = self._machine.clock.now()
        marker = Marker(
            attempt=launch.attempt,
            nonce=launch.nonce,
            reason=reason,
            message=message,
            starttime=self.job.starttime,
            endtime=now,
        )
        state_record = self.job.state_record._replace(
            state=JobState.ERROR, reason=reason, message=message, endtime=now
        )
        job_directory.finish(
            self._machine.files, self.job.paths, marker, status_of(self.job, launch, state_record)
        )
        self.job.marker = marker


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


def drop_aside(machine: Machine, job: Job) -> None:
    """Remove what a job had before it was run again, if that is still there."""
    if machine.files.stat(job.paths.aside) is not None:
        with contextlib.suppress(OSError):  # the next run tries again
            job_directory.drop_aside(machine, job.layout, job.paths)


def status_of(job: Job, launch: LaunchRecord, state_record: StateRecord) -> StatusRecord:
    return StatusRecord(job.job_id, job.task_id, state_record, launch.attempt, launch.retry_count)


def has_answer(job: Job, found: Settled) -> bool:
    """True if the evidence ends the wait for a job."""
    marker = found.derived.marker
    again = job.rerun_of is not None and marker is not None and marker.nonce == job.rerun_of
    return answers(found.derived, job.answered, once=_once(job, found), again=again)


def _once(job: Job, found: Settled) -> bool:
    return runs_once(found.derived, found.evidence.launch, job.retry)


def launch_of(found: Settled) -> LaunchRecord | None:
    launch = found.evidence.launch
    return launch if isinstance(launch, LaunchRecord) else None
