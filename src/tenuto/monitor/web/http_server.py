"""The server process: a socket that listens, uvicorn on it, signals, and the file that registers it.
It prints nothing: the caller is told when the server answers.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from tenuto.clock import SystemClock
from tenuto.errors import PortTaken
from tenuto.jobs.tcp_ports import LOCALHOST, listen
from tenuto.monitor.provider import LocalProvider
from tenuto.monitor.web.app import Monitor, guarded
from tenuto.monitor.web.registrations import Address, Registration, register, registrations, unregister
from tenuto.monitor.web.sessions import Sessions
from tenuto.web import ConnectionLimits, http_server, is_loopback, protocol_class

PORT = 8368
KEEP_ALIVE_S = 30
LIMITS = ConnectionLimits(header_s=10.0, write_s=60.0, connections=512)
"""Every user of the machine can connect: requests that never end must not take all descriptors."""


def open_socket(host: str, port: int | None) -> socket.socket:
    """A socket that listens; without a port that was asked for, any will do. `PortTaken` names the holder."""
    if port is not None:
        return listen(host, port)
    try:
        return listen(host, PORT)
    except PortTaken:
        return listen(host, 0)


class WebServer:
    """Serves a provider until it is told to end."""

    def __init__(
        self,
        provider: LocalProvider,
        listening: socket.socket,
        *,
        host: str = LOCALHOST,
        allowed_hosts: Sequence[str] = (),
        registry: Path | None = None,
        by: str = "the monitor",
    ) -> None:
        self._provider = provider
        self._listening = listening
        self.address = Address(host, int(listening.getsockname()[1]))
        self.sessions = Sessions(SystemClock())
        self._bearer = secrets.token_urlsafe(32)
        self._registry = registry
        cookie = f"tenuto-{self.address.port}"
        self._monitor = Monitor(
            provider, self.sessions, cookie=cookie, by=by, other_servers=self.other_servers
        )
        app = guarded(self._monitor, hosts=[host, *allowed_hosts], bearer=self._bearer)
        self.protocol = protocol_class(LIMITS, lambda code, message: {"error": code, "message": message})
        self._server = http_server(app, self.protocol, lifespan="on", timeout_keep_alive=KEEP_ALIVE_S)

    def other_servers(self) -> list[Registration]:
        """Servers of the same user. A page that others reach, or that only shows, must not open another."""
        if self._registry is None or self._provider.read_only or not is_loopback(self.address.host):
            return []
        found = registrations(self._registry)
        return [one for one in found if one.port != self.address.port and is_loopback(one.host)]

    def link(self, code: str) -> str:
        """The address that logs a browser in, once."""
        return f"{self.address.url}#code={code}"

    def run(self, ready: Callable[[], None], pid: int, *, with_signals: bool = True) -> None:
        """Serve until a signal or `stop`; calls `ready` once the server answers."""
        path: Path | None = None
        if self._registry is not None:
            registration = Registration(
                self.address.port, pid, self.address.host, self._provider.workspace, self._bearer
            )
            path = register(self._registry, registration)
        try:
            asyncio.run(self._serve(ready, with_signals))
        finally:
            if path is not None:
                unregister(path, pid)

    def stop(self) -> None:
        """Have the server end; streams end first: it must not wait for them. From the loop's thread."""
        self._monitor.hub.close()
        self._server.should_exit = True

    async def _serve(self, ready: Callable[[], None], with_signals: bool) -> None:
        if with_signals:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self.stop)
        self._server.on_ready = ready
        await self._server.serve(sockets=[self._listening])
