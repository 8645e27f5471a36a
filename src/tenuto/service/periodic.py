"""Stages, which are rounds that events wake in an event loop, and waiters for one job or payload.
A stage that raises is logged and counted, and continues, with a slow poll as the net underneath.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from tenuto.service.log import logger


class Periodic:
    """Calls one function again and again, in one event loop."""

    def __init__(
        self,
        name: str,
        round: Callable[[], Awaitable[object]],
        every_s: float,
        failed: Callable[[str], None] | None = None,
    ) -> None:
        self.name = name
        self._round = round
        self._every_s = every_s
        self._failed = failed
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begins with a round at once."""
        self._loop = asyncio.get_running_loop()
        self._woken.set()
        self._task = self._loop.create_task(self._run())

    def wake(self) -> None:
        """Has a round made soon; in the loop."""
        self._woken.set()

    def wake_soon(self) -> None:
        """Has a round made soon; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._woken.set)

    async def close(self) -> None:
        """Ends the loop, in the middle of a round if need be."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await wait_for(self._woken, self._every_s)
            try:
                await self._round()
            except Exception as error:  # noqa: BLE001  a stage continues, whatever one round meets
                level = logging.WARNING if isinstance(error, OSError) else logging.ERROR
                fields = {"stage": self.name, "why": str(error) or type(error).__name__}
                logger.log(
                    level, "a stage failed", exc_info=True, extra={"action": "stage_failed", "fields": fields}
                )
                if self._failed is not None:
                    self._failed(self.name)
                await asyncio.sleep(min(self._every_s, 1.0))


CLEAN_EVERY_S = 60.0


def clean_every_s(max_age_s: float) -> float:
    """How often files are looked for that are older than this."""
    return min(CLEAN_EVERY_S, max(max_age_s / 5, 0.05))


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
        """The awaited job."""
        return list(self._events)


async def wait_for(event: asyncio.Event, timeout_s: float) -> bool:
    """Waits until the event is set, and clears it; False if that took too long."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    event.clear()
    return True
