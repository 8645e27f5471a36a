"""The process of one attempt that Slurm has, as a scheduler awaits it.
Tells its cluster of wishes; what is known of the attempt the cluster keeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from tenuto.launchers.local import resolve
from tenuto.launchers.slurm.attempt import SlurmAttempt, Wish
from tenuto.workspace.attempt_files import read_pid
from tenuto.workspace.ports import RUNNER_BYTE

if TYPE_CHECKING:
    from tenuto.launchers.slurm.cluster import SlurmCluster


LAST_STEPS_S = 1.0
LAST_STEPS = 100
"""How long, and how often, the lock of a runner that has written its marker is looked at."""


class SlurmProcess:
    """A `Process`; pending or running."""

    __slots__ = ("_attempt", "_cluster", "_is_closed")

    exit_code: int | None = None

    def __init__(self, cluster: SlurmCluster, attempt: SlurmAttempt) -> None:
        self._cluster = cluster
        self._attempt = attempt
        self._is_closed = False

    async def confirmed(self) -> bool:
        await self._until(lambda: self._attempt.has_begun or not self._attempt.is_active)
        return self._attempt.has_begun

    async def wait(self) -> None:
        await self._until(lambda: not self._attempt.is_active)
        locks, lock = self._cluster.machine.locks, self._attempt.paths.lock
        for _ in range(LAST_STEPS):  # its marker is written, and it exits in a moment
            if not locks.is_locked(lock, RUNNER_BYTE):
                return
            await asyncio.sleep(LAST_STEPS_S / LAST_STEPS)

    def signal_stop(self) -> None:
        self._cluster.wish(self._attempt, Wish.STOP)

    def kill(self) -> None:
        self._cluster.wish(self._attempt, Wish.KILL)

    def describe(self) -> dict[str, Any]:
        launch = self._attempt.launch
        described: dict[str, Any] = {"launcher": launch.launcher, "attempt": launch.attempt}
        pid = read_pid(self._cluster.machine.files, self._attempt.paths, launch.attempt)
        if pid is not None:
            described |= {"host": pid.identity.host, "pid": pid.identity.pid}
        if self._attempt.job is not None:
            described["job"] = self._attempt.job
        return described

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._cluster.let_go(self._attempt)

    async def _until(self, condition: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        while not condition():
            changed: asyncio.Future[None] = loop.create_future()  # an Event would take 700 bytes a job
            with self._cluster.listening(self._attempt, partial(_wake, loop, changed)):
                if not condition():  # or it came true before anything listened
                    await changed


def _wake(loop: asyncio.AbstractEventLoop, changed: asyncio.Future[None]) -> None:
    """Called in a thread of the cluster's."""
    with suppress(RuntimeError):  # the loop was closed meanwhile
        loop.call_soon_threadsafe(resolve, changed)
