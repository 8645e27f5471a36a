"""Coroutines that wait for a job or payload to change, woken by its id from any thread.
Keeps no state of jobs: a waiter that is woken reads the row again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Waiters:
    """The waiters of one event loop, by the id of what they wait for."""

    def __init__(self) -> None:
        # In the order in which they began to wait, so that a simulation repeats itself.
        self._events: dict[int, dict[asyncio.Event, None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    @contextmanager
    def listen(self, id: int) -> Iterator[asyncio.Event]:
        """An event that is set whenever that id is told of; to be made before the row is read."""
        self._loop = asyncio.get_running_loop()
        event = asyncio.Event()
        if self._is_closed:
            event.set()
        self._events.setdefault(id, {})[event] = None
        try:
            yield event
        finally:
            listening = self._events.get(id, {})
            listening.pop(event, None)
            if not listening:
                self._events.pop(id, None)

    def tell(self, id: int) -> None:
        """Wakes the waiters of an id; in the loop."""
        for event in self._events.get(id, {}):
            event.set()

    def tell_soon(self, id: int) -> None:
        """Wakes the waiters of an id; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.tell, id)

    @property
    def is_closed(self) -> bool:
        """True once nobody should wait any more."""
        return self._is_closed

    def close(self) -> None:
        """Wakes everybody, and lets nobody wait from now on."""
        self._is_closed = True
        for id in list(self._events):
            self.tell(id)

    def ids(self) -> list[int]:
        """What is waited for."""
        return list(self._events)


async def heard(event: asyncio.Event, timeout_s: float) -> bool:
    """Waits until the event is set, and clears it; False if that took too long."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    event.clear()
    return True
