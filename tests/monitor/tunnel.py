"""A tunnel between a client and a server, which a test cuts, opens again, and turns to another server."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Tunnel:
    """Forwards a port of its own to another one, until it is cut; `open` lets it pass again."""

    def __init__(self, port: int) -> None:
        self.target = port
        self._pairs: list[socket.socket] = []
        self._is_open = True
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                if not self._is_open or not self._connect(near):
                    near.close()

    def _connect(self, near: socket.socket) -> bool:
        """Join a client to the server; False if the server has gone, or the tunnel was cut meanwhile."""
        try:
            far = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            return False
        with self._lock:
            if not self._is_open:
                far.close()
                return False
            self._pairs += [near, far]
        for one, other in ((near, far), (far, near)):
            threading.Thread(target=self._pump, args=(one, other), daemon=True).start()
        return True

    @staticmethod
    def _pump(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        with self._lock:
            self._is_open = False
            for one in self._pairs:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def open(self) -> None:
        self._is_open = True

    def close(self) -> None:
        self.cut()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for one in self._pairs:
            one.close()
