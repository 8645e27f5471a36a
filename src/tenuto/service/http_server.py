"""An application on a socket until a signal comes: the ready line, the drain, the end.
Knows neither server nor node; both run by it.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenuto.clock import Clock
from tenuto.errors import JobServiceError, PortTaken
from tenuto.jobs.tcp_ports import listen
from tenuto.scheduler.loop import keep_loops_free
from tenuto.service.contract import ErrorCode, error_json
from tenuto.service.log import log
from tenuto.service.periodic import wait_for
from tenuto.web import ConnectionLimits, HttpServer, http_server, is_loopback, protocol_class

DRAIN_S = 30.0
BACKLOG = 2048
HEADER_S = 10.0
"""Time that a request's headers may take."""
WRITE_S = 60.0
"""Time without a byte after which a download is ended."""


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen, and how."""

    host: str
    port: int
    connections: int
    tls_cert: Path | None = None
    tls_key: Path | None = None

    @property
    def is_loopback(self) -> bool:
        """True if no other machine can connect."""
        return is_loopback(self.host)


@dataclass(frozen=True, slots=True)
class ServedApp:
    """The application, and the words on its start."""

    app: ASGIApp
    start: Callable[[], Awaitable[None]]
    ready: Callable[[str], None]
    """Called with the URL once requests are answered."""
    drain: Callable[[], None]
    close: Callable[[], Awaitable[None]]
    reload: Callable[[], None]
    """Called on SIGHUP."""


def bound(address: ListenAddress) -> socket.socket:
    """A socket that listens; `JobServiceError` if the port is taken or the address is not ours."""
    try:
        return listen(address.host, address.port, BACKLOG)
    except (OSError, PortTaken) as error:
        why = str(error) if isinstance(error, PortTaken) else error.strerror
        raise JobServiceError(
            f"cannot listen on {address.host} port {address.port}: {why}; give another --port "
            "(0 takes a free one) or --host"
        ) from None


class CountedApp:
    """An application that counts the requests which it is answering."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._ended = asyncio.Event()
        self.count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.count += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self.count -= 1
            self._ended.set()

    async def changed(self, timeout_s: float) -> None:
        """Returns when an answer ended, or after a while."""
        await wait_for(self._ended, timeout_s)


async def run(served: ServedApp, address: ListenAddress, clock: Clock) -> None:
    """Serves until SIGTERM or SIGINT, then lets requests finish for a while; a second signal ends that."""
    counted = CountedApp(served.app)
    listening: socket.socket | None = None
    try:
        listening = bound(address)
        await served.start()
        await rehearse(counted)
        keep_loops_free()
        server = _uvicorn(counted, address)
        host, port = listening.getsockname()[:2]
        scheme = "https" if address.tls_cert else "http"
        shown = f"[{host}]" if ":" in host else host
        server.on_ready = lambda: served.ready(f"{scheme}://{shown}:{port}")
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()

        def stop() -> None:
            server.force_exit = stopping.is_set()
            stopping.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        loop.add_signal_handler(signal.SIGHUP, served.reload)
        ending = loop.create_task(_drained(stopping, served, counted, server, clock))
        await server.serve(sockets=[listening])
        ending.cancel()
    finally:
        if listening is not None:
            listening.close()
        await served.close()
    log("stopped")


async def rehearse(app: ASGIApp) -> None:
    """Asks an application for its health: FastAPI builds its routes for the first request that comes."""
    scope: Scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/health",
        "raw_path": b"/health",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
    }

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        """The answer is of no interest."""

    await app(scope, receive, send)


async def _drained(
    stopping: asyncio.Event, served: ServedApp, counted: CountedApp, server: HttpServer, clock: Clock
) -> None:
    await stopping.wait()
    served.drain()
    until = clock.monotonic() + DRAIN_S
    while counted.count and clock.monotonic() < until and not server.force_exit:
        await counted.changed(0.5)
    server.should_exit = True


def _uvicorn(app: ASGIApp, address: ListenAddress) -> HttpServer:
    protocol = protocol_class(
        ConnectionLimits(HEADER_S, WRITE_S, address.connections),
        lambda code, message: error_json(ErrorCode(code), message),
    )
    return http_server(
        app,
        protocol,
        lifespan="off",
        backlog=BACKLOG,
        ssl_certfile=address.tls_cert,
        ssl_keyfile=address.tls_key,
        proxy_headers=False,
    )
