"""A scheduler as a server has it: jobs end at once, and calls come from an event loop of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from tenuto.launchers.protocols import StartOrder
from tenuto.scheduler.entries import JobDependency
from tenuto.scheduler.inputs import SlotFree
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.scheduler import Scheduler
from tenuto.testing.jobs import FakeOwner
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine
from tenuto.workspace.markers import Durability
from tests.parts.instant import InstantLauncher, NoWork

from .builders import WAIT_S

T = TypeVar("T")


class Server:
    """A scheduler whose jobs end at once, and an owner; used from an event loop of the test's own."""

    def __init__(self, root: Path, fails: Callable[[StartOrder], bool] = lambda order: False) -> None:
        self.machine = this_machine()
        self.layout = Layout(str(root))
        self.launcher = InstantLauncher(self.machine, fails=fails)
        self.scheduler = Scheduler(self.machine)
        self.owner = FakeOwner()

    def job(self, name: str, *needs: Job, **options: Any) -> Job:
        return Job(
            "server.Job",
            name,
            layout=self.layout,
            launcher=self.launcher,
            work=NoWork(),
            clock=self.machine.clock,
            dependencies=[JobDependency(needed) for needed in needs],
            durability=Durability.NONE,
            **options,
        )

    async def submit(self, name: str, *needs: Job, owner: FakeOwner | None = None, **options: Any) -> Job:
        return await self.scheduler.submit_async(self.job(name, *needs, **options), owner or self.owner)

    def hold_back(self) -> None:
        """Nothing starts from now on."""
        self.launcher.slots = 0

    def let_start(self) -> None:
        self.launcher.slots = 4
        self.scheduler.call(lambda: self.scheduler._feed(SlotFree()))


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """On a loop that is not the scheduler's, with a deadline."""
    return asyncio.run(asyncio.wait_for(coroutine, WAIT_S))
