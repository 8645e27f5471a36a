"""Payloads from their arrival to their packed result: each is a job of the scheduler, started at most once.
Every step may be repeated after a crash; a row agrees with the disk.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from tenuto.errors import DatabaseError, NodeRefusal, NodeTakesNothing
from tenuto.jobs.metrics import usage_of
from tenuto.launchers.confinement import Sandbox, SandboxMode, clear_common, hand_over
from tenuto.launchers.protocols import Launcher
from tenuto.launchers.requirements import Alternative, Gpus
from tenuto.lifecycle.events import Event, JobStateChangedEvent
from tenuto.lifecycle.service import PayloadState
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.owners import PlainOwner
from tenuto.scheduler.scheduler import Scheduler
from tenuto.scheduler.tokens import GpuToken, TokenDependency
from tenuto.service.archive import (
    ArchiveSource,
    PackingStopped,
    ResultBounds,
    ResultTooLarge,
    measured,
    tree_bytes,
)
from tenuto.service.data_paths import free_bytes, synced
from tenuto.service.log import log
from tenuto.service.names import OWN_DIRECTORY
from tenuto.service.node.packer import (
    SMALL_BYTES,
    STREAMS,
    PackingOrder,
    Place,
    facts_of,
    pack,
)
from tenuto.service.node.payloads import PayloadRow, Payloads, Sender
from tenuto.service.node.work import Terms, encoded_command, payload_work
from tenuto.service.nodes import mark_of
from tenuto.service.periodic import Waiters
from tenuto.service.threads import Threads
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import Machine

TASK = "payload"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
PACK_AGAIN_S = 10.0
PACK_FOR_S = 3600.0
WRITE_AGAIN_S = 5.0
LOOK_AT_SIZE_S = 2.0
PACKERS = 3
ANY_SIZE = 1 << 62
WORTH_STOPPING_BYTES = 1 << 20
"""A payload whose directory takes less is not stopped for a full disk: that would not help."""
SHORTEST_RUN_S = 0.1
"""A payload is called Running after so long; a shorter one continues to its end, for half of the writes."""
TERMINATED = "terminated"
DISK_LIMIT = "disk limit: it wrote more than it may (work_bytes)"
DISK_FULL = "the node's disk is full"
TOO_LARGE = "result too large"
FILES_GONE = "its files on the node are gone"
NO_SANDBOX = "the node could not start the sandbox of the job; nothing of it was run"
SANDBOX_TRIES = 3
_SERVERS_KEY = re.compile(r"([0-9a-f]{32})-([0-9]{1,19})-([0-9a-f]{32})", re.ASCII)
_JOB_ID = re.compile(r"[a-z0-9_][a-z0-9_-]{0,127}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Workshop:
    """What payloads are run with."""

    machine: Machine
    layout: Layout
    launcher: Launcher
    scheduler: Scheduler
    sandbox: Sandbox
    terms: Mapping[str, Terms]
    """By service; `""` for the others."""
    environment: Mapping[str, str]
    """What payloads see of the node's."""
    min_free_bytes: int = 0
    """With less room on the disk no payload is taken; with half of it the largest one is stopped."""

    gpus: GpuToken | None = None
    """The GPUs of this machine, one unit each; None: there are none that can be told apart."""

    def terms_of(self, service: str) -> Terms:
        return self.terms.get(service) or self.terms[""]

    def launcher_of(self, terms: Terms) -> Launcher:
        """The launcher of a payload: a cluster is asked for what its service has."""
        if not self.launcher.external:
            return self.launcher
        gpus = Gpus(count=terms.gpus) if terms.gpus else None
        limits = terms.limits
        return self.launcher.adapted(Alternative(limits.walltime_s, terms.cpus, limits.memory_bytes, gpus))

    def gpus_of(self, terms: Terms) -> tuple[TokenDependency, ...]:
        """What a payload holds while it runs, so that no other has the same GPU."""
        return (self.gpus.dependency(terms.gpus),) if terms.gpus and self.gpus is not None else ()


def job_id_of(key: str) -> str:
    """The id of a payload's job: of a server's key the number first, so that people can tell jobs apart.

    Any other key is the id itself, unless it cannot name a directory.
    """
    if found := _SERVERS_KEY.fullmatch(key):
        return f"{found[2]}-{found[3]}-{found[1]}"
    return key if _JOB_ID.fullmatch(key) else "k" + hashlib.sha256(key.encode()).hexdigest()


class PayloadRunner:
    """Runs the payloads of one node; in one event loop."""

    def __init__(self, workshop: Workshop, payloads: Payloads, name: str) -> None:
        self.workshop = workshop
        """Replaced when the settings are read anew."""
        self._payloads = payloads
        self._owner = PlainOwner(f"service/{name}", self._heard)
        self._sql = Threads(4)
        self.files = Threads(4)
        self._jobs: dict[int, Job] = {}
        self._open: dict[int, PayloadRow] = {}
        """The rows of `_jobs`, as they were written last: only this process moves them."""
        self._ids: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failed: dict[int, str] = {}
        """Payloads that the node itself stopped, and why: they have failed."""
        self._cuts: dict[int, asyncio.Future[None]] = {}
        """Done once the files of a payload are not to be packed any more."""
        self._large: set[int] = set()
        """Payloads that have ended, and whose packing may take long."""
        self._packing = PackingOrder(PACKERS)
        self._packs = Threads(PACKERS)
        self._is_closed = False
        self.waiters: Waiters[PayloadRow] = Waiters()

    def place(self, key: str) -> Place:
        """Where the files of a payload lie."""
        return Place(self.workshop.layout.job(TASK, job_id_of(key)))

    async def resume(self) -> None:
        """Continues with the payloads that had not ended when the node stopped."""
        for row in await self._sql(self._payloads.open):
            self._begin(row)
        if self.workshop.min_free_bytes:
            self._spawn(self._watch_disk())

    @property
    def open_count(self) -> int:
        """How many payloads have not ended."""
        return len(self._open)

    def free_bytes(self) -> int:
        """The room that is left on the disk of the payloads."""
        return free_bytes(self.workshop.layout.root)

    def is_full(self) -> bool:
        """True while the disk has too little room for another payload."""
        return self.free_bytes() < self.workshop.min_free_bytes

    async def take(self, key: str, directory: str, sender: Sender, command: Sequence[str] = ()) -> PayloadRow:
        """Takes the files of a payload, which move from their directory, and starts it.

        ``command``: its command; without one its `run.sh`. A key that is known is the same payload: its files
        are not looked at. Raises `NodeRefusal`, `NodeTakesNothing` if the disk is nearly full, or `NotOurs`
        if the key is known as another's.
        """
        known = await self._sql(self._taken, key, directory, sender, encoded_command(command))
        if known.state is PayloadState.PREPARED and known.id not in self._jobs:
            self._begin(known)
        return known

    def _taken(self, key: str, directory: str, sender: Sender, command: str) -> PayloadRow:
        known = self._payloads.find(key)
        if known is None and self.is_full():
            raise NodeTakesNothing(DISK_FULL)
        if known is None:
            try:
                _moved(directory, self.place(key))
            except OSError as error:
                if error.errno in NO_ROOM:
                    raise NodeTakesNothing(DISK_FULL) from None
                raise
            known = self._payloads.add(key, sender, command)
            log("payload_taken", payload=known.id, key=key, service=sender.service)
        known.refuse_other(mark_of(key, *sender))
        return known

    async def get(self, payload_id: int) -> PayloadRow | None:
        """The row of a payload."""
        if (known := self._open.get(payload_id)) is not None:
            await asyncio.sleep(0)  # a caller that asks again and again lets others continue
            return known
        return await self._sql(self._payloads.get, payload_id)

    async def find(self, key: str) -> PayloadRow | None:
        """The row of the payload of a key; one whose start was cut off by a crash continues."""
        row = await self._sql(self._payloads.find, key)
        if row is not None and not row.state.is_final and row.id not in self._jobs:
            self._begin(row)
        return row

    async def kill(self, payload_id: int) -> PayloadRow | None:
        """Asks for the end of a payload, and returns at once."""
        row = self._noted(await self._sql(self._payloads.kill, payload_id))
        job = self._jobs.get(payload_id)
        if row is not None and not row.state.is_final and job is not None:
            if payload_id in self._large:  # it has ended, and is packed: that may take long
                self._cut(payload_id)
            else:
                self._spawn(self._withdraw(job, TERMINATED))
        return row

    async def close(self) -> None:
        """Releases everything; payloads run on, and the next start finds them."""
        self._is_closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.waiters.close()
        self._sql.close()
        self._packs.close()
        self.files.close()

    # One payload

    def _begin(self, row: PayloadRow) -> None:
        if row.id in self._jobs:
            return
        self._loop = asyncio.get_running_loop()
        terms = self.workshop.terms_of(row.service)
        job = self._job(row, terms, once=True)
        self._jobs[row.id] = job
        self._open[row.id] = row
        self._ids[job.job_id] = row.id
        self._cuts[row.id] = self._loop.create_future()
        self._spawn(self._see_through(row, job, terms))

    def _job(self, row: PayloadRow, terms: Terms, *, once: bool) -> Job:
        """The job of a payload; ``once``: whatever its directory shows is the answer."""
        workshop, place = self.workshop, self.place(row.key)
        return Job(
            TASK,
            job_id_of(row.key),
            layout=workshop.layout,
            launcher=workshop.launcher_of(terms),
            work=payload_work(
                row,
                place,
                terms,
                workshop.sandbox,
                workshop.environment,
                is_on_cluster=workshop.launcher.external,
            ),
            clock=workshop.machine.clock,
            limits=terms.limits,
            slots=1 if workshop.launcher.external else terms.cpus,
            tokens=workshop.gpus_of(terms),
            durability=terms.durability,
            once=once,
        )

    async def _see_through(self, row: PayloadRow, job: Job, terms: Terms) -> None:
        scheduler, place = self.workshop.scheduler, self.place(row.key)
        try:
            while True:
                try:
                    job = await self._run(row, job, terms, place)
                    break
                except OSError as error:  # of the node's disk, which may be well again later
                    log("stage_failed", 40, stage="payload", payload=row.id, why=str(error))
                    await asyncio.sleep(WRITE_AGAIN_S)
            await self._settle_at_last(row, job, place, terms)
            scheduler.forget(job, self._owner)
        finally:
            for known in (self._jobs, self._open, self._failed, self._cuts):
                known.pop(row.id, None)
            self._ids.pop(job.job_id, None)
            self._large.discard(row.id)

    async def _run(self, row: PayloadRow, job: Job, terms: Terms, place: Place) -> Job:
        """The job of a payload once it has ended; one that shows an end already is not run."""
        scheduler = self.workshop.scheduler
        if not await self.files(self._given_over, row, place):
            self._failed[row.id] = FILES_GONE
        while True:
            job = await scheduler.submit_async(job, self._owner)
            self._jobs[row.id] = job
            if self._open[row.id].killed:  # asked for before a crash, or before the scheduler had the job
                self._spawn(self._withdraw(job, TERMINATED))
            watch = self._spawn(self._watch_size(row.id, job, place, terms)) if terms.work_bytes else None
            await job.finished()
            if watch is not None:
                watch.cancel()
            await self.files(self._clear_common, row.id)
            if not await self.files(self._is_unbegun, job, place):
                return job
            log("sandbox_failed", 40, payload=row.id, attempt=job.attempt)
            if job.attempt >= SANDBOX_TRIES or self._open[row.id].killed:
                self._failed.setdefault(row.id, NO_SANDBOX)
                return job
            scheduler.forget(job, self._owner)
            job = self._job(row, terms, once=False)  # not a line of the user's program has run

    def _given_over(self, row: PayloadRow, place: Place) -> bool:
        """Gives the files of a payload to its uid, if it has one; False if they are not there any more."""
        if not os.path.isdir(place.work):
            os.makedirs(place.paths.directory, mode=0o700, exist_ok=True)  # where its end is looked for
            return False
        uid = self.workshop.sandbox.uid_of(row.id)
        if uid is not None:
            os.close(os.open(place.started, os.O_WRONLY | os.O_CREAT, 0o600))
            os.chown(place.started, uid, uid)
            os.chmod(place.paths.directory, 0o711)
            hand_over(place.work, uid)
        return True

    def _clear_common(self, payload_id: int) -> None:
        """Removes what a payload left outside of its directory, if its uid is no other's now."""
        sandbox = self.workshop.sandbox
        uid = sandbox.uid_of(payload_id) if sandbox.mode is SandboxMode.UID else None
        if uid is not None and [sandbox.uid_of(id) for id in list(self._open)].count(uid) == 1:
            clear_common(uid)

    def _is_unbegun(self, job: Job, place: Place) -> bool:
        """True if the sandbox of a payload did not start: its program certainly did not begin."""
        if self.workshop.sandbox.mode is not SandboxMode.BWRAP or job.state is JobState.DONE:
            return False
        if job.failure_status is not JobFailureStatus.FAILED or not job.exit_code:
            return False
        try:
            return os.stat(place.started).st_size == 0
        except FileNotFoundError:  # of a payload that an older version started
            return False

    async def _settle_at_last(self, row: PayloadRow, job: Job, place: Place, terms: Terms) -> None:
        """Settles a payload; a database that cannot be written now is tried again."""
        while True:
            try:
                return await self._settle(row, job, place, terms)
            except DatabaseError as error:
                log("stage_failed", 40, stage="payload", payload=row.id, why=str(error))
                await asyncio.sleep(WRITE_AGAIN_S)

    async def _settle(self, row: PayloadRow, job: Job, place: Place, terms: Terms) -> None:
        """Packs what a payload left, then moves its row; a disk without room is waited for.

        Of a payload whose files are too many, too large or too much for the disk the logs alone are packed.
        """
        began = self.workshop.machine.clock.monotonic()
        too_large: str | None = None
        while True:
            is_cut = self._cuts[row.id].done()
            to, message = self._verdict(row, job, too_large)
            if is_cut or message == DISK_FULL:
                # First of all: where the disk is full the row cannot be written, either.
                await self.files(shutil.rmtree, place.work, True)
            packed = self._source(row, (to, message, job.exit_code), place, terms)
            packed = packed._replace(with_files=too_large is None and not is_cut)
            if message == NO_SANDBOX:  # the logs show the operator's paths, and nothing of the user's
                packed = packed._replace(logs={})
            values: dict[str, object] = {"exit_code": job.exit_code}
            try:
                values |= await self.files(self._used, place)
                ended = await self._packed_in_turn(row.id, (to, message), place, packed, values)
                break
            except ResultTooLarge as error:
                too_large = f"{TOO_LARGE}: {error}"
            except PackingStopped:
                log("packing_stopped", payload=row.id, why=self._failed.get(row.id, TERMINATED))
            except OSError as error:
                waited = self.workshop.machine.clock.monotonic() - began
                if error.errno not in NO_ROOM or waited > PACK_FOR_S:
                    to = PayloadState.FAILED
                    message = f"{message}; its files could not be packed: {error.strerror}".lstrip("; ")
                    ended = await self._sql(partial(self._payloads.end, row.id, to, message, **values))
                    break
                log("packing_waits", 30, payload=row.id, why=error.strerror)
                if job.starttime is not None:  # it may have ended before it was called Running
                    await self._sql(self._payloads.started, row.id)
                why = "ended; waits for room on the node's disk"
                self._noted(await self._sql(self._payloads.explain, row.id, why))
                await asyncio.wait({self._cuts[row.id]}, timeout=PACK_AGAIN_S)
        log("payload_ended", payload=row.id, state=to.value, message=message)
        self.waiters.tell(row.id, self._noted(ended))
        if ended is not None and ended.result_bytes is not None:
            self.files.soon(shutil.rmtree, place.work, True)

    def _used(self, place: Place) -> dict[str, object]:
        """What the program of a payload used, as columns of its row."""
        used = usage_of(self.workshop.machine.files, place.paths)
        return {} if used is None else {"cpu_s": used.cpu_s, "memory_peak": used.used_bytes}

    def _source(
        self, row: PayloadRow, end: tuple[PayloadState, str, int | None], place: Place, terms: Terms
    ) -> ArchiveSource:
        facts = facts_of(row, end[0].value, *end[1:])
        moment = self.workshop.machine.clock.now().timestamp()
        uid = self.workshop.sandbox.uid_of(row.id)
        owners, bounds = None if uid is None else frozenset({uid}), ResultBounds(terms.max_result_bytes)
        logs, log_bytes = place.logs, terms.limits.log_bytes
        return ArchiveSource(place.work, logs, facts, moment, owners, log_bytes, bounds, expected=STREAMS)

    def partial(self, row: PayloadRow) -> ArchiveSource:
        """The packed files of a payload as it is now."""
        terms = self.workshop.terms_of(row.service)
        return self._source(row, (row.state, row.message, row.exit_code), self.place(row.key), terms)

    def log_bytes(self, row: PayloadRow) -> int:
        """The size that each log of a payload is kept under."""
        return self.workshop.terms_of(row.service).limits.log_bytes

    async def _packed_in_turn(
        self,
        payload_id: int,
        end: tuple[PayloadState, str],
        place: Place,
        packed: ArchiveSource,
        values: Mapping[str, Any],
    ) -> PayloadRow | None:
        """Packs what a payload left once it is its turn, the smallest first.

        A large result is left at once when it is not wanted any more; a small one is as good as packed.
        """
        cut = self._cuts[payload_id]

        def is_stopped() -> bool:
            return self._is_closed or (packed.with_files and cut.done())

        size = await self.files(measured, packed, is_stopped)
        if size > SMALL_BYTES:
            self._large.add(payload_id)
            why = f"ended; its files, {size} bytes, are packed"
            self._noted(await self._sql(self._payloads.explain, payload_id, why))
        async with self._packing.turn(size, cut if packed.with_files else None):
            return await self._packs(self._packed, payload_id, end, place, packed, values, is_stopped)

    def _packed(
        self,
        payload_id: int,
        end: tuple[PayloadState, str],
        place: Place,
        packed: ArchiveSource,
        values: Mapping[str, Any],
        is_stopped: Callable[[], bool],
    ) -> PayloadRow | None:
        """Packs what a payload left, and moves its row: both in one thread, one after the other."""
        done = pack(place, packed, is_stopped)
        return self._payloads.end(
            payload_id, *end, result_bytes=done.bytes, result_sha256=done.sha256, **values
        )

    def _verdict(self, row: PayloadRow, job: Job, too_large: str | None) -> tuple[PayloadState, str]:
        """The state of a payload whose job has ended, and why."""
        said = job.state_record.message
        # What the node itself stopped it for is known after a new start, too.
        why = said if said in (DISK_LIMIT, DISK_FULL) else self._failed.get(row.id)
        if why is not None:
            return PayloadState.FAILED, why
        if self._cuts[row.id].done() or (
            job.state is not JobState.DONE and job.failure_status is JobFailureStatus.CANCELLED
        ):
            return PayloadState.KILLED, TERMINATED
        if too_large is not None:
            return PayloadState.FAILED, too_large
        if job.state is JobState.DONE:
            return PayloadState.COMPLETED, ""
        return PayloadState.FAILED, said or "it failed"

    def _cut(self, payload_id: int) -> None:
        """Has the files of a payload left, unless they are packed already."""
        if not self._cuts[payload_id].done():
            self._cuts[payload_id].set_result(None)

    async def _watch_size(self, payload_id: int, job: Job, place: Place, terms: Terms) -> None:
        while terms.work_bytes is not None:
            await asyncio.sleep(LOOK_AT_SIZE_S)
            if await self.files(tree_bytes, place.work, terms.work_bytes) > terms.work_bytes:
                self._failed[payload_id] = DISK_LIMIT
                await self._withdraw(job, DISK_LIMIT)
                return

    async def _watch_disk(self) -> None:
        """Stops the payload with the largest directory when the disk is nearly full, one after the other."""
        while True:
            await asyncio.sleep(LOOK_AT_SIZE_S)
            try:
                if await self.files(self.free_bytes) >= self.workshop.min_free_bytes // 2:
                    continue
            except OSError as error:  # the disk is not there any more
                log("stage_failed", 40, stage="disk", why=str(error))
                continue
            if any(cut.done() for cut in self._cuts.values()):
                continue  # the files of one that was stopped are about to go
            works = {id: self.place(row.key).work for id, row in self._open.items()}
            sizes = {id: await self.files(tree_bytes, work, ANY_SIZE) for id, work in works.items()}
            largest = max(sizes, key=lambda id: sizes[id], default=0)
            if sizes.get(largest, 0) < WORTH_STOPPING_BYTES or largest not in self._open:
                log("disk_full", 40, payload=0)
                continue
            log("disk_full", 40, payload=largest, bytes=sizes[largest])
            self._failed[largest] = DISK_FULL
            self._cut(largest)  # there is no room for its files, either
            await self._withdraw(self._jobs[largest], DISK_FULL)

    async def _withdraw(self, job: Job, message: str) -> None:
        await self.workshop.scheduler.withdraw(job, self._owner, message)

    def _heard(self, event: Event) -> None:
        """A job of this node moved; off the loop."""
        if isinstance(event, JobStateChangedEvent) and event.state is JobState.RUNNING:
            loop, payload_id = self._loop, self._ids.get(event.job_id)
            if loop is not None and payload_id is not None and not loop.is_closed():
                loop.call_soon_threadsafe(loop.call_later, SHORTEST_RUN_S, self._runs_on, payload_id)

    def _runs_on(self, payload_id: int) -> None:
        """Calls a payload Running, if it still is."""
        job = self._jobs.get(payload_id)
        if job is not None and job.state is JobState.RUNNING and not self._is_closed:
            self._spawn(self._started(payload_id))

    async def _started(self, payload_id: int) -> None:
        ago_ms = int(SHORTEST_RUN_S * 1000)
        row = self._noted(await self._sql(self._payloads.started, payload_id, ago_ms))
        if row is not None:
            self.waiters.tell(payload_id, row)

    def _noted(self, row: PayloadRow | None) -> PayloadRow | None:
        """Keeps a row that was written as the one that is known of its payload, while that is open."""
        known = None if row is None else self._open.get(row.id)
        if row is None or known is None:
            return row
        # Of two writes at once the later one may be told first.
        if not known.state.is_final and (row.started_at is not None or known.started_at is None):
            self._open[row.id] = row
        return row

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log("stage_failed", 40, stage="payload", why=repr(error))


def _moved(directory: str, place: Place) -> None:
    """Moves the files of a payload to where it runs; after a crash between the two steps they are there."""
    os.makedirs(place.paths.directory, mode=0o700, exist_ok=True)
    if os.path.isdir(place.work):
        return
    try:
        with suppress(FileExistsError):
            os.mkdir(os.path.join(directory, OWN_DIRECTORY), 0o700)
        os.rename(directory, place.work)
    except FileNotFoundError:
        raise NodeRefusal("the files of the job are gone") from None
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copied(directory, f"{place.work}.part")
        os.rename(f"{place.work}.part", place.work)
    synced(place.paths.directory)


def _copied(directory: str, part: str) -> None:
    """Copies the files of a payload from another disk; half a copy is no use and takes the room of others."""
    shutil.rmtree(part, ignore_errors=True)
    try:
        shutil.copytree(directory, part, copy_function=_copy)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _copy(source: str, target: str) -> None:
    """Copies one file: `copytree` gathers each `OSError` and continues, even for a full disk."""
    try:
        shutil.copy2(source, target)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise NodeTakesNothing(DISK_FULL) from None
        raise
