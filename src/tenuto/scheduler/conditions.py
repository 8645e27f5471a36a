"""The conditions that callers wait for in the loop, looked at after every change.
Decides nothing: a caller brings its condition along.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tenuto.scheduler.loop import Loop


class ExitCondition:
    """Wakes the callers whose condition holds; to be used in the loop's thread only, but for `changed`."""

    def __init__(self, loop: Loop, take_in: Callable[[], None]) -> None:
        """`take_in`: takes in what was submitted."""
        self._loop = loop
        self._take_in = take_in
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self.is_due = False
        """A job ended, or fell asleep, since the conditions were looked at."""
        self._is_asking = False
        """The conditions are about to be looked at."""

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

    def changed(self) -> None:
        """Have the conditions looked at; from any thread."""
        self._loop.post(self._look)

    def notify_soon(self) -> None:
        """Have the conditions looked at in a step of its own."""
        self.is_due = False
        if not self._is_asking:
            self._is_asking = True
            self._loop.post(self._look)

    def _look(self) -> None:
        """Look at the conditions once everything submitted is known: a callback may just have submitted more.

        A job that is found done ends while others are still to be taken in. An owner that was told then that
        nothing is unfinished left, and those others arrived at a run that was closed.
        """
        self._is_asking = False
        self._take_in()
        for predicate, future in self._waiters:
            if not future.done() and predicate():
                future.set_result(None)
