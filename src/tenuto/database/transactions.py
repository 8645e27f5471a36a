"""Transactions: `read` and `write`, repeated whole after a lost connection or a lost race.
Knows no table; works from any thread, and blocks the caller's.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from tenuto.clock import SystemClock, SystemRandomness
from tenuto.database.engine import (
    SQLITE,
    WRITES,
    Fault,
    database_url,
    fault_of,
    make_engine,
    shown,
    without_password,
)
from tenuto.database.wakeups import SENDER, Wakeups, take_announcements
from tenuto.errors import DatabaseDamaged, DatabaseError, DatabaseUnavailable


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
    """One write that waits, and its outcome."""

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


class CommitGroups:
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
        """The function's answer, once its changes were committed, alone or with other writers' changes."""
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
                writer.called.wait()  # ends: every leader calls the writers of its group, and the next leader
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
                together = group if len(group) > 1 else []
                try:
                    if together:
                        answers = self._commit(
                            lambda connection: [_answer(one.fn, connection) for one in group]
                        )
                        for one, answer in zip(group, answers, strict=True):
                            one.settle(answer, None)
                except _Spoiled:
                    together = []
                except Exception as error:  # noqa: BLE001  each of them raises it in its own thread
                    for one in group:
                        one.settle(None, error)
                for one in () if together else group:
                    try:
                        one.settle(self._commit(one.fn), None)
                    except Exception as error:  # noqa: BLE001  raised in the thread that asked for the write
                        one.settle(None, error)
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


# Deadlines of transactions: a connection whose server no longer answers is cut.
# Only for PostgreSQL: a driver that waits for a silent server waits for ever.


class Deadlines:
    """Watches the transactions of one database, in a thread that ends when there is nothing to watch."""

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._clock = SystemClock()
        self._changed = threading.Condition()
        self._open: dict[int, tuple[float, int]] = {}
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None

    @contextmanager
    def over(self, connection: Connection) -> Iterator[None]:
        """Cuts the connection if the block takes longer than it may."""
        driver = connection.connection.dbapi_connection
        assert driver is not None
        with self._changed:
            number = next(self._numbers)
            self._open[number] = (self._clock.monotonic() + self._longest_s, driver.fileno())
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="deadlines", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._open.pop(number, None)

    def close(self) -> None:
        with self._changed:
            self._open.clear()
            self._changed.notify_all()

    def _watch(self) -> None:
        with self._changed:
            while self._open:
                now = self._clock.monotonic()
                for number, (deadline, descriptor) in list(self._open.items()):
                    if deadline <= now:
                        del self._open[number]
                        _cut(descriptor)
                # Looks now and then: to be woken for every transaction would cost more than the look.
                self._changed.wait(max(0.05, self._longest_s / 4))
            self._thread = None


def _cut(descriptor: int) -> None:
    """Shuts the socket down, so that the thread that reads from it gets an error; the owner closes it."""
    try:
        with socket.fromfd(descriptor, socket.AF_UNIX, socket.SOCK_STREAM) as shared:
            shared.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it was closed meanwhile


T = TypeVar("T")

PATIENCE_S = 30.0
TRANSACTION_S = 75.0
_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 1.0
_ONE_STATE = "REPEATABLE READ"


class Database:
    """One SQL database of any kind.

    `read` and `write` take a function of a connection and run it in a transaction. The function may run
    several times, also after a lost answer of a commit: each row it inserts has an id chosen before, and it
    looks for that id first. Raises `DatabaseUnavailable` when that did not help for `patience_s`.
    """

    def __init__(
        self,
        url: str | Path,
        *,
        patience_s: float = PATIENCE_S,
        transaction_s: float = TRANSACTION_S,
    ) -> None:
        """`url`: a path (SQLite) or ``postgresql://...``; `transaction_s`: when a transaction that the server
        does not answer is cut."""
        self._url = database_url(url)
        self._patience_s = patience_s
        self._clock = SystemClock()
        self._randomness = SystemRandomness()
        self._closed = threading.Event()
        self.is_sqlite = self._url.drivername == SQLITE
        self.shown_url = shown(self._url)
        sender = self._randomness.nonce()
        try:
            self._engine = make_engine(self._url).execution_options(**{SENDER: sender})
        except OSError as error:
            raise DatabaseUnavailable(f"{self.shown_url} cannot be used: {error.strerror}") from None
        # PostgreSQL would show each statement of a read another state: a replica then hears a tell twice.
        self._reading = (
            self._engine if self.is_sqlite else self._engine.execution_options(isolation_level=_ONE_STATE)
        )
        self._groups: CommitGroups | None = None
        if self.is_sqlite:
            self._groups = CommitGroups(
                turns_of(os.path.realpath(str(self._url.database))), partial(self._transaction, writes=True)
            )
        self._deadlines = None if self.is_sqlite else Deadlines(transaction_s)
        self.wakeups = Wakeups(None if self.is_sqlite else self._url, sender)

    def read(self, fn: Callable[[Connection], T]) -> T:
        """What the function returns of one consistent state of the database; it must not write."""
        return self._transaction(fn, writes=False)

    def write(self, fn: Callable[[Connection], T]) -> T:
        """What the function returns after its changes were committed.

        On SQLite writers take turns, and waiting writers share a commit: the function may run in
        the thread of another, beside functions of others, and an exception undoes its own changes only.
        """
        if self._groups is None:
            return self._transaction(fn, writes=True)
        answer: T = self._groups.write(fn)
        return answer

    def stamp(self) -> object:
        """What differs once another process may have written to a SQLite file; None of other databases."""
        if not self.is_sqlite:
            return None
        path = str(self._url.database)
        return tuple(map(_stamp, (path, f"{path}-wal")))

    def close(self) -> None:
        """Closes the connections; transactions that wait to be repeated end with `DatabaseUnavailable`.

        A transaction begun later still works, with a connection that ends with it: a result of a search can
        be asked for its rows after the search was closed.
        """
        self._closed.set()
        self.wakeups.close()
        if self._deadlines is not None:
            self._deadlines.close()
        self._engine.dispose()

    def _transaction(self, fn: Callable[[Connection], T], writes: bool) -> T:
        """What the function returns of a transaction, which is repeated after a fault of the database."""
        began = self._clock.monotonic()
        pause = _FIRST_PAUSE_S
        while True:
            pool = self._engine.pool
            try:
                with (self._engine if writes else self._reading).connect() as connection:
                    if writes:
                        connection = connection.execution_options(**{WRITES: True})
                    deadline = self._deadlines.over(connection) if self._deadlines else nullcontext()
                    with deadline, connection.begin():
                        take_announcements(connection)  # of a transaction that failed on this connection
                        answer = fn(connection)
                        announced = take_announcements(connection)
                for channel in announced:
                    self.wakeups.tell(channel)
                return answer
            except DBAPIError as error:
                fault = fault_of(error)
                if fault is None:
                    raise
                waited = self._clock.monotonic() - began
                is_repeated = fault in (Fault.LOST, Fault.BUSY) and waited < self._patience_s
                if not is_repeated or self._closed.is_set():
                    raise self._told(fault, error) from None
            except PoolTimeout:
                raise DatabaseUnavailable(
                    f"{self.shown_url}: all connections of this process are in use"
                ) from None
            finally:
                if self._closed.is_set():
                    pool.dispose()  # the connection went back to this pool, or to the one made at the close
                    self._engine.dispose()
            # With jitter: what collided once would otherwise collide again.
            self._closed.wait(pause * (0.5 + self._randomness.uniform()))
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _told(self, fault: Fault, error: DBAPIError) -> DatabaseError:
        words = without_password(str(error.orig).strip(), self._url)
        if fault is Fault.DAMAGED:
            return DatabaseDamaged(
                f"{self.shown_url} is damaged or no SQLite database ({words}): stop all that use it, then "
                f"put a copy back, or save what can be read with: sqlite3 {self.shown_url} .recover"
            )
        if fault is Fault.FULL:
            return DatabaseUnavailable(f"{self.shown_url} cannot be written ({words}): is its disk full?")
        return DatabaseUnavailable(f"{self.shown_url} cannot be reached: {words}")


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
