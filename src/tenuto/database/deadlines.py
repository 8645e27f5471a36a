"""Deadlines of transactions: a connection whose server no longer answers is cut.
Only for PostgreSQL: a driver that waits for a silent server waits for ever.
"""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from tenuto.clock import SystemClock


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
