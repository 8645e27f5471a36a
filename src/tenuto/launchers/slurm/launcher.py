"""The Slurm launcher: gathers orders into arrays and submits them; what becomes of them its cluster follows.
Judges no job, and knows none of Slurm's words.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import replace
from typing import NamedTuple

from tenuto.launchers.instructions import Limits
from tenuto.launchers.protocols import StartOrder
from tenuto.launchers.requirements import Alternative
from tenuto.launchers.slurm import commands
from tenuto.launchers.slurm.cluster import SlurmCluster, this_cluster
from tenuto.launchers.slurm.commands import SlurmError
from tenuto.launchers.slurm.options import SlurmOptions
from tenuto.launchers.slurm.pilots import Pilots, fits, room, shared
from tenuto.launchers.slurm.process import SlurmProcess
from tenuto.launchers.slurm.submitter import Handed, SlurmSubmitter
from tenuto.settings import load_settings
from tenuto.settings.slurm import SlurmSettings
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.records import LaunchRecord, PidRecord

logger = logging.getLogger("tenuto.slurm")

GATHER_S = 0.1
"""Orders are gathered until so long brings no new one,"""
GATHER_MOST_S = 1.0
"""but no longer than this."""


class Ordered(NamedTuple):
    """An order, and where its process is awaited."""

    handed: Handed
    process: asyncio.Future[SlurmProcess]


class Batch:
    """Orders of one workspace and one set of options that are gathered for one sbatch."""

    def __init__(self, root: str, options: SlurmOptions, began: float) -> None:
        self.root = root
        self.options = options
        self.began = began
        self.orders: list[Ordered] = []
        self.timer: asyncio.TimerHandle | None = None


class Gathering:
    """The orders of one launcher, and of those adapted from it; used in the loop of a scheduler."""

    def __init__(self, submitter: SlurmSubmitter, most: int) -> None:
        self._submitter = submitter
        self._most = most
        self._batches: dict[tuple[str, SlurmOptions], Batch] = {}

    async def add(self, handed: Handed, options: SlurmOptions) -> SlurmProcess:
        """The process of an order, once Slurm has it."""
        loop = asyncio.get_running_loop()
        key = handed.root, options
        batch = self._batches.get(key)
        if batch is None:
            batch = self._batches[key] = Batch(handed.root, options, loop.time())
        ordered = Ordered(handed, loop.create_future())
        batch.orders.append(ordered)
        if batch.timer is not None:
            batch.timer.cancel()
        rest_s = batch.began + GATHER_MOST_S - loop.time()
        if len(batch.orders) >= self._most or rest_s <= 0:
            self._flush(batch)
        else:
            batch.timer = loop.call_later(min(GATHER_S, rest_s), self._flush, batch)
        return await ordered.process

    def _flush(self, batch: Batch) -> None:
        self._batches.pop((batch.root, batch.options), None)
        loop = asyncio.get_running_loop()
        waiting = {ordered.handed.attempt: ordered.process for ordered in batch.orders}

        def answer(handed: Handed, result: SlurmProcess | Exception) -> None:
            """Called in a thread, once for each order."""
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, waiting[handed.attempt], result)

        self._submitter.submit([ordered.handed for ordered in batch.orders], batch.options, answer)


class SlurmLauncher:
    """Runs jobs through Slurm."""

    name = "slurm"
    external = True
    lock_path: str | None = None
    limits: Limits | None = None

    def __init__(
        self,
        options: SlurmOptions | None = None,
        *,
        settings: SlurmSettings | None = None,
        cluster: SlurmCluster | None = None,
        grace_s: float | None = None,
    ) -> None:
        """`options`: what each job asks for, in place of what the settings say. `settings`: the rest.

        `grace_s`: how long jobs may take to stop, by default as the settings say; asked for on top.
        """
        self.settings = settings or load_settings().slurm
        self.grace_s = load_settings().grace_s if grace_s is None else grace_s
        self.options = options or SlurmOptions.of(self.settings)
        self.slots = slots_of(self.options, self.settings)
        self.cluster = cluster or this_cluster()
        self.cluster.use(self.settings)
        self._python = self.settings.python or sys.executable
        submitter = SlurmSubmitter(self.cluster, self.settings, self._python, self.grace_s)
        self._pilots: dict[tuple[str, SlurmOptions], Pilots] = {}
        self._gathering = Gathering(submitter, self.settings.array_size)
        self._pools: tuple[object, object] = self, object()
        if (
            self.options.time_s
            and fits(replace(self.options, time_s=None), self.settings)
            and not self._is_piloted
        ):
            logger.warning(
                "jobs get allocations of their own: slurm.time_s (%g) is more than slurm.pilot_time_s (%g)",
                self.options.time_s,
                self.settings.pilot_time_s,
                extra={"action": "slurm_pilots_unused"},
            )

    @property
    def pool(self) -> object:
        """Launchers that were adapted from one share its slots; jobs of pilots have slots of their own."""
        return self._pools[self._is_piloted]

    @property
    def _is_piloted(self) -> bool:
        return fits(self.options, self.settings)

    def adapted(self, alternative: Alternative) -> SlurmLauncher:
        """This launcher, asking Slurm for what a requirement says; else `LauncherNotFound`."""
        options = self.options.adapted(alternative)
        if options == self.options:
            return self
        launcher = object.__new__(SlurmLauncher)
        launcher.__dict__.update(self.__dict__, options=options, slots=slots_of(options, self.settings))
        return launcher

    def arguments(self) -> list[str]:
        """What sbatch is asked for each job."""
        return self.options.arguments(self.grace_s)

    def why_refused(self) -> str | None:
        """Why Slurm would refuse a job, in its own words; None if it would take it, or does not answer."""
        try:
            return commands.would_start(self.arguments())
        except SlurmError:
            return None

    async def start(self, order: StartOrder) -> SlurmProcess:
        """Hand an order over; returns once Slurm has it. Raises `LaunchRefused` with Slurm's own words."""
        handed = Handed.of(order, self.cluster.expect(order.paths, order.launch))
        if self._is_piloted:
            return await self._by_pilot(handed)
        return await self._gathering.add(handed, self.options)

    async def _by_pilot(self, handed: Handed) -> SlurmProcess:
        loop = asyncio.get_running_loop()
        key = handed.root, shared(self.options)
        pilots = self._pilots.get(key)
        if pilots is None:
            pilots = self._pilots[key] = Pilots(self.cluster, self.settings, self._python, self.grace_s, *key)
        process: asyncio.Future[SlurmProcess] = loop.create_future()

        def answer(_: Handed, result: SlurmProcess | Exception) -> None:
            """Called in a thread, once."""
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, process, result)

        pilots.add(handed, self.options, answer)
        return await process

    def find(self, paths: JobPaths, launch: LaunchRecord, pid: PidRecord | None) -> SlurmProcess | None:
        return self.cluster.process(paths, launch)

    async def sweep(self, paths: JobPaths, launch: LaunchRecord | None) -> tuple[int, ...]:
        return ()

    def close(self) -> None:
        """Jobs go on, and are found again by their submissions; pilots end after their last order."""
        for pilots in self._pilots.values():
            pilots.close()
        self._pilots.clear()

    def __repr__(self) -> str:
        return f"SlurmLauncher({' '.join(self.arguments())})"


def slots_of(options: SlurmOptions, settings: SlurmSettings) -> int:
    """How many jobs are handed over at once: as many as the queue may have, or as pilots can hold.

    A driver that hands over more than its pilots can hold is busy with that while they have nothing to run.
    """
    return room(settings) if fits(options, settings) else settings.max_jobs


def _resolve(future: asyncio.Future[SlurmProcess], result: SlurmProcess | Exception) -> None:
    if future.done():
        if isinstance(result, SlurmProcess):
            result.close()
    elif isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
