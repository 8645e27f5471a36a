"""Work that must not block a loop: completions in four threads, notifications in one.
A function that raises is logged and harms no other.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from inspect import signature
from typing import Protocol

logger = logging.getLogger("tenuto.scheduler")

Call = Callable[[], object]


class Worker(Protocol):
    """Runs functions somewhere; the simulator's runs them on the spot."""

    def call(self, function: Call) -> None:
        """Has the function called once, soon."""
        ...

    def hurry(self) -> None:
        """Lets queued functions be called at once."""
        ...

    def close(self) -> None:
        """Returns once everything handed over was called."""
        ...


class ThreadWorker:
    """A few threads, started when first needed, that call functions in the order they came."""

    def __init__(self, name: str, threads: int, gather_s: float = 0.0) -> None:
        """`gather_s`: how long a thread with nothing left to do lets calls pile up before it looks again."""
        self._name = name
        self._gather_s = gather_s
        self._gathering = threading.Lock()
        """Taken, but for a moment after `hurry`: its waiters let calls pile up until then."""
        self._gathering.acquire()
        self._wanted = threads
        self._queue: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._unfinished = 0
        """Calls not yet finished: a second thread is started only when the first is busy."""

    def call(self, function: Call) -> None:
        with self._lock:
            self._unfinished += 1
            if len(self._threads) < min(self._wanted, self._unfinished):
                name = f"{self._name}-{len(self._threads)}"
                thread = threading.Thread(target=self._serve, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
        self._queue.put(function)

    def hurry(self) -> None:
        with self._lock:
            if self._gathering.locked():
                self._gathering.release()

    def close(self) -> None:
        with self._lock:
            threads, self._threads = self._threads, []
        for _ in threads:
            self._queue.put(None)
        self.hurry()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()

    def _serve(self) -> None:
        while (function := self._queue.get()) is not None:
            call_safely(function)
            del function  # or the thread holds on to its last job until the next one comes
            with self._lock:
                self._unfinished -= 1
            if self._gather_s and self._queue.empty():
                self._gathering.acquire(timeout=self._gather_s)


def call_safely(function: Call) -> BaseException | None:
    """Calls a function of the user's; its error is logged, and returned.

    Also SystemExit: a thread that it ended would leave those hanging who wait for the next call.
    """
    try:
        function()
    except BaseException as error:
        logger.exception("a callback raised", extra={"action": "callback_raised"})
        return error
    return None


def takes(function: Callable[..., object], number: int) -> bool:
    """Whether a function can be called with that many arguments by position; True if it does not tell."""
    try:
        signature(function).bind(*range(number))
    except TypeError:
        return False
    except ValueError:  # some built-in functions
        return True
    return True


class DoneHandlerWorker(ThreadWorker):
    """Processes the ends of jobs: task outputs and the final status, off the loop."""

    def __init__(self) -> None:
        super().__init__("tenuto-done", 4)


class NotificationWorker(ThreadWorker):
    """Tells listeners what happened, one event after the other, off the loop."""

    def __init__(self) -> None:
        super().__init__("tenuto-notify", 1, gather_s=0.02)
