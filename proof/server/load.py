"""Owns the load: an event loop that submits at a rate, awaits every end, and notes when it stands still.
The time in which a processor was taken away from its witness is not counted: the machine stood still.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from proof.server.months import Place, scratch
from proof.server.witness import Interval, Witness, common_s, merged
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.loop import keep_loops_free
from tenuto.scheduler.owners import PlainOwner

TICK_S = 0.001
_MOST_AT_ONCE = 8
"""Submissions in one step of the loop; more are overdue only after the machine stood still."""
_PROCESSORS = 2
_TICKS_BEFORE = 50
"""The loop is watched for a while before the first submission, so that nothing is imported later."""


class Judged(NamedTuple):
    """The longest of some stalls."""

    own_s: float
    """Without the time in which a processor was taken away."""
    wall_s: float
    left_out: int
    """Stalls of which more than half was taken away. What a host leaves then comes in pieces, too small for a
    witness, and the loop needs several of them for what else takes a moment."""


def judged(stalls: Iterable[Interval], taken: list[Interval]) -> Judged:
    """What stalls amount to, if processors were taken away at these times, which do not overlap."""
    own_s = longest_s = 0.0
    left_out = 0
    for stall in stalls:
        wall_s, taken_s = stall.end - stall.begin, common_s(stall, taken)
        longest_s = max(longest_s, wall_s)
        if taken_s > wall_s / 2:
            left_out += 1
        else:
            own_s = max(own_s, wall_s - taken_s)
    return Judged(own_s, longest_s, left_out)


class Load(NamedTuple):
    """What a server under load came to."""

    submitted: int
    ended: int
    stalls: Judged


class Stalls:
    """Wakes up every millisecond, and notes when it is late."""

    def __init__(self) -> None:
        self.late: list[Interval] = []

    async def watch(self) -> None:
        """Until it is cancelled."""
        while True:
            due = time.perf_counter() + TICK_S
            await asyncio.sleep(TICK_S)
            now = time.perf_counter()
            if now - due > TICK_S:
                self.late.append(Interval(due, now))


async def submitted_at_a_rate(rate: int, seconds: float) -> Load:
    """So many submissions a second for a while; each end is awaited, and the job forgotten."""
    stalls = Stalls()
    with scratch() as root, _loops_kept_free(), _few_processors() as processors:
        witnesses = [Witness(processor) for processor in processors]
        place = Place(root)
        owner = PlainOwner("service/node")
        watching = asyncio.create_task(stalls.watch())
        await _served(place, owner, "first")
        await asyncio.sleep(_TICKS_BEFORE * TICK_S)
        stalls.late.clear()
        submitted = ended = 0
        requests: set[asyncio.Task[bool]] = set()

        def end(request: asyncio.Task[bool]) -> None:
            nonlocal ended
            requests.discard(request)
            ended += request.result()

        began = time.perf_counter()
        wanted = int(rate * seconds)
        while submitted < wanted or requests:
            due = min(int(rate * (time.perf_counter() - began)), wanted) - submitted
            for _ in range(min(due, _MOST_AT_ONCE)):
                request = asyncio.create_task(_served(place, owner, f"good-{submitted}"))
                request.add_done_callback(end)
                requests.add(request)
                submitted += 1
            await asyncio.sleep(TICK_S)
        watching.cancel()
        await asyncio.to_thread(place.scheduler.close)
    taken = merged(late for witness in witnesses for late in witness.late())
    return Load(submitted, ended, judged(stalls.late, taken))


@contextmanager
def _few_processors() -> Iterator[list[int]]:
    """As many as two busy threads need, with a witness on each: a third tells nothing of what they suffer."""
    before = os.sched_getaffinity(0)
    processors = sorted(before)[:_PROCESSORS]
    os.sched_setaffinity(0, processors)
    try:
        yield processors
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _loops_kept_free() -> Iterator[None]:
    """As `docs/architecture.md` advises servers, and as it was before when it ends."""
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
