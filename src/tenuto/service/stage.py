"""A stage of the service: a loop that is woken by events, with a slow poll as the net underneath.
A round that raises is logged and counted, and the stage goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tenuto.service.log import logger
from tenuto.service.waiters import heard


class Stage:
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
            await heard(self._woken, self._every_s)
            try:
                await self._round()
            except Exception as error:  # noqa: BLE001  a stage goes on, whatever one round meets
                level = logging.WARNING if isinstance(error, OSError) else logging.ERROR
                fields = {"stage": self.name, "why": str(error) or type(error).__name__}
                logger.log(
                    level, "a stage failed", exc_info=True, extra={"action": "stage_failed", "fields": fields}
                )
                if self._failed is not None:
                    self._failed(self.name)
                await asyncio.sleep(min(self._every_s, 1.0))
