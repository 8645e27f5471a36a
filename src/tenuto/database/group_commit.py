"""Writers of a SQLite file: they take turns, and those that wait share one commit with the next.
Runs no SQL; a write that raises is undone with its group, whose writes then run one by one.

A commit of SQLite waits for the disk: without groups, eight threads that each move a row wait for eight
commits one after the other. Two threads that wait by SQLite's `busy_timeout` starve each other until one of
them gives up with "database is locked": SQLite polls, and the thread that has just committed asks first.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any
from weakref import WeakValueDictionary

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from tenuto.database.engine import fault_of


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


Write = Callable[[Connection], Any]
MOST = 32
"""Writers that share a commit: more would keep the first of them waiting."""


class _Writer:
    """One write that waits, and what came of it."""

    def __init__(self, fn: Write) -> None:
        self.fn = fn
        self.called = threading.Event()
        """Set when the write is settled, or when its thread is to lead the next group."""
        self.is_settled = False
        self.answer: Any = None
        self.error: BaseException | None = None

    def settle(self, answer: Any, error: BaseException | None) -> None:
        self.is_settled, self.answer, self.error = True, answer, error


class _Spoiled(Exception):
    """A write of a group raised: all of them are undone."""


class Groups:
    """The writers of one database, of which one leads: it runs the writes of all that came meanwhile."""

    def __init__(self, turns: AbstractContextManager[None], commit: Callable[[Write], Any]) -> None:
        """`turns`: of the file; `commit` runs a function in a transaction, again if need be."""
        self._turns = turns
        self._commit = commit
        self._guard = threading.Lock()
        self._waiting: list[_Writer] = []
        self._leader: int | None = None
        """The thread that leads; 0 while it is being handed over."""

    def write(self, fn: Write) -> Any:
        """What the function returns after its changes were committed, alone or with those of others."""
        writer = _Writer(fn)
        leads = False
        try:
            with self._guard:
                if self._leader == threading.get_ident():
                    raise RuntimeError("a transaction was begun inside another one of the same thread")
                self._waiting.append(writer)
                leads = self._leader is None
                if leads:
                    self._leader = threading.get_ident()
            if not leads:
                writer.called.wait()  # ends: every leader calls those of its group, and the next leader
            if not writer.is_settled:
                self._lead()
        except BaseException:  # Ctrl-C
            with self._guard:
                if writer in self._waiting:
                    self._waiting.remove(writer)
                    if leads or writer.called.is_set():
                        self._hand_over()
            raise
        if writer.error is not None:
            raise writer.error
        return writer.answer

    def _lead(self) -> None:
        """Runs the writes that wait, in one transaction, and hands over to the first that came since."""
        group: list[_Writer] = []
        try:
            with self._turns:
                with self._guard:
                    self._leader = threading.get_ident()
                    group, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
                self._run(group)
        finally:
            with self._guard:
                # Ctrl-C has ended this thread's write: the others still have theirs before them.
                self._waiting[:0] = [one for one in group[1:] if not one.is_settled]
                self._hand_over()
            for one in group:
                if one.is_settled:
                    one.called.set()

    def _hand_over(self) -> None:
        self._leader = 0 if self._waiting else None
        if self._waiting:
            self._waiting[0].called.set()

    def _run(self, group: list[_Writer]) -> None:
        if len(group) == 1:
            self._run_alone(group[0])
            return
        answers: list[Any] = []

        def together(connection: Connection) -> None:
            answers[:] = [_answer(one.fn, connection) for one in group]

        try:
            self._commit(together)
        except _Spoiled:
            for one in group:
                self._run_alone(one)
        except Exception as error:  # noqa: BLE001  each of them raises it in its own thread
            for one in group:
                one.settle(None, error)
        else:
            for one, answer in zip(group, answers, strict=True):
                one.settle(answer, None)

    def _run_alone(self, writer: _Writer) -> None:
        try:
            writer.settle(self._commit(writer.fn), None)
        except Exception as error:  # noqa: BLE001  raised in the thread that asked for the write
            writer.settle(None, error)


def _answer(fn: Write, connection: Connection) -> Any:
    """What a write returns; savepoints around each would cost as much as the writes themselves."""
    try:
        return fn(connection)
    except DBAPIError as error:
        if fault_of(error) is not None:
            raise  # of the database, not of this write: the whole transaction is repeated
        raise _Spoiled from error
    except Exception as error:
        raise _Spoiled from error
