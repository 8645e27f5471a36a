"""A pilot: one process in an allocation of Slurm's that runs many short jobs, one after another and beside.
Started as `python -m tenuto.launchers.slurm.pilot`; takes orders from a file, and starts nothing of its own.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import NamedTuple

from tenuto.launchers.runner.terms import SPARE_S
from tenuto.launchers.slurm.pilot_job import PilotJob
from tenuto.launchers.slurm.pilot_orders import VANISHED, Orders, PilotOrder, needed_s
from tenuto.launchers.warm.launcher import WarmLauncher
from tenuto.settings import process_environment
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import Machine


class Terms(NamedTuple):
    """How a pilot works, as its arguments say."""

    orders: str
    bell: str
    slots: int
    time_s: float
    idle_s: float
    beat_s: float


class Pilot:
    """Runs the orders in its file, until the end is ordered, or nothing comes any more."""

    def __init__(self, machine: Machine, terms: Terms) -> None:
        self._machine = machine
        self._terms = terms
        self._launcher = WarmLauncher(machine, slots=terms.slots)
        self._job = process_environment().get("SLURM_JOB_ID")
        self._waiting: list[PilotOrder] = []
        self._running: dict[asyncio.Task[None], PilotJob] = {}
        self._taken = 0
        """Slots that the running jobs take."""
        self._began = machine.clock.monotonic()
        self._busy = self._began
        """When something ran last."""
        self._vanished = terms.orders.rpartition("/")[0] + f"/{VANISHED}"
        self._changed = asyncio.Event()
        """Set when a job has ended."""

    async def run(self) -> None:
        """Returns when the allocation is to be given back."""
        orders = Orders(self._machine.files, self._terms.orders)
        beats = asyncio.ensure_future(self._beat())
        try:
            while True:
                now = self._machine.clock.monotonic()
                self._waiting += orders.take()
                self._start_what_fits(now)
                self._kill(orders.to_kill)
                if self._running:
                    self._busy = now
                elif self._is_done(orders, now):
                    return
                await self._news(orders)
        finally:
            beats.cancel()
            orders.close()
            self._launcher.close()

    async def _news(self, orders: Orders) -> None:
        """Returns when a job has ended, or orders may have come."""
        self._changed.clear()
        waits = [asyncio.ensure_future(orders.come()), asyncio.ensure_future(self._changed.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def _is_done(self, orders: Orders, now: float) -> bool:
        has_room = any(self._can_hold(order, now) for order in self._waiting)
        return not has_room and (orders.is_over or now - self._busy > self._terms.idle_s)

    def _can_hold(self, order: PilotOrder, now: float) -> bool:
        return now <= self._latest_start(order)

    def _latest_start(self, order: PilotOrder) -> float:
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

    def _start(self, order: PilotOrder) -> None:
        job = PilotJob(self._machine, self._launcher, order, self._terms.bell, self._vanished)
        task = asyncio.ensure_future(job.run(self._job, self._latest_start(order)))
        self._running[task] = job
        self._taken += order.cores

        def ended(task: asyncio.Task[None]) -> None:
            del self._running[task]
            self._taken -= order.cores
            self._changed.set()
            task.result()

        task.add_done_callback(ended)

    def _kill(self, nonces: set[str]) -> None:
        """Kills the runners of these jobs; one that is not running yet is left to its claim."""
        for job in self._running.values():
            if job.nonce in nonces:
                job.kill()
        nonces.clear()

    async def _beat(self) -> None:
        """Touches the pid records of the running jobs, as often as the driver expects it."""
        while True:
            for job in self._running.values():
                if job.is_running:
                    with suppress(OSError):
                        self._machine.files.touch(job.paths.pid)
            await asyncio.sleep(self._terms.beat_s)


def main() -> None:
    orders, bell, slots, *times = sys.argv[1:]
    time_s, idle_s, beat_s = map(float, times)
    terms = Terms(orders, bell, int(slots), time_s, idle_s, beat_s)

    async def fly() -> None:
        await Pilot(this_machine(), terms).run()

    asyncio.run(fly())


if __name__ == "__main__":
    main()
