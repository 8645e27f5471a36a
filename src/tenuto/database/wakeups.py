"""Wake-ups: a transaction announces its changes, and listeners of that channel are told after its commit.
A wake-up may be lost; every listener also looks by itself now and then.

In one process by a call; between processes by PostgreSQL's LISTEN and NOTIFY. Processes that share a SQLite
file have only their poll.
"""

from __future__ import annotations

import logging
import re
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.engine import URL

SENDER = "tenuto_sender"
"""The execution option of a connection that tells what this `Wakeups` announced from what others did."""

_ANNOUNCED = "tenuto_announced"
_CHANNEL = re.compile(r"[a-z][a-z0-9_]{0,62}")
_CLOSE_S = 5.0
_RECONNECT_S = 1.0

log = logging.getLogger(__name__)


def announce(connection: Connection, channel: str) -> None:
    """Tells the listeners of a channel, in every process, once the connection's transaction is committed.

    `channel`: lower-case letters, digits and ``_``.
    """
    if not _CHANNEL.fullmatch(channel):
        raise ValueError(f"{channel!r} cannot name a channel: lower-case letters, digits and _ only")
    announced = connection.info.setdefault(_ANNOUNCED, {})
    if channel not in announced:
        announced[channel] = None
        if connection.dialect.name == "postgresql":
            sender = connection.get_execution_options().get(SENDER, "")
            values = {"channel": channel, "sender": sender}
            connection.execute(text("SELECT pg_notify(:channel, :sender)"), values)


def take_announcements(connection: Connection) -> list[str]:
    """The channels that the transaction announced, which are forgotten."""
    return list(connection.info.pop(_ANNOUNCED, {}))


class Wakeups:
    """The listeners of one database in this process."""

    def __init__(self, url: URL | None, sender: str) -> None:
        """`url`: of PostgreSQL; None for SQLite."""
        self._url = url
        self._sender = sender
        self._guard = threading.Lock()
        self._listeners: dict[str, list[Callable[[], None]]] = {}
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._poke: socket.socket | None = None
        """Wakes the thread that receives; both are made for the first listener of PostgreSQL."""

    def listen(self, channel: str, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls the listener, from any thread, when the channel was announced; returns how to stop that.

        The listener is quick and raises nothing: it sets an event, or calls ``loop.call_soon_threadsafe``.
        """
        with self._guard:
            self._listeners.setdefault(channel, []).append(listener)
            self._wake_receiver()
            if self._url is not None and self._thread is None:
                self._poke, poked = socket.socketpair()
                self._poke.setblocking(False)
                self._thread = threading.Thread(
                    target=self._receive, args=(self._url, poked), name="wakeups", daemon=True
                )
                self._thread.start()

        def stop() -> None:
            with self._guard:
                if listener in self._listeners.get(channel, ()):
                    self._listeners[channel].remove(listener)

        return stop

    def tell(self, channel: str) -> None:
        """Calls the listeners of a channel in this process."""
        with self._guard:
            listeners = list(self._listeners.get(channel, ()))
        for listener in listeners:
            try:
                listener()
            except Exception:
                log.exception("a listener of %s failed", channel)

    def close(self) -> None:
        self._closed.set()
        self._wake_receiver()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_S)
        with self._guard:
            if self._poke is not None:
                self._poke.close()

    # -- other processes ---------------------------------------------------------------------------

    def _wake_receiver(self) -> None:
        if self._poke is not None:
            with suppress(BlockingIOError, OSError):  # full: it is woken already; closed: it has ended
                self._poke.send(b"x")

    def _receive(self, url: URL, poked: socket.socket) -> None:
        import psycopg  # noqa: PLC0415  an extra

        conninfo = url.set(drivername="postgresql").render_as_string(hide_password=False)
        with poked:
            while not self._closed.is_set():
                try:
                    with psycopg.connect(conninfo, autocommit=True, connect_timeout=5) as connection:
                        self._follow(connection, poked)
                except (psycopg.Error, OSError):
                    # Not logged: callers of `read` and `write` learn it, and listeners look by themselves.
                    self._closed.wait(_RECONNECT_S)

    def _follow(self, connection: Any, poked: socket.socket) -> None:
        heard: set[str] = set()
        while not self._closed.is_set():
            for channel in self._channels() - heard:
                connection.execute(f'LISTEN "{channel}"')
                heard.add(channel)
                self.tell(channel)  # announcements before LISTEN were lost
            readable, _, _ = select.select([connection.fileno(), poked], [], [])
            if poked in readable:
                poked.recv(4096)
            for notice in connection.notifies(timeout=0):
                if notice.payload != self._sender:
                    self.tell(notice.channel)

    def _channels(self) -> set[str]:
        with self._guard:
            return set(self._listeners)
