"""Waiting in the loop for something to become true, told at every change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class ExitCondition:
    """Wakes those whose predicate holds; to be used in the loop's thread only."""

    def __init__(self) -> None:
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    async def wait_for(self, predicate: Callable[[], bool]) -> None:
        """Returns once the predicate holds."""
        if predicate():
            return
        waiter = (predicate, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            await waiter[1]
        finally:
            self._waiters.remove(waiter)

    def notify(self) -> None:
        """Something changed."""
        for predicate, future in self._waiters:
            if not future.done() and predicate():
                future.set_result(None)
