"""Transactions: `read` and `write`, repeated whole after a lost connection or a lost race.
Knows no table; works from any thread, and blocks the one that calls it.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

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
from tenuto.database.group_commit import Groups, turns_of
from tenuto.database.wakeups import SENDER, Wakeups, take_announcements
from tenuto.errors import DatabaseDamaged, DatabaseError, DatabaseUnavailable

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
    several times, also after a commit whose answer was lost: what it inserts has an id chosen before, and it
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
        self._groups: Groups | None = None
        if self.is_sqlite:
            self._groups = Groups(turns_of(os.path.realpath(str(self._url.database))), self._written)
        self._deadlines = None if self.is_sqlite else Deadlines(transaction_s)
        self.wakeups = Wakeups(None if self.is_sqlite else self._url, sender)

    def read(self, fn: Callable[[Connection], T]) -> T:
        """What the function returns of one consistent state of the database; it must not write."""
        return self._repeat(lambda: self._once(fn, writes=False))

    def write(self, fn: Callable[[Connection], T]) -> T:
        """What the function returns after its changes were committed.

        On SQLite writers take turns, and those that waited meanwhile share a commit: the function may run in
        the thread of another, beside functions of others, and what it raises undoes its own changes only.
        """
        if self._groups is None:
            return self._written(fn)
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

    def _written(self, fn: Callable[[Connection], T]) -> T:
        return self._repeat(lambda: self._once(fn, writes=True))

    def _once(self, fn: Callable[[Connection], T], writes: bool) -> T:
        pool = self._engine.pool
        try:
            return self._in_transaction(fn, writes)
        finally:
            if self._closed.is_set():
                pool.dispose()  # the connection went back to this pool, or to the one made at the close
                self._engine.dispose()

    def _in_transaction(self, fn: Callable[[Connection], T], writes: bool) -> T:
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

    def _repeat(self, once: Callable[[], T]) -> T:
        began = self._clock.monotonic()
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return once()
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
