"""Threads in which a server does what blocks: SQL in some of them, files in others.
A database that does not answer must not keep a result from being read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class Threads:
    """A few threads that calls are made in, awaited on one event loop.

    Answers that come close together wake the loop once. `run_in_executor` wakes it for each of them, and that
    is a write to a pipe, which gives the GIL away: a job of the service is a dozen calls.
    """

    def __init__(self, name: str, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=name)
        self._calls: dict[asyncio.Future[Any], Future[None]] = {}
        """What is awaited, and the call in its thread."""
        self._answers: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._woken: asyncio.AbstractEventLoop | None = None
        """The loop that was told of answers, and has not looked yet."""

    async def __call__(self, function: Callable[..., T], *arguments: object) -> T:
        """What the function returns; it goes on if the caller is cancelled."""
        awaited: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls[awaited] = self._pool.submit(self._call, awaited, function, arguments)
        try:
            return await awaited
        finally:
            del self._calls[awaited]

    def soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Has a call made that nothing waits for, and that raises nothing."""
        self._pool.submit(function, *arguments)

    def close(self) -> None:
        """Calls that were begun end by themselves, the others are cancelled; a later call is refused."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for awaited, call in list(self._calls.items()):
            if call.cancelled():
                awaited.cancel()

    def _call(
        self, awaited: asyncio.Future[T], function: Callable[..., T], arguments: tuple[object, ...]
    ) -> None:
        """In a thread: makes the call, and hands its answer to the loop."""
        try:
            self._answers.append((awaited, function(*arguments), None))
        except StopIteration as error:  # a future takes all but this one
            self._answers.append((awaited, None, RuntimeError(f"a call raised {error!r}")))
        except BaseException as error:  # noqa: BLE001  it is the caller's
            self._answers.append((awaited, None, error))
        loop = awaited.get_loop()
        if self._woken is not loop:
            self._woken = loop
            with suppress(RuntimeError):  # the loop is closed, and its callers with it
                loop.call_soon_threadsafe(self._give_answers)

    def _give_answers(self) -> None:
        self._woken = None  # before the look: an answer that comes after it wakes the loop again
        while self._answers:
            awaited, answer, error = self._answers.popleft()
            if awaited.done() or awaited.get_loop().is_closed():  # the caller was cancelled
                continue
            if error is None:
                awaited.set_result(answer)
            else:
                awaited.set_exception(error)
