"""An event loop on a fake clock: where real time would pass, the clock jumps.
Nothing here sleeps; a program that waits for what can never happen is told so.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from tenuto.testing.clock import FakeClock

T = TypeVar("T")


class Stuck(AssertionError):
    """Everything waits, and nothing is due: this would have hung."""


class _NoDescriptors(selectors.BaseSelector):
    """A selector on which nothing ever becomes readable, and waiting moves the clock."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck("every coroutine waits, and no timer is set")
        if timeout > 0:
            self._clock.advance(timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class VirtualEventLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose time is the fake clock's."""

    def __init__(self, clock: FakeClock) -> None:
        self._fake_clock = clock
        super().__init__(_NoDescriptors(clock))

    def time(self) -> float:
        return self._fake_clock.monotonic()

    def _write_to_self(self) -> None:
        """There is no other thread to be woken by."""


class SimulatedLoop:
    """The scheduler's loop, driven by whoever waits: everything happens in one thread."""

    def __init__(self, clock: FakeClock) -> None:
        self.loop = VirtualEventLoop(clock)

    def post(self, callback: Callable[..., object], *arguments: Any) -> None:
        self.loop.call_soon(callback, *arguments)

    def wait(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, timeout_s))

    def run_for(self, seconds: float) -> None:
        """Lets so much time pass."""
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def close(self) -> None:
        """Like the end of the process: what was under way stops where it is."""
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()


class Inline:
    """A `Worker` that calls on the spot, in order."""

    def call(self, function: Callable[[], None]) -> None:
        function()

    def close(self) -> None:
        """Nothing is pending."""
