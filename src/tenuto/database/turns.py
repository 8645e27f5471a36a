"""Turns at writing a SQLite file: one writer in the process, first come first served.
Knows nothing of SQL.

Two threads that wait by SQLite's `busy_timeout` starve each other until one of them gives up with "database
is locked": SQLite polls, and the thread that has just committed is the first to ask again.
"""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType
from weakref import WeakValueDictionary


class Turns:
    """A lock that is handed over in the order in which it was asked for."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._holder: int | None = None

    def __enter__(self) -> None:
        own = threading.get_ident()
        with self._guard:
            if self._holder == own:
                raise RuntimeError("a transaction was begun inside another one of the same thread")
            if self._holder is None:
                self._holder = own
                return
            turn = threading.Event()
            self._waiting.append(turn)
        try:
            turn.wait()  # ends: every holder leaves, since every transaction has a deadline
        except BaseException:  # Ctrl-C: the turn of a thread that no longer waits goes to the next one
            with self._guard:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                else:
                    self._hand_over()
            raise
        self._holder = own

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._guard:
            self._hand_over()

    def _hand_over(self) -> None:
        if self._waiting:
            self._holder = -1  # not free: a newcomer must not pass the thread that is woken
            self._waiting.popleft().set()
        else:
            self._holder = None


_TURNS: WeakValueDictionary[str, Turns] = WeakValueDictionary()
_GUARD = threading.Lock()


def turns_of(path: str) -> Turns:
    """The turns of a file, the same for every `Database` of this process on that file."""
    with _GUARD:
        found = _TURNS.get(path)
        if found is None:
            found = _TURNS[path] = Turns()
        return found
