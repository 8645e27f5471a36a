"""Owns the long life: owners come to one scheduler, have their jobs run, forget them, and leave.
Measures memory; whether it is too much is said elsewhere.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import shutil
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tenuto.launchers.protocols import StartOrder
from tenuto.lifecycle.states import JobState
from tenuto.scheduler.entries import JobDependency
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.owners import PlainOwner
from tenuto.scheduler.scheduler import Scheduler
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine
from tenuto.workspace.markers import Durability
from tests.parts.instant import InstantLauncher, NoWork

BATCH = 50
"""Jobs of one owner."""
_SAMPLES = 20


def scratch() -> TemporaryDirectory[str]:
    """A directory in memory where there is one: the disk of the machine is not what is to be measured."""
    memory = "/dev/shm"
    return TemporaryDirectory(prefix="tenuto-server-", dir=memory if os.access(memory, os.W_OK) else None)


class Months(NamedTuple):
    """What a long life came to."""

    owners: int
    grown: int
    """Bytes of memory after the first fifth of the jobs."""
    kept: int
    """Jobs that the scheduler still has in the end."""
    wrong: int
    """Jobs whose end is not what it should be."""


class Place:
    """A scheduler on the real disk, whose jobs end at once; those with a name in `bad-` fail."""

    def __init__(self, root: str, slots: int = 8) -> None:
        self.machine = this_machine()
        self.layout = Layout(root)
        self.launcher = InstantLauncher(self.machine, slots, fails=_fails, remembers=False)
        self.scheduler = Scheduler(self.machine)

    def job(self, name: str, *needs: Job, once: bool = False, priority: int = 0) -> Job:
        return Job(
            "server.Job",
            name,
            layout=self.layout,
            launcher=self.launcher,
            work=NoWork(),
            clock=self.machine.clock,
            dependencies=[JobDependency(needed) for needed in needs],
            durability=Durability.NONE,
            once=once,
            priority=priority,
        )


def _fails(order: StartOrder) -> bool:
    return order.launch.job_name.startswith("bad-")


async def lived_through(jobs: int, *, forgets: bool = True) -> Months:
    """So many jobs through one scheduler, whose owners forget them or not."""
    wrong = 0
    sizes: list[int] = []
    owners = max(jobs // BATCH, 1)
    with scratch() as root:
        place = Place(root)
        for number in range(owners):
            wrong += await _one_owner(place, number, forgets=forgets)
            if number % max(owners // _SAMPLES, 1) == 0:
                gc.collect()
                sizes.append(_resident())
        kept = sum((await asyncio.to_thread(place.scheduler.snapshot)).jobs.values())
        await asyncio.to_thread(place.scheduler.close)
    early = sizes[: max(len(sizes) // 5, 1)]
    return Months(owners, sizes[-1] - max(early), kept, wrong)


async def _one_owner(place: Place, number: int, *, forgets: bool) -> int:
    """An owner comes, and a second one that wants some of the same; both go. How many ends are wrong."""
    scheduler = place.scheduler
    owner, other = PlainOwner(f"service/node-{number}"), PlainOwner(f"search/search-{number}")
    jobs: list[Job] = []
    for index in range(BATCH):
        prefix = "bad" if index % 10 == 7 else "good"
        needs = jobs[-1:] if index % 10 == 5 else []
        made = place.job(f"{prefix}-{number}-{index}", *needs, once=index % 3 == 0, priority=index % 4)
        jobs.append(await scheduler.submit_async(made, owner))
        if index % 5 == 0:
            await scheduler.submit_async(place.job(f"{prefix}-{number}-{index}"), other)
    left = await scheduler.withdraw(jobs[-1], owner)
    ends = await asyncio.gather(*(job.finished() for job in jobs[:-1]))
    expected = [JobState.ERROR if job.job_id.startswith("bad-") else JobState.DONE for job in jobs[:-1]]
    wrong = sum(end is not wanted for end, wanted in zip(ends, expected, strict=True)) + (not left.finished())
    if forgets:
        for job in jobs:
            scheduler.forget(job, owner)
            scheduler.forget(job, other)
    await asyncio.to_thread(_remove, place, jobs)
    return wrong


def _remove(place: Place, jobs: list[Job]) -> None:
    place.scheduler.drain()
    for job in jobs:
        shutil.rmtree(job.paths.directory)


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()
