"""Threads in which a server does what blocks: SQL in some of them, files in others.
A database that does not answer must not keep a result from being read.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from tenuto.service.log import logger

T = TypeVar("T")
Work = Callable[[], object]


class _Crew:
    """The threads of this process, for all `Threads`: the one that was at work last is the next to work.

    So a job that comes alone sees as few threads as work at once; in a pool that hands its work round it saw
    all that there are, twelve of them.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._idle: list[SimpleQueue[Work]] = []
        self._busy = 0

    def call(self, work: Work) -> None:
        """Has a thread call this, which raises nothing."""
        with self._changed:
            inbox = self._idle.pop() if self._idle else None
            self._busy += 1
        if inbox is None:
            inbox = SimpleQueue()
            threading.Thread(target=self._serve, args=(inbox,), name="service", daemon=True).start()
        inbox.put(work)

    def finish(self) -> None:
        """Waits for the end of open calls, as the process ends."""
        with self._changed:
            self._changed.wait_for(lambda: not self._busy)

    def _serve(self, inbox: SimpleQueue[Work]) -> None:
        while True:
            work = inbox.get()  # ends with the process
            work()
            del work
            with self._changed:
                self._idle.append(inbox)
                self._busy -= 1
                if not self._busy:
                    self._changed.notify_all()


_crew = _Crew()
atexit.register(lambda: _crew.finish())  # noqa: PLW0108  a forked process has a crew of its own


def _begin_anew() -> None:
    """In a forked process there is none of the threads of its parent."""
    global _crew  # noqa: PLW0603
    _crew = _Crew()


os.register_at_fork(after_in_child=_begin_anew)


class Threads:
    """A few threads that calls are made in, awaited on one event loop.

    Answers that come close together wake the loop once. `run_in_executor` wakes it for each of them, and that
    is a write to a pipe, which gives the GIL away: a job of the service is a dozen calls.
    """

    def __init__(self, most: int) -> None:
        """`most`: how many calls are made at once; the others wait in their order."""
        self._guard = threading.Lock()
        self._free = most
        self._waiting: deque[tuple[asyncio.Future[Any] | None, Work]] = deque()
        self._is_closed = False
        self._answers: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._woken: asyncio.AbstractEventLoop | None = None
        """The loop that was told of answers, and has not looked yet."""

    async def __call__(self, function: Callable[..., T], *arguments: object) -> T:
        """What the function returns; it continues if the caller is cancelled."""
        awaited: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._submit(awaited, partial(self._call, awaited, function, arguments))
        return await awaited

    def soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Has a call made that nothing waits for, and that raises nothing."""
        self._submit(None, partial(function, *arguments))

    def close(self) -> None:
        """Calls that were begun end by themselves, the others are cancelled; a later call is refused."""
        with self._guard:
            self._is_closed = True
            cancelled = list(self._waiting)
            self._waiting.clear()
        for awaited, _ in cancelled:
            if awaited is not None:
                awaited.cancel()

    def _submit(self, awaited: asyncio.Future[Any] | None, work: Work) -> None:
        with self._guard:
            if self._is_closed:
                raise RuntimeError("these threads were closed: no call is made any more")
            if not self._free:
                self._waiting.append((awaited, work))
                return
            self._free -= 1
        _crew.call(partial(self._work, work))

    def _work(self, work: Work) -> None:
        """In a thread: this call, and those that wait for one to be free."""
        while True:
            try:
                work()
            except Exception:  # noqa: BLE001  its thread continues with the calls of others
                logger.exception("a call that nothing waits for failed", extra={"action": "stage_failed"})
            with self._guard:
                if not self._waiting:
                    self._free += 1
                    return
                _, work = self._waiting.popleft()

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
