"""Owns the load: an event loop that submits at a rate, awaits every end, and notes when it stands still.
A loop that waits for a processor that another process has does not stand still for our sake.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from proof.server.months import Place, scratch
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.latency import keep_loops_free
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
        schedstat = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        try:
            while True:
                began, queued = time.perf_counter(), _queued_s(schedstat)
                await asyncio.sleep(TICK_S)
                late_s = time.perf_counter() - began - TICK_S
                self.longest_raw_s = max(self.longest_raw_s, late_s)
                self.longest_s = max(self.longest_s, late_s - (_queued_s(schedstat) - queued))
        finally:
            os.close(schedstat)


async def submitted_at_a_rate(rate: int, seconds: float) -> Load:
    """So many submissions a second for a while; each end is awaited, and the job forgotten."""
    stalls = Stalls()
    with scratch() as root, _loops_kept_free():
        place = Place(root)
        owner = PlainOwner("service/node")
        watching = asyncio.create_task(stalls.watch())
        await _served(place, owner, "first")
        await asyncio.sleep(_TICKS_BEFORE * TICK_S)
        stalls.longest_s = stalls.longest_raw_s = 0.0
        submitted = ended = 0
        requests: set[asyncio.Task[bool]] = set()

        def end(request: asyncio.Task[bool]) -> None:
            nonlocal ended
            requests.discard(request)
            ended += request.result()

        began = time.perf_counter()
        while (passed := time.perf_counter() - began) < seconds or requests:
            while passed < seconds and submitted < rate * passed:
                request = asyncio.create_task(_served(place, owner, f"good-{submitted}"))
                request.add_done_callback(end)
                requests.add(request)
                submitted += 1
            await asyncio.sleep(TICK_S)
        watching.cancel()
        await asyncio.to_thread(place.scheduler.close)
    return Load(submitted, ended, stalls.longest_s, stalls.longest_raw_s)


@contextmanager
def _loops_kept_free() -> Iterator[None]:
    """As `docs/scheduler.md` advises servers, and as it was before when it ends."""
    thresholds, switch_s = gc.get_threshold(), sys.getswitchinterval()
    keep_loops_free()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(switch_s)


async def _served(place: Place, owner: PlainOwner, name: str) -> bool:
    job: Job = await place.scheduler.submit_async(place.job(name), owner)
    state = await job.finished()
    place.scheduler.forget(job, owner)
    return state.finished()


def _queued_s(schedstat: int) -> float:
    """How long the thread of a `schedstat` waited for a processor so far."""
    return int(os.pread(schedstat, 64, 0).split()[1]) / 1e9
