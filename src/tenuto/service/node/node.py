"""A node put together: its directory and lock, its database, its scheduler, and the runner of payloads.
Speaks no HTTP; `node.routes` does, and a server with an embedded node calls it directly.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from tenuto.jobs.key import JobKey
from tenuto.jobs.removal import no_keeper, remove
from tenuto.jobs.source import ActedAs
from tenuto.jobs.view import JobsView
from tenuto.launchers.confinement import Sandbox, SandboxMode
from tenuto.launchers.forking_launcher import ForkingLauncher
from tenuto.launchers.payload.limits import counts_together
from tenuto.launchers.protocols import Launcher
from tenuto.lifecycle.service import PayloadState
from tenuto.scheduler.scheduler import Scheduler
from tenuto.scheduler.tokens import GpuToken, declare
from tenuto.service.archive import LogPiece, read_archived_log, read_log, zip_stream
from tenuto.service.data_owner import DataDirectory, open_data
from tenuto.service.decisions import CleanerRest
from tenuto.service.log import log
from tenuto.service.node.payloads import PayloadRow, Payloads
from tenuto.service.node.runner import TASK, PayloadRunner, Workshop
from tenuto.service.node.work import Terms
from tenuto.service.nodes import LONGEST_PROGRESS
from tenuto.service.periodic import Periodic, clean_every_s, wait_for
from tenuto.service.tables import NODE_MIGRATIONS
from tenuto.workspace.layout import Layout, directory_name
from tenuto.workspace.modes import DIRECTORY_MODE
from tenuto.workspace.ports import Machine

PATIENCE_S = 30.0
PROGRESS_WITHIN = 1 << 14
"""Bytes at the end of what a payload printed, in which its progress is looked for."""
_PROGRESS = re.compile(r"^progress:(.*)\n", re.MULTILINE)
LAST_FIRST_ID = 1 << 30
"""Ids begin at a number by chance: a server that asks another node must not get a payload. Servers of
job-orchestrator know ids of 32 bits with a sign: from any first id on there is room for a billion more."""
OPEN_DIRECTORY = 0o711
"""Of the directories above a payload's: its own uid must pass through them, and see nothing."""


class GpuPlan(NamedTuple):
    """The GPUs of a node, for services that have some."""

    devices: Mapping[int, str]
    tokens_path: str
    """Where the schedulers of the machine tell each other which are taken."""

    def token(self, machine: Machine) -> GpuToken:
        host = directory_name(machine.processes.own().host)
        token = GpuToken(self.devices, f"{self.tokens_path}/{host}")
        declare(machine, token)
        return token


@dataclass(frozen=True, slots=True)
class NodePlan:
    """How a node is to be."""

    name: str
    data: Path
    database: Path
    slots: int | None
    """None: as many as the launcher has."""
    launcher: Callable[[], Launcher]
    sandbox: Sandbox
    terms: Mapping[str, Terms]
    environment: Mapping[str, str]
    max_age_s: float
    min_free_bytes: int = 0
    gpus: GpuPlan | None = None


def make_directory(directory: Path, *, is_passed: bool) -> None:
    """Makes a directory for this account alone; ``is_passed``: one that the uids of payloads pass through.

    Of a directory that is there no right is taken: it may be a person's own.
    """
    if not directory.is_dir():
        directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    mode = directory.stat().st_mode
    if is_passed and mode & OPEN_DIRECTORY != OPEN_DIRECTORY:
        directory.chmod(mode & 0o7777 | OPEN_DIRECTORY)


class EmbeddedNode:
    """A node in this process."""

    def __init__(self, plan: NodePlan, machine: Machine) -> None:
        self.name = plan.name
        self.uploads = str(plan.data / "uploads")
        self._plan = plan
        self._machine = machine
        data = DataDirectory(str(plan.data), str(plan.data / "jobs" / TASK), "node")
        self.database, _, self._lock = open_data(machine, data, plan.database, NODE_MIGRATIONS, PATIENCE_S)
        self._open_directories()
        self._scheduler = Scheduler(machine)
        self._launcher = plan.launcher()
        self.slots = plan.slots or self._launcher.slots
        layout = Layout(str(plan.data))
        first_id = int(machine.randomness.nonce(), 16) % LAST_FIRST_ID + 1
        self.payloads = Payloads(self.database, first_id)
        self.is_drained = self.payloads.is_drained()
        workshop = Workshop(
            machine,
            layout,
            self._launcher,
            self._scheduler,
            plan.sandbox,
            plan.terms,
            plan.environment,
            plan.min_free_bytes,
            plan.gpus.token(machine) if plan.gpus is not None else None,
        )
        self.runner = PayloadRunner(workshop, self.payloads, plan.name)
        self._cleaner = PayloadCleaner(machine, layout, self.payloads, self.runner, plan)

    def _open_directories(self) -> None:
        shutil.rmtree(self.uploads, ignore_errors=True)
        os.makedirs(self.uploads, mode=0o700)
        is_passed = self._plan.sandbox.uid_of(0) is not None
        make_directory(self._plan.data, is_passed=is_passed)
        for directory in (self._plan.data / "jobs", self._plan.data / "jobs" / TASK):
            make_directory(directory, is_passed=is_passed)
            os.chmod(directory, OPEN_DIRECTORY if is_passed else DIRECTORY_MODE)

    async def start(self) -> None:
        """Continues open payloads, and begins to clean."""
        if self._plan.sandbox.mode is SandboxMode.NONE:
            log("not_sandboxed", 30, node=self.name)
        if self.is_drained:
            log("drained", 30, node=self.name, payloads=0)
        for service, terms in self._plan.terms.items():
            self._tell_limits(service, terms)
        if isinstance(self._launcher, ForkingLauncher):
            self._launcher.warm_up()
        await self.runner.resume()
        self._cleaner.start()

    def reload(self, plan: NodePlan, *, is_inside: bool = False) -> None:
        """Holds the payloads that come from now on to the limits of this plan; the rest needs a new start.

        ``is_inside`` a server: of a service that is no longer offered only old jobs come; its limits stay.
        """
        workshop = self.runner.workshop
        for service, terms in plan.terms.items():
            if workshop.terms.get(service) != terms:
                self._tell_limits(service, terms)
        terms_now = {**workshop.terms, **plan.terms} if is_inside else plan.terms
        gpus = workshop.gpus or (plan.gpus.token(self._machine) if plan.gpus is not None else None)
        self.runner.workshop = replace(
            workshop, terms=terms_now, sandbox=plan.sandbox, environment=plan.environment, gpus=gpus
        )

    def _tell_limits(self, service: str, terms: Terms) -> None:
        limits = terms.shown()
        if terms.limits.memory_bytes is not None and not self._launcher.external:
            limits["memory_of"] = "all processes" if counts_together() else "each process"
        log("limits", node=self.name, service=service or "others", **limits)

    async def takes(self) -> str | None:
        """Why no payload is taken now: `draining` or `disk_full`; None if they are."""
        if self.is_drained:
            return "draining"
        return "disk_full" if await self.runner.files(self.runner.is_full) else None

    async def drain(self, *, is_drained: bool) -> None:
        """Takes no payload from now on, also after a new start; or takes them again."""
        await self.runner.files(self.payloads.set_drained, is_drained)
        self.is_drained = is_drained
        log("drained" if is_drained else "resumed", node=self.name, payloads=self.runner.open_count)

    async def changed(self, payload_id: int, known: PayloadState | None, wait_s: float) -> PayloadRow | None:
        """The row of a payload, once its state is not `known` or the time is over."""
        clock = self._machine.clock
        until = clock.monotonic() + wait_s
        with self.runner.waiters.listen(payload_id) as event:
            row = await self.runner.get(payload_id)
            while True:
                left_s = until - clock.monotonic()
                if row is None or row.state is not known or left_s <= 0 or self.runner.waiters.is_closed:
                    return row
                told = await wait_for(event, left_s)
                row = (event.row if told else None) or await self.runner.get(payload_id)

    def partial(self, row: PayloadRow) -> Generator[bytes]:
        """The files of a payload as they are now, as a ZIP; of an ended one, its result."""
        place = self.runner.place(row.key)
        if os.path.exists(place.result):
            with open(place.result, "rb") as result:
                while piece := result.read(1 << 18):
                    yield piece
            return
        yield from zip_stream(self.runner.partial(row))

    def read_log(self, row: PayloadRow, stream: str, offset: int, limit: int) -> LogPiece:
        """A piece of what a payload printed; nothing if it printed nothing yet."""
        place, log_bytes = self.runner.place(row.key), self.runner.log_bytes(row)
        try:
            return read_log(place.logs[stream], offset, limit, log_bytes)
        except FileNotFoundError:  # the metrics of an ended payload are in its result alone
            return read_archived_log(place.result, stream, offset, limit) or LogPiece(b"", offset)

    def progress(self, row: PayloadRow) -> str:
        """What a payload said last of its progress: the last line that it printed as `progress: ...`."""
        path = self.runner.place(row.key).logs["stdout"]
        status = self._machine.files.stat(path)
        if status is None:
            return ""
        size = int(status.size)
        tail = self._machine.files.read_range(path, max(0, size - PROGRESS_WITHIN), PROGRESS_WITHIN)
        lines = _PROGRESS.findall(tail.decode("utf-8", "replace"))
        shown = "".join(character for character in lines[-1] if character.isprintable()) if lines else ""
        return shown.strip()[:LONGEST_PROGRESS]

    async def close(self) -> None:
        """Stops; payloads run on, and the next start finds them."""
        await self._cleaner.close()
        await self.runner.close()
        self._scheduler.close()
        self._launcher.close()
        self.database.close()
        if self._lock is not None:
            self._lock.close()


async def threaded(pieces: Generator[bytes]) -> AsyncGenerator[bytes]:
    """The pieces of a stream that blocks, made in threads.

    A reader that is cancelled leaves a thread behind that makes the next piece: the stream is closed after
    that, not beside it.
    """
    lock = threading.Lock()

    def following() -> bytes:
        with lock:
            return next((piece for piece in pieces if piece), b"")

    def close() -> None:
        with lock:
            pieces.close()

    try:
        while piece := await asyncio.to_thread(following):
            yield piece
    finally:
        await asyncio.shield(asyncio.to_thread(close))


FORGET_AFTER = 45
"""Rows are kept this many times as long as files: a server that asks late learns what happened."""
AT_ONCE = 100
FORGOTTEN = 1000
EVERY = 1 << 31


class PayloadCleaner:
    """Cleans once in a while."""

    def __init__(
        self, machine: Machine, layout: Layout, payloads: Payloads, runner: PayloadRunner, plan: NodePlan
    ) -> None:
        self._machine = machine
        self._view = JobsView(layout, machine)
        self._payloads = payloads
        self._runner = runner
        self._max_age_s = plan.max_age_s
        clock = machine.clock
        self._rest = CleanerRest(clock.now().timestamp(), clock.monotonic())
        self._stage = Periodic("node_cleaner", self._round, clean_every_s(plan.max_age_s))

    def start(self) -> None:
        """Begins with what a node that was killed left of payloads whose result is packed."""
        self._runner.files.soon(self._tidy)
        self._stage.start()

    def _tidy(self) -> None:
        for row in self._payloads.old(0, EVERY):
            if row.result_bytes is not None:
                shutil.rmtree(self._runner.place(row.key).work, ignore_errors=True)

    async def close(self) -> None:
        await self._stage.close()

    async def _round(self) -> None:
        await asyncio.to_thread(self.clean)

    def clean(self) -> int:
        """Removes old payloads; returns how many."""
        clock = self._machine.clock
        self._rest, ahead = self._rest.round(clock.now().timestamp(), clock.monotonic(), self._max_age_s)
        if ahead:
            log("clock_jumped", 30, ahead_s=round(ahead))
        if self._rest.is_resting(clock.monotonic()):
            return 0
        max_age_ms = int(self._max_age_s * 1000)
        cleaned, failed = 0, set[int]()
        while old := [
            row for row in self._payloads.old(max_age_ms, AT_ONCE + len(failed)) if row.id not in failed
        ]:
            left = self._removed(old)
            failed |= left
            cleaned += len(old) - len(left)
        if cleaned:
            log("cleaned", payloads=cleaned)
        while self._payloads.forget(max_age_ms * FORGET_AFTER, FORGOTTEN) == FORGOTTEN:
            pass
        return cleaned

    def _removed(self, rows: Sequence[PayloadRow]) -> set[int]:
        """Removes the files of payloads; the ids of those that could not be removed now."""
        keys = {
            JobKey(TASK, os.path.basename(self._runner.place(row.key).paths.directory)): row for row in rows
        }
        left = {row.id for row in rows}
        # The row moves last: what a killed node left of a directory is found again by its row.
        for acted in remove(self._view, keys, no_keeper):
            if acted.outcome in (ActedAs.DELETED, ActedAs.GONE):
                self._payloads.clean(keys[acted.key])
                left.discard(keys[acted.key].id)
            else:
                log("stage_failed", 30, stage="node_cleaner", why=acted.detail)
        return left
