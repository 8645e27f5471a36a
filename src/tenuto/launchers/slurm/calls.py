"""Threads in which Slurm's commands are called: a few, and none of them keeps this process from ending.
Knows nothing of Slurm.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Calls:
    """A few calls at once; the rest wait."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Has a function called in one of the threads."""
        future: Future[T] = Future()
        self._waiting.put((future, function))
        with self._lock:
            if not self._idle and self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._work, name="tenuto-slurm-call", daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            future, function = self._waiting.get()
            with self._lock:
                self._idle -= 1
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001  it is the caller's
                future.set_exception(error)
