"""A node put together: its directory and lock, its database, its scheduler, and the runner of payloads.
Speaks no HTTP; `node.routes` does, and a server with an embedded node calls it directly.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tenuto.launchers.forking_launcher import ForkingLauncher
from tenuto.launchers.selection import choose_launcher
from tenuto.lifecycle.service import PayloadState
from tenuto.scheduler.scheduler import Scheduler
from tenuto.service.archive import zip_stream
from tenuto.service.data_owner import DataDirectory, open_data
from tenuto.service.log import log
from tenuto.service.node.cleaner import PayloadCleaner
from tenuto.service.node.packer import facts_of, source
from tenuto.service.node.payloads import PayloadRow, Payloads
from tenuto.service.node.runner import TASK, PayloadRunner, Workshop
from tenuto.service.node.sandbox import Sandbox, SandboxMode
from tenuto.service.node.work import Terms
from tenuto.service.tables import NODE_MIGRATIONS
from tenuto.service.waiters import heard
from tenuto.workspace.layout import Layout
from tenuto.workspace.modes import DIRECTORY_MODE
from tenuto.workspace.ports import Machine

PATIENCE_S = 30.0
LAST_FIRST_ID = 1 << 30
"""Ids begin at a number by chance: a server that asks another node must not get a payload. Servers of
job-orchestrator know ids of 32 bits with a sign: from any first id on there is room for a billion more."""
OPEN_DIRECTORY = 0o711
"""Of the directories above a payload's: its own uid must pass through them, and see nothing."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """How a node is to be."""

    name: str
    data: Path
    database: Path
    slots: int
    launcher: str
    sandbox: Sandbox
    terms: Mapping[str, Terms]
    environment: Mapping[str, str]
    max_age_s: float
    clean_every_s: float = 60.0


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
        self.slots = plan.slots
        self.uploads = str(plan.data / "uploads")
        self._plan = plan
        self._machine = machine
        data = DataDirectory(str(plan.data), str(plan.data / "jobs" / TASK), "node")
        self.database, _, self._lock = open_data(machine, data, plan.database, NODE_MIGRATIONS, PATIENCE_S)
        self._open_directories()
        self._scheduler = Scheduler(machine)
        self._launcher = choose_launcher(plan.launcher, plan.slots)
        layout = Layout(str(plan.data))
        first_id = int(machine.randomness.nonce(), 16) % LAST_FIRST_ID + 1
        self.payloads = Payloads(self.database, first_id)
        workshop = Workshop(
            machine, layout, self._launcher, self._scheduler, plan.sandbox, plan.terms, plan.environment
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
        """Goes on with what was open, and begins to clean."""
        if self._plan.sandbox.mode is SandboxMode.NONE:
            log("not_sandboxed", 30, node=self.name)
        if isinstance(self._launcher, ForkingLauncher):
            self._launcher.warm_up()
        await self.runner.resume()
        self._cleaner.start()

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
                told = await heard(event, left_s)
                row = (event.row if told else None) or await self.runner.get(payload_id)

    def partial(self, row: PayloadRow) -> Iterator[bytes]:
        """The files of a payload as they are now, as a ZIP; of an ended one, its result."""
        place = self.runner.place(row.key)
        if os.path.exists(place.result):
            with open(place.result, "rb") as result:
                while piece := result.read(1 << 18):
                    yield piece
            return
        facts = facts_of(row, row.state.value, row.message, row.exit_code)
        moment = self._machine.clock.now().timestamp()
        yield from zip_stream(source(place, facts, self._plan.sandbox.uid_of(row.id), moment))

    def read_log(self, row: PayloadRow, stream: str, offset: int, limit: int) -> bytes:
        """A piece of what a payload printed; nothing if it printed nothing yet."""
        try:
            return self._machine.files.read_range(self.runner.place(row.key).logs[stream], offset, limit)
        except FileNotFoundError:
            return b""

    async def close(self) -> None:
        """Stops; payloads run on, and the next start finds them."""
        await self._cleaner.close()
        await self.runner.close()
        self._scheduler.close()
        self._launcher.close()
        self.database.close()
        if self._lock is not None:
            self._lock.close()


def next_piece(stream: Iterator[bytes]) -> bytes:
    """The next piece of a stream that is not empty; nothing at its end."""
    for piece in stream:
        if piece:
            return piece
    return b""
