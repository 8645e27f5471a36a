"""Owns the load: an event loop that submits at a rate, awaits every end, and notes when it stands still.
A loop that waits for a processor that another process has does not stand still for our sake.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import NamedTuple

from proof.server.months import Place, scratch
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.owners import PlainOwner

TICK_S = 0.001
_TICKS_BEFORE = 50
"""The loop is watched for a while before the first submission, so that nothing is imported later."""


class Load(NamedTuple):
    """What a server under load came to."""

    submitted: int
    ended: int
    stall_s: float
    """The longest time that the loop stood still, without what it waited for a processor."""
    raw_stall_s: float
    """The same by the clock on the wall."""


class Stalls:
    """Wakes up every millisecond, and notes how late it is."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.longest_raw_s = 0.0

    async def watch(self) -> None:
        """Until it is cancelled."""
        while True:
            began, queued = time.perf_counter(), _queued_s()
            await asyncio.sleep(TICK_S)
            late_s = time.perf_counter() - began - TICK_S
            self.longest_raw_s = max(self.longest_raw_s, late_s)
            self.longest_s = max(self.longest_s, late_s - (_queued_s() - queued))


async def submitted_at_a_rate(rate: int, seconds: float) -> Load:
    """So many submissions a second for a while; each end is awaited, and the job forgotten."""
    stalls = Stalls()
    with scratch() as root:
        place = Place(root)
        owner = PlainOwner("service/node")
        watching = asyncio.create_task(stalls.watch())
        await _served(place, owner, "first")
        await asyncio.sleep(_TICKS_BEFORE * TICK_S)
        thresholds = gc.get_threshold()
        _calm_collector()
        stalls.longest_s = stalls.longest_raw_s = 0.0
        requests: list[asyncio.Task[bool]] = []
        began = time.perf_counter()
        while (passed := time.perf_counter() - began) < seconds:
            while len(requests) < rate * passed:
                requests.append(asyncio.create_task(_served(place, owner, f"good-{len(requests)}")))
            await asyncio.sleep(TICK_S)
        ended = await asyncio.gather(*requests)
        watching.cancel()
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        await asyncio.to_thread(place.scheduler.close)
    return Load(len(requests), sum(ended), stalls.longest_s, stalls.longest_raw_s)


def _calm_collector() -> None:
    """As `docs/scheduler.md` advises servers: a full collection goes through all that was ever imported and
    all jobs that are known, and stops every thread of the process for 15 to 60 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(700, 10, 1_000)


async def _served(place: Place, owner: PlainOwner, name: str) -> bool:
    job: Job = await place.scheduler.submit_async(place.job(name), owner)
    state = await job.finished()
    place.scheduler.forget(job, owner)
    return state.finished()


def _queued_s() -> float:
    """How long this thread waited for a processor so far."""
    with open(f"/proc/self/task/{threading.get_native_id()}/schedstat", encoding="ascii") as schedstat:
        return int(schedstat.read().split()[1]) / 1e9
