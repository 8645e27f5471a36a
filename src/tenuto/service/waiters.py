"""Coroutines that wait for a job or payload to change, woken by its id.
Keeps no state of jobs: a waiter that is woken without a row reads it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

R = TypeVar("R")


class Waiter(asyncio.Event, Generic[R]):
    """An event that is set whenever its id is told of."""

    row: R | None = None
    """As the teller moved it; None if it must be read."""


class Waiters(Generic[R]):
    """The waiters of one event loop, by the id of what they wait for."""

    def __init__(self) -> None:
        # In the order in which they began to wait, so that a simulation repeats itself.
        self._events: dict[int, dict[Waiter[R], None]] = {}
        self._is_closed = False

    @contextmanager
    def listen(self, id: int) -> Iterator[Waiter[R]]:
        """An event that is set whenever that id is told of; to be made before the row is read."""
        event = Waiter[R]()
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

    def tell(self, id: int, row: R | None = None) -> None:
        """Wakes the waiters of an id, with its row if the caller has moved it; in the loop."""
        for event in self._events.get(id, {}):
            event.row = row
            event.set()

    @property
    def is_closed(self) -> bool:
        """True once no request should wait any more."""
        return self._is_closed

    def close(self) -> None:
        """Wakes all requests that wait, and lets none wait from now on."""
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
