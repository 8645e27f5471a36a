"""An event loop on a fake clock: when nothing can happen now, time jumps to when something can.
Everything that runs on it is deterministic, as long as it reads no other clock and waits for nothing outside.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from tenuto.testing.clock import FakeClock

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
