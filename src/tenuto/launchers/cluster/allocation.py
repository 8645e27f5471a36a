"""The inside of a pilot: one process in an allocation that runs many short jobs, after and beside each other.
Started as `python -m tenuto.launchers.cluster.allocation`; takes its orders from a file of lines that the
driver appends to. Whatever is not as it should be, it complains and has touched nothing but the claim.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from tenuto.errors import LaunchRefused, TenutoError
from tenuto.launchers.kernel import die_with_parent
from tenuto.launchers.manifest import Order, read_header
from tenuto.launchers.protocols import Launcher, Process, StartOrder
from tenuto.launchers.runner.claimed import NotMine, await_launch, is_launched, locked
from tenuto.launchers.runner.runner_protocol import SPARE_S, UNMARKED, append_text
from tenuto.launchers.warm.launcher import WarmLauncher
from tenuto.lifecycle.states import JobFailureStatus, JobState, StateRecord
from tenuto.workspace.attempt_files import finish, read_launch, read_pid, read_stop
from tenuto.workspace.claims import Claimer, claim
from tenuto.workspace.inotify import watch_directory
from tenuto.workspace.machine import this_machine
from tenuto.workspace.markers import Marker, has_marker
from tenuto.workspace.ports import DESCENDANTS_BYTE, RUNNER_BYTE, Files, LockHandle, Machine
from tenuto.workspace.records import LaunchRecord, StatusRecord


class PilotProcess:
    """Runs the orders in its file, until the end is ordered, or nothing comes any more."""

    def __init__(self, machine: Machine, manifest: str) -> None:
        self._machine = machine
        self._manifest = manifest
        self._terms, self._first, _ = read_header(machine.files, manifest)
        self._launcher = WarmLauncher(machine, slots=self._terms.slots)
        self._waiting: list[AllocationOrder] = []
        self._running: dict[asyncio.Task[None], AllocationJob] = {}
        self._taken = 0
        """Slots that the running jobs take."""
        self._began = machine.clock.monotonic()
        self._busy = self._began
        """When something ran last."""
        self._vanished = manifest.rpartition("/")[0] + f"/{VANISHED}"
        self._changed = asyncio.Event()
        """Set when a job has ended, or the kernel says that orders came."""

    async def run(self) -> None:
        """Returns when the allocation is to be given back."""
        orders = Orders(self._machine.files, self._manifest, self._first, self._changed.set)
        beats = asyncio.ensure_future(self._beat())
        try:
            while True:
                now = self._machine.clock.monotonic()
                self._changed.clear()
                self._waiting += orders.take()
                self._start_what_fits(now)
                self._kill(orders.to_kill)
                if self._running:
                    self._busy = now
                elif self._is_done(orders, now):
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(orders.pause_s()):
                        await self._changed.wait()
        finally:
            beats.cancel()
            orders.close()
            self._launcher.close()

    def _is_done(self, orders: Orders, now: float) -> bool:
        has_room = any(self._can_hold(order, now) for order in self._waiting)
        return not has_room and (orders.is_over or now - self._busy > self._terms.idle_s)

    def _can_hold(self, order: AllocationOrder, now: float) -> bool:
        return now <= self._latest_start(order)

    def _latest_start(self, order: AllocationOrder) -> float:
        """Until when the time that is left is enough: that of the pilot, and some of its reserve."""
        return self._began + self._terms.time_s + SPARE_S - needed_s(order.duration_s, self._terms.time_s)

    def _start_what_fits(self, now: float) -> None:
        left = []
        for order in self._waiting:
            if order.cores <= self._terms.slots - self._taken and self._can_hold(order, now):
                self._start(order)
            else:
                left.append(order)
        self._waiting = left

    def _start(self, order: AllocationOrder) -> None:
        job = AllocationJob(self._machine, self._launcher, order, self._terms.signals, self._vanished)
        task = asyncio.ensure_future(job.run(self._terms.own_job, self._latest_start(order)))
        self._running[task] = job
        self._taken += order.cores

        def ended(task: asyncio.Task[None]) -> None:
            del self._running[task]
            self._taken -= order.cores
            self._changed.set()
            task.result()

        task.add_done_callback(ended)

    def _kill(self, nonces: set[str]) -> None:
        """Kills the runners of these jobs; a job that is not running yet is left to its claim."""
        for job in self._running.values():
            if job.nonce in nonces:
                job.kill()
        nonces.clear()

    def end_at_once(self) -> None:
        """Kills the runners of all jobs, and ends this process: its allocation was taken away."""
        for job in self._running.values():
            job.kill()
        os._exit(UNMARKED)

    async def _beat(self) -> None:
        """Touches the pid records of the running jobs, as often as the driver expects it."""
        while True:
            for job in self._running.values():
                if job.is_running:
                    with suppress(OSError):
                        self._machine.files.touch(job.paths.pid)
            await asyncio.sleep(self._terms.beat_s)


REFUSED_S = 2.0
"""How long a pilot waits before it starts a job again that its machine refused."""


class AllocationJob:
    """One order."""

    def __init__(
        self, machine: Machine, launcher: Launcher, order: AllocationOrder, signals: str | None, vanished: str
    ) -> None:
        """`vanished`: the file that takes the nonce of an attempt whose runner left no marker."""
        self._machine = machine
        self._launcher = launcher
        self._signals = signals
        self._vanished = vanished
        self._process: Process | None = None
        self._order = Order(*order[:3])
        self.nonce = order.nonce
        self.paths = self._order.paths

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

        `job`: the system's id of this allocation. `until`: when the pilot has no time left to start it.
        """
        try:
            if not is_launched(self._machine, self._order):
                await asyncio.to_thread(await_launch, self._machine, self._order)
            if not claim(self._machine, self.paths, self.nonce, Claimer.RUNNER, job):
                return
            launch = read_launch(self._machine.files, self.paths)
            if launch is None or launch.nonce != self.nonce:
                return  # it was given up meanwhile
            while not await self._is_over(launch):
                # The machine was short of something before the payload began: that is no try.
                if self._machine.clock.monotonic() >= until:
                    return
                await asyncio.sleep(REFUSED_S)
        except (NotMine, OSError, TenutoError) as error:
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
            append_text(
                self._vanished, f"{self.nonce}\n", os.O_CREAT
            )  # the system sees this allocation, and not its jobs
        self._ring("-")
        return True

    async def _locked(self, byte: int) -> LockHandle:
        lock = self._machine.locks.try_lock(self.paths.lock, byte)
        return await asyncio.to_thread(locked, self._machine, self._order, byte) if lock is None else lock

    def _mark(self, launch: LaunchRecord, reason: JobFailureStatus, message: str) -> None:
        """Marks an attempt that has its claim and is not started here."""
        now = self._machine.clock.now()
        marker = Marker(launch.attempt, launch.nonce, reason=reason, message=message, endtime=now)
        record = StateRecord(JobState.ERROR, reason, message, endtime=now)
        task_id, job_id = self.paths.directory.split("/")[-2:]
        status = StatusRecord(job_id, task_id, record, launch.attempt, launch.retry_count)
        with suppress(OSError):
            finish(self._machine.files, self.paths, marker, status)
        self._ring("-")

    def _ring(self, what: str) -> None:
        if self._signals is not None:
            append_text(self._signals, f"{self.nonce}{what}\n")

    def _complain(self, text: str) -> None:
        print(f"tenuto: {self.paths.directory}: {text}", file=sys.stderr, flush=True)  # noqa: T201  kept in `out`


KEPT = "kept"
END = ["end"]
"""The last line."""
KILL = "kill"
"""First word of a line that names, by its nonce, a job whose runner is to be killed."""
VANISHED = "vanished"
"""The file beside the orders into which a pilot writes the nonces of attempts that left no marker."""
_CHUNK = 1 << 20
_FIRST_LOOK_S = 0.02
_LONGEST_LOOK_S = 0.2


class AllocationOrder(NamedTuple):
    """One line of the orders."""

    directory: str
    script_name: str
    nonce: str
    cores: int
    duration_s: float | None


def needed_s(time_s: float | None, pilot_time_s: float) -> float:
    """What a job needs of a pilot's time: one of unknown length gets a quarter of it all."""
    return pilot_time_s / 4 if time_s is None else time_s


def append(path: str, *lines: AllocationOrder | list[str]) -> None:
    """Appends lines to the orders of a pilot; what is lost is sent again after its end."""
    append_text(path, "".join(f"{json.dumps(list(line))}\n" for line in lines))


class Orders:
    """The orders as a pilot reads them; in the thread of a loop."""

    def __init__(self, files: Files, path: str, first: int, tell: Callable[[], None]) -> None:
        """`first`: where they begin. `tell`: called when the kernel says that there are more."""
        self._files = files
        self._path = path
        self._offset = first
        self._unfinished = b""
        self._look_s = _FIRST_LOOK_S
        self._watch = watch_directory(path.rpartition("/")[0])
        self._tell = tell
        self.is_over = False
        """True once the last line was read."""
        self.to_kill: set[str] = set()
        """Nonces of the jobs whose runners are to be killed."""
        if self._watch is not None:
            asyncio.get_running_loop().add_reader(self._watch.fileno(), self._wake)

    def take(self) -> list[AllocationOrder]:
        """The orders that came since the last call."""
        data = b""
        with suppress(OSError):
            data = self._files.read_range(self._path, self._offset, _CHUNK)
        self._offset += len(data)
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        found = [json.loads(line) for line in lines]
        self.is_over = self.is_over or END in found
        self.to_kill |= {words[1] for words in found if words[0] == KILL}
        if data:
            self._look_s = _FIRST_LOOK_S
        return [AllocationOrder(*words) for words in found if words != END and words[0] != KILL]

    def pause_s(self) -> float:
        """How long to wait before the next look, if the kernel says nothing: short, then longer."""
        pause_s, self._look_s = self._look_s, min(2 * self._look_s, _LONGEST_LOOK_S)
        return pause_s

    def close(self) -> None:
        """Listens no more."""
        if self._watch is not None:
            asyncio.get_running_loop().remove_reader(self._watch.fileno())
            self._watch.close()
            self._watch = None

    def _wake(self) -> None:
        if self._watch is not None:
            self._watch.drain()
            self._tell()


def main(manifest: str, kept: str = "") -> None:
    """`kept`: that the batch system kills its shell, and not a process with a session of its own."""

    async def allocated() -> None:
        pilot = PilotProcess(this_machine(), manifest)
        if kept:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, pilot.end_at_once)
            os.setsid()  # else the pilot would be killed with its shell, and its runners continue
            die_with_parent(signal.SIGTERM)
        await pilot.run()

    asyncio.run(allocated())


if __name__ == "__main__":
    main(*sys.argv[1:])
