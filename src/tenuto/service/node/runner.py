"""Payloads from their arrival to their packed result: each is a job of the scheduler, started at most once.
Every step may be repeated after a crash; what a row says is what lies on the disk.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import re
import shutil
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tenuto.errors import DatabaseError, NodeRefusal
from tenuto.launchers.protocols import Launcher
from tenuto.lifecycle.events import Event, JobStateChangedEvent
from tenuto.lifecycle.service import PayloadState
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.owners import PlainOwner
from tenuto.scheduler.scheduler import Scheduler
from tenuto.service.archive import Source, tree_bytes
from tenuto.service.log import log
from tenuto.service.node.packer import Place, facts_of, pack, source, sync_directory
from tenuto.service.node.payloads import PayloadRow, Payloads, Sender
from tenuto.service.node.sandbox import Sandbox, hand_over
from tenuto.service.node.work import Terms, payload_work
from tenuto.service.nodes import mark_of
from tenuto.service.threads import Threads
from tenuto.service.waiters import Waiters
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import Machine

TASK = "payload"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
PACK_AGAIN_S = 10.0
PACK_FOR_S = 3600.0
WRITE_AGAIN_S = 5.0
LOOK_AT_SIZE_S = 2.0
SHORTEST_RUN_S = 0.1
"""A payload is called Running after so long; a shorter one goes on to its end, for half of the writes."""
TERMINATED = "terminated"
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
    """By service; `""` for those that are not named."""
    environment: Mapping[str, str]
    """What payloads see of the node's."""

    def terms_of(self, service: str) -> Terms:
        return self.terms.get(service) or self.terms[""]


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
        self._workshop = workshop
        self._payloads = payloads
        self._owner = PlainOwner(f"service/{name}", self._heard)
        self._sql = Threads("node-sql", 4)
        self.files = Threads("node-files", 4)
        self._jobs: dict[int, Job] = {}
        self._open: dict[int, PayloadRow] = {}
        """The rows of `_jobs`, as they were written last: only this process moves them."""
        self._ids: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over_limit: set[int] = set()
        self._is_closed = False
        self.waiters: Waiters[PayloadRow] = Waiters()

    def place(self, key: str) -> Place:
        """Where the files of a payload lie."""
        return Place(self._workshop.layout.job(TASK, job_id_of(key)))

    async def resume(self) -> None:
        """Goes on with the payloads that had not ended when the node stopped."""
        for row in await self._sql(self._payloads.open):
            self._begin(row)

    async def take(self, key: str, directory: str, sender: Sender) -> PayloadRow:
        """Takes the files of a payload, which move from their directory, and starts it.

        A key that is known is the same payload: its files are not looked at. Raises `NodeRefusal`, or
        `NotOurs` if the key is known as another's.
        """
        known = await self._sql(self._taken, key, directory, sender)
        if known.state is PayloadState.PREPARED and known.id not in self._jobs:
            self._begin(known)
        return known

    def _taken(self, key: str, directory: str, sender: Sender) -> PayloadRow:
        known = self._payloads.find(key)
        if known is None:
            _moved(directory, self.place(key))
            known = self._payloads.add(key, sender)
            log("payload_taken", payload=known.id, key=key, service=sender.service)
        known.refuse_other(mark_of(key, *sender))
        return known

    async def get(self, payload_id: int) -> PayloadRow | None:
        """The row of a payload."""
        if (known := self._open.get(payload_id)) is not None:
            await asyncio.sleep(0)  # a caller that asks again and again lets others go on
            return known
        return await self._sql(self._payloads.get, payload_id)

    async def find(self, key: str) -> PayloadRow | None:
        """The row of the payload of a key; one whose start was cut off by a crash goes on."""
        row = await self._sql(self._payloads.find, key)
        if row is not None and not row.state.is_final and row.id not in self._jobs:
            self._begin(row)
        return row

    async def kill(self, payload_id: int) -> PayloadRow | None:
        """Asks for the end of a payload, and returns at once."""
        row = self._noted(await self._sql(self._payloads.kill, payload_id))
        job = self._jobs.get(payload_id)
        if row is not None and not row.state.is_final and job is not None:
            self._spawn(self._withdraw(job, TERMINATED))
        return row

    async def close(self) -> None:
        """Lets go of everything; payloads run on, and the next start finds them."""
        self._is_closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.waiters.close()
        self._sql.close()
        self.files.close()

    # One payload

    def _begin(self, row: PayloadRow) -> None:
        if row.id in self._jobs:
            return
        self._loop = asyncio.get_running_loop()
        workshop = self._workshop
        terms = workshop.terms_of(row.service)
        place = self.place(row.key)
        job = Job(
            TASK,
            job_id_of(row.key),
            layout=workshop.layout,
            launcher=workshop.launcher,
            work=payload_work(row, place, terms, workshop.sandbox, workshop.environment),
            clock=workshop.machine.clock,
            limits=terms.limits,
            durability=terms.durability,
            once=True,
        )
        self._jobs[row.id] = job
        self._open[row.id] = row
        self._ids[job.job_id] = row.id
        self._spawn(self._see_through(row, job, terms))

    async def _see_through(self, row: PayloadRow, job: Job, terms: Terms) -> None:
        scheduler, place = self._workshop.scheduler, self.place(row.key)
        try:
            uid = self._workshop.sandbox.uid_of(row.id)
            if uid is not None:
                await self.files(_given_over, place, uid)
            job = await scheduler.submit_async(job, self._owner)
            self._jobs[row.id] = job
            if self._open[row.id].killed:  # the wish came before a crash, or before the scheduler had the job
                self._spawn(self._withdraw(job, TERMINATED))
            watch = self._spawn(self._watch_size(row.id, job, place, terms)) if terms.work_bytes else None
            await job.finished()
            if watch is not None:
                watch.cancel()
            await self._settle_at_last(row, job, place)
            scheduler.forget(job, self._owner)
        finally:
            self._jobs.pop(row.id, None)
            self._open.pop(row.id, None)
            self._ids.pop(job.job_id, None)
            self._over_limit.discard(row.id)

    async def _settle_at_last(self, row: PayloadRow, job: Job, place: Place) -> None:
        """Settles a payload; a database that cannot be written now is tried again."""
        while True:
            try:
                return await self._settle(row, job, place)
            except DatabaseError as error:
                log("stage_failed", 40, stage="payload", payload=row.id, why=str(error))
                await asyncio.sleep(WRITE_AGAIN_S)

    async def _settle(self, row: PayloadRow, job: Job, place: Place) -> None:
        """Packs what a payload left, then moves its row; a disk without room is waited for."""
        to, message = self._verdict(row, job)
        facts = facts_of(row, to.value, message, job.exit_code)
        moment = self._workshop.machine.clock.now().timestamp()
        packed = source(place, facts, self._workshop.sandbox.uid_of(row.id), moment)
        began = self._workshop.machine.clock.monotonic()
        values: dict[str, object] = {"exit_code": job.exit_code}
        while True:
            try:
                ended = await self.files(self._packed, row.id, (to, message), place, packed, values)
                break
            except OSError as error:
                waited = self._workshop.machine.clock.monotonic() - began
                if error.errno not in NO_ROOM or waited > PACK_FOR_S:
                    to = PayloadState.FAILED
                    message = f"{message}; its files could not be packed: {error.strerror}".lstrip("; ")
                    ended = await self._sql(partial(self._payloads.end, row.id, to, message, **values))
                    break
                log("starts_paused", 30, payload=row.id, why=error.strerror)
                if job.starttime is not None:  # it may have ended before it was called Running
                    await self._sql(self._payloads.started, row.id)
                why = "ended; waits for room on the node's disk"
                self._noted(await self._sql(self._payloads.explain, row.id, why))
                await asyncio.sleep(PACK_AGAIN_S)
        log("payload_ended", payload=row.id, state=to.value, message=message)
        self.waiters.tell(row.id, self._noted(ended))
        if ended is not None and ended.result_bytes is not None:
            self.files.soon(shutil.rmtree, place.work, True)

    def _packed(
        self,
        payload_id: int,
        end: tuple[PayloadState, str],
        place: Place,
        packed: Source,
        values: Mapping[str, Any],
    ) -> PayloadRow | None:
        """Packs what a payload left, and moves its row: both in one thread, one after the other."""
        done = pack(place, packed)
        return self._payloads.end(
            payload_id, *end, result_bytes=done.bytes, result_sha256=done.sha256, **values
        )

    def _verdict(self, row: PayloadRow, job: Job) -> tuple[PayloadState, str]:
        """The state of a payload whose job has ended, and why."""
        if job.state is JobState.DONE:
            return PayloadState.COMPLETED, ""
        message = job.standing.message or "it failed"
        if job.failure_status is JobFailureStatus.CANCELLED:
            if row.id in self._over_limit:
                return PayloadState.FAILED, "disk limit: it wrote more than it may (work_bytes)"
            return PayloadState.KILLED, TERMINATED
        return PayloadState.FAILED, message

    async def _watch_size(self, payload_id: int, job: Job, place: Place, terms: Terms) -> None:
        while terms.work_bytes is not None:
            await asyncio.sleep(LOOK_AT_SIZE_S)
            if await self.files(tree_bytes, place.work, terms.work_bytes) > terms.work_bytes:
                self._over_limit.add(payload_id)
                await self._withdraw(job, "disk limit")
                return

    async def _withdraw(self, job: Job, message: str) -> None:
        await self._workshop.scheduler.withdraw(job, self._owner, message)

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
        os.rename(directory, place.work)
    except FileNotFoundError:
        raise NodeRefusal("the files of the job are gone") from None
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        part = f"{place.work}.part"
        shutil.rmtree(part, ignore_errors=True)
        os.mkdir(part, 0o700)
        for name in os.listdir(directory):
            shutil.copy2(f"{directory}/{name}", part)
        os.rename(part, place.work)
    sync_directory(place.paths.directory)


def _given_over(place: Place, uid: int) -> None:
    os.chmod(place.paths.directory, 0o711)
    hand_over(place.work, uid)
