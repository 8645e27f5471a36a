"""One order of a pilot, from its claim to its end: a runner that the pilot's warm launcher forks.
Whatever is not as it should be, the pilot complains and has touched nothing but the claim.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress

from tenuto.errors import LaunchRefused, TenutoError
from tenuto.launchers.protocols import Launcher, Process, StartOrder
from tenuto.launchers.slurm.pilot_orders import PilotOrder
from tenuto.lifecycle.states import JobFailureStatus, JobState, Standing
from tenuto.workspace.attempt_files import finish, read_launch, read_pid, read_stop
from tenuto.workspace.claims import Claimer, claim
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.markers import Marker, has_marker
from tenuto.workspace.ports import DESCENDANTS_BYTE, RUNNER_BYTE, LockHandle, Machine
from tenuto.workspace.records import LaunchRecord, StatusRecord

DISK_PATIENCE_S = 60.0
"""How long the disk of this host may take to show what was written elsewhere."""
LOOK_S = 0.2
REFUSED_S = 2.0
"""How long a pilot waits before it starts a job again that its machine refused."""


class PilotJob:
    """One order."""

    def __init__(
        self, machine: Machine, launcher: Launcher, order: PilotOrder, bell: str, vanished: str
    ) -> None:
        """`vanished`: the file that takes the nonce of an attempt whose runner left no marker."""
        self._machine = machine
        self._launcher = launcher
        self._bell = bell
        self._vanished = vanished
        self._process: Process | None = None
        self.nonce = order.nonce
        self.paths = JobPaths(order.directory, order.script_name)

    @property
    def is_running(self) -> bool:
        """True while its runner is up."""
        return self._process is not None

    def kill(self) -> None:
        """Ends its runner at once."""
        if self._process is not None:
            self._process.kill()

    async def run(self, job: str | None, until: float) -> None:
        """Runs the order, if nothing else has its attempt.

        `job`: Slurm's id of this allocation. `until`: when the pilot has no time left to start it.
        """
        try:
            launch = await self._launched()
            if launch is None or not claim(self._machine, self.paths, launch.nonce, Claimer.RUNNER, job):
                return
            if await self._launched() is None:
                return
            while not await self._is_over(launch):
                # The machine was short of something before the payload began: that is no try.
                if self._machine.clock.monotonic() >= until:
                    return
                await asyncio.sleep(REFUSED_S)
        except (OSError, TenutoError) as error:
            self._complain(str(error))

    async def _is_over(self, launch: LaunchRecord) -> bool:
        """Starts the attempt and awaits its end; False if the machine refused it before it began."""
        stop = read_stop(self._machine.files, self.paths, launch.attempt)
        if stop is not None:
            self._mark(launch, stop.reason, stop.message or "stopped")
            return True
        lock, descendants = await self._locked(RUNNER_BYTE), await self._locked(DESCENDANTS_BYTE)
        try:
            process = await self._launcher.start(StartOrder(self.paths, launch, lock, descendants))
            await process.confirmed()
        except LaunchRefused as refused:
            self._mark(launch, JobFailureStatus.REJECTED, str(refused))
            return True
        except OSError as error:
            self._complain(f"it is tried again: {error}")
            return False
        finally:
            lock.close()
            descendants.close()
        self._process = process
        self._ring("+")
        await process.wait()
        self._process = None
        process.close()
        if not has_marker(self._machine.files, self.paths, self.nonce):
            if read_pid(self._machine.files, self.paths, launch.attempt) is None:
                return False  # its payload got no process, so that it took its pid record back
            await self._launcher.sweep(self.paths, launch)
            _append(self._vanished, f"{self.nonce}\n")  # Slurm sees this allocation, and not its jobs
        self._ring("-")
        return True

    async def _launched(self) -> LaunchRecord | None:
        """The record of the attempt, once the disk of this host shows it; None if another is shown."""
        give_up = self._machine.clock.monotonic() + DISK_PATIENCE_S
        while True:
            launch = read_launch(self._machine.files, self.paths)
            if launch is not None and launch.nonce == self.nonce:
                return launch
            if self._machine.clock.monotonic() > give_up:
                return None
            await asyncio.sleep(LOOK_S)

    async def _locked(self, byte: int) -> LockHandle:
        give_up = self._machine.clock.monotonic() + DISK_PATIENCE_S
        while True:
            lock = self._machine.locks.try_lock(self.paths.lock, byte)
            if lock is not None:
                return lock
            if self._machine.clock.monotonic() > give_up:
                raise OSError(f"byte {byte} of {self.paths.lock} is held")
            await asyncio.sleep(LOOK_S)

    def _mark(self, launch: LaunchRecord, reason: JobFailureStatus, message: str) -> None:
        """Marks an attempt that has its claim and is not started here."""
        now = self._machine.clock.now()
        marker = Marker(launch.attempt, launch.nonce, reason=reason, message=message, endtime=now)
        standing = Standing(JobState.ERROR, reason, message, endtime=now)
        task_id, job_id = self.paths.directory.split("/")[-2:]
        status = StatusRecord(job_id, task_id, standing, launch.attempt, launch.retry_count)
        with suppress(OSError):
            finish(self._machine.files, self.paths, marker, status)
        self._ring("-")

    def _ring(self, what: str) -> None:
        with suppress(OSError):
            _append(self._bell, f"{self.nonce}{what}\n", 0)

    def _complain(self, text: str) -> None:
        print(f"tenuto: {self.paths.directory}: {text}", file=sys.stderr, flush=True)  # noqa: T201  Slurm keeps it


def _append(path: str, text: str, flags: int = os.O_CREAT) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | flags, 0o644)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
