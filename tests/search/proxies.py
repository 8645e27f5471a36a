"""A proxy before a PostgreSQL that can fall silent: connections stay open, and nothing passes any more."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading
from pathlib import Path

_SOCKET = ".s.PGSQL.5432"


class Proxy:
    """Passes on what comes to a socket of its own, until it is told to drop it."""

    def __init__(self, directory: str) -> None:
        """`directory`: that of the server's socket."""
        self._server = str(Path(directory) / _SOCKET)
        self.directory = Path(tempfile.mkdtemp(prefix="tn-px-", dir="/tmp"))
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self.directory / _SOCKET))
        self._listening.listen()
        self._is_silent = threading.Event()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def fall_silent(self) -> None:
        """From now on everything is swallowed, as if a cable was cut."""
        self._is_silent.set()

    def answer_again(self) -> None:
        """New connections pass; those that were cut are closed, as a network that is back closes them."""
        self._is_silent.clear()
        cut, self._open = self._open, []
        for one in cut:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return  # closed
            server = socket.socket(socket.AF_UNIX)
            self._open += [client, server]
            if not self._is_silent.is_set():
                server.connect(self._server)
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                if not self._is_silent.is_set():
                    target.sendall(data)
            if not self._is_silent.is_set():
                target.shutdown(socket.SHUT_WR)
        except OSError:
            return  # one of the two ends is gone

    def close(self) -> None:
        for one in (self._listening, *self._open):
            one.close()
        shutil.rmtree(self.directory, ignore_errors=True)
