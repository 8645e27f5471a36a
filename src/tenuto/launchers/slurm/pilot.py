"""A pilot: one process in an allocation of Slurm's that runs many short jobs, one after another and beside.
Started as `python -m tenuto.launchers.slurm.pilot`; takes orders from a file, and starts nothing of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from tenuto.errors import LaunchRefused, TenutoError
from tenuto.launchers.protocols import StartOrder
from tenuto.launchers.warm.launcher import WarmLauncher
from tenuto.lifecycle.states import JobFailureStatus, JobState, Standing
from tenuto.settings import process_environment
from tenuto.workspace.attempt_files import finish, read_launch
from tenuto.workspace.claims import Claimer, claim
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.machine import this_machine
from tenuto.workspace.markers import Marker
from tenuto.workspace.ports import DESCENDANTS_BYTE, RUNNER_BYTE, LockHandle, Machine
from tenuto.workspace.records import LaunchRecord, StatusRecord

END = ["end"]
"""The last order."""
LOOK_S = 0.2
DISK_PATIENCE_S = 60.0
_CHUNK = 1 << 20


class PilotOrder(NamedTuple):
    """One line of the orders."""

    directory: str
    script_name: str
    nonce: str
    cores: int
    duration_s: float | None


class Terms(NamedTuple):
    """How a pilot works, as its arguments say."""

    orders: str
    bell: str
    slots: int
    time_s: float
    idle_s: float
    beat_s: float


class Pilot:
    """Runs what its file of orders says, until the end is ordered, or nothing comes any more."""

    def __init__(self, machine: Machine, terms: Terms) -> None:
        self._machine = machine
        self._terms = terms
        self._launcher = WarmLauncher(machine, slots=terms.slots)
        self._job = process_environment().get("SLURM_JOB_ID")
        self._offset = 0
        self._unfinished = b""
        self._waiting: list[PilotOrder] = []
        self._running: dict[asyncio.Task[None], int] = {}
        self._paths: dict[str, JobPaths] = {}
        """Of the jobs that run, by nonce."""
        self._is_over = False
        self._began = machine.clock.monotonic()
        self._busy = self._began
        """When something ran last."""

    async def run(self) -> None:
        beat_due = 0.0
        while True:
            now = self._machine.clock.monotonic()
            for order in self._new_orders():
                self._waiting.append(order)
            self._start_what_fits(now)
            if now >= beat_due:
                beat_due = now + self._terms.beat_s
                self._beat()
            if self._running:
                self._busy = now
                done, _ = await asyncio.wait(
                    self._running, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    del self._running[task]
                    task.result()
            elif self._is_done(now):
                self._launcher.close()
                return
            else:
                await asyncio.sleep(LOOK_S)

    def _is_done(self, now: float) -> bool:
        has_room = any(self._can_hold(order, now) for order in self._waiting)
        return not has_room and (self._is_over or now - self._busy > self._terms.idle_s)

    def _new_orders(self) -> Iterator[PilotOrder]:
        with suppress(OSError):
            data = self._machine.files.read_range(self._terms.orders, self._offset, _CHUNK)
            self._offset += len(data)
            *lines, self._unfinished = (self._unfinished + data).split(b"\n")
            for line in lines:
                words = json.loads(line)
                if words == END:
                    self._is_over = True
                else:
                    yield PilotOrder(*words)

    def _can_hold(self, order: PilotOrder, now: float) -> bool:
        """True if the time that is left is enough; a job of unknown length gets a quarter of it all."""
        left_s = self._terms.time_s - (now - self._began)
        needed_s = self._terms.time_s / 4 if order.duration_s is None else order.duration_s
        return left_s >= needed_s

    def _start_what_fits(self, now: float) -> None:
        for order in list(self._waiting):
            free = self._terms.slots - sum(self._running.values())
            if order.cores <= free and self._can_hold(order, now):
                self._waiting.remove(order)
                self._running[asyncio.ensure_future(self._run_one(order))] = order.cores

    async def _run_one(self, order: PilotOrder) -> None:
        """Runs one order, if nothing else has its attempt."""
        paths = JobPaths(order.directory, order.script_name)
        try:
            launch = await self._launched(paths, order.nonce)
            if launch is None or not claim(self._machine, paths, order.nonce, Claimer.RUNNER, self._job):
                return
            if await self._launched(paths, order.nonce) is None:
                return
            lock = await self._locked(paths, RUNNER_BYTE)
            descendants = await self._locked(paths, DESCENDANTS_BYTE)
        except (OSError, TenutoError) as error:
            self._complain(f"{paths.directory}: {error}")
            return
        try:
            process = await self._launcher.start(StartOrder(paths, launch, lock, descendants))
            self._paths[order.nonce] = paths
            await process.confirmed()
        except (OSError, LaunchRefused) as error:
            self._refuse(paths, launch, str(error))
            return
        finally:
            lock.close()
            descendants.close()
        self._ring(order.nonce, "+")
        await process.wait()
        self._ring(order.nonce, "-")
        process.close()
        del self._paths[order.nonce]

    async def _launched(self, paths: JobPaths, nonce: str) -> LaunchRecord | None:
        """The record of the attempt, once the disk of this host shows it; None if another is shown."""
        give_up = self._machine.clock.monotonic() + DISK_PATIENCE_S
        while True:
            launch = read_launch(self._machine.files, paths)
            if launch is not None and launch.nonce == nonce:
                return launch
            if self._machine.clock.monotonic() > give_up:
                return None
            await asyncio.sleep(LOOK_S)

    async def _locked(self, paths: JobPaths, byte: int) -> LockHandle:
        give_up = self._machine.clock.monotonic() + DISK_PATIENCE_S
        while True:
            lock = self._machine.locks.try_lock(paths.lock, byte)
            if lock is not None:
                return lock
            if self._machine.clock.monotonic() > give_up:
                raise OSError(f"byte {byte} of {paths.lock} is held")
            await asyncio.sleep(LOOK_S)

    def _beat(self) -> None:
        """Touches what shows that the jobs live, as often as the driver expects it."""
        for paths in self._paths.values():
            with suppress(OSError):
                self._machine.files.touch(paths.pid)

    def _refuse(self, paths: JobPaths, launch: LaunchRecord, problem: str) -> None:
        """Marks an attempt that has its claim and cannot be started here."""
        now = self._machine.clock.now()
        reason = JobFailureStatus.REJECTED
        marker = Marker(launch.attempt, launch.nonce, reason=reason, message=problem, endtime=now)
        standing = Standing(JobState.ERROR, reason, problem, endtime=now)
        task_id, job_id = paths.directory.split("/")[-2:]
        status = StatusRecord(job_id, task_id, standing, launch.attempt, launch.retry_count)
        with suppress(OSError):
            finish(self._machine.files, paths, marker, status)
        self._ring(launch.nonce, "-")

    def _ring(self, nonce: str, what: str) -> None:
        with suppress(OSError):
            fd = os.open(self._terms.bell, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                os.write(fd, f"{nonce}{what}\n".encode())
            finally:
                os.close(fd)

    def _complain(self, text: str) -> None:
        print(f"tenuto: {text}", file=sys.stderr, flush=True)  # noqa: T201  Slurm keeps it


def main() -> None:
    orders, bell, slots, *times = sys.argv[1:]
    time_s, idle_s, beat_s = map(float, times)
    terms = Terms(orders, bell, int(slots), time_s, idle_s, beat_s)
    asyncio.run(Pilot(this_machine(), terms).run())


if __name__ == "__main__":
    main()
