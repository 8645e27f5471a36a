"""Schedulers on a virtual loop: the real code, in one thread, where time jumps and processes die at will."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tenuto.launchers.clusters import Clusters
from tenuto.scheduler.scheduler import Scheduler
from tenuto.scheduler.workers import call_safely
from tenuto.testing.clock import FakeClock
from tenuto.testing.host import FakeHost
from tenuto.workspace.ports import Machine

# An event loop on a fake clock: when nothing can happen now, time jumps to when something can.
# All that runs on it is deterministic, as long as it reads no other clock and waits for nothing outside.


T = TypeVar("T")


class NothingLeftToHappen(Exception):
    """Everything waits, and no timer is set: a deadlock."""


class _JumpingSelector(selectors.SelectSelector):
    """Instead of waiting, lets the time pass."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise NothingLeftToHappen("everything waits, and no timer is set")
            if timeout > 0:
                self._clock.advance(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time is a `FakeClock`'s."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(_JumpingSelector(clock))
        self._fake_clock = clock
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._fake_clock.monotonic()


def run_virtually(clock: FakeClock, coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a virtual loop."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        return runner.run(coroutine)


class SimulatedLoop:
    """One scheduler's share of a virtual loop; a waiting test drives it."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_dead = False

    def post(self, callback: Callable[..., object], *arguments: Any) -> None:
        if not self._is_dead:
            self.loop.call_soon(self._unless_dead, callback, *arguments)

    def later(self, delay_s: float, callback: Callable[..., object], *arguments: Any) -> None:
        self.loop.call_later(delay_s, self._unless_dead, callback, *arguments)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        if self._is_dead:
            coroutine.close()
            return
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def wait(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, timeout_s))

    def watch(self, directory: str) -> None:
        """Nothing tells of changes: the scheduler looks after a while."""

    def close(self) -> None:
        """Like the end of the process: what was under way stops where it is."""
        self._is_dead = True
        for task in self._tasks:
            task.cancel()

    def _unless_dead(self, callback: Callable[..., object], *arguments: Any) -> None:
        if not self._is_dead:
            callback(*arguments)


class Inline:
    """A `Worker` that calls on the spot, in order."""

    def call(self, function: Callable[[], object]) -> None:
        call_safely(function)

    def hurry(self) -> None:
        """Nothing is pending."""

    def close(self) -> None:
        """Nothing is pending."""


class SimulatedScheduler(Scheduler):
    """A scheduler in a process of a `FakeHost`, which can be killed."""

    def __init__(
        self, host: FakeHost, loop: VirtualLoop, clusters: Callable[[Machine], Clusters] | None = None
    ) -> None:
        """`clusters`: makes those that the scheduler asks, which observe for themselves on its machine."""
        self.pid = host.start()
        self._host = host
        machine = host.machine(self.pid)
        super().__init__(
            machine,
            loop=SimulatedLoop(loop),
            completions=Inline(),
            notifications=Inline(),
            outputs=Inline(),
            clusters=None if clusters is None else clusters(machine),
        )

    def kill(self) -> None:
        """KILL: its locks fall, its jobs go on."""
        self._host.end(self.pid)
        self._runner.close()
