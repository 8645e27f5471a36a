"""An HTTP server as both have it, the service and the monitor: uvicorn with limits in time and number of
connections, without its signal handlers. Knows no route and no door.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, NamedTuple

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

GRACE_S = 2
"""How long answers that run may continue after the end of a server."""


# -- the server --------------------------------------------------------------------------------------


class HttpServer(uvicorn.Server):
    """Uvicorn without its signal handlers (it raises a signal again after its end, and would die of it)."""

    on_ready: Callable[[], None] | None = None
    """Called once requests are answered."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self.on_ready is not None:
            self.on_ready()


def http_server(app: ASGIApp, protocol: type[H11Protocol], **options: Any) -> HttpServer:
    """A server of an application; `options` are uvicorn's."""
    config = Config(
        app,
        http=protocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        **options,
    )
    return HttpServer(config)


# -- connections with limits: uvicorn's h11 protocol has none of them ---------------------------------

ErrorBody = Callable[[str, str], Mapping[str, object]]
"""The body of an error: from its code and its sentence."""


class ConnectionLimits(NamedTuple):
    """What a client may take of a server."""

    header_s: float
    """For the headers of a request to arrive, and for the rest of a request answered before its end."""
    write_s: float
    """Without a byte that a client reads."""
    connections: int
    """At once, of all clients."""


def protocol_class(of: ConnectionLimits, body: ErrorBody) -> type[H11Protocol]:
    """A protocol with these limits, which answers errors with this body."""

    class LimitedProtocol(_LimitedProtocol):
        limits = of
        error_body = staticmethod(body)

    return LimitedProtocol


class _LimitedProtocol(H11Protocol):
    """Closes a connection whose headers do not arrive in time, or whose client reads no more."""

    limits: ConnectionLimits
    error_body: ErrorBody

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._header_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._rest_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._answer(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "too_many_connections",
                "too many connections; try again later",
            )
            return
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._stop_write_timer()
        if self._rest_timer is not None:
            self._rest_timer.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        # A request begins to arrive (again): its headers have their time from the first byte on.
        if self.conn.their_state is h11.IDLE:
            if self.conn.trailing_data[0] and not self.transport.is_closing():
                self._arm()
        else:
            self._disarm()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._arm()
        elif self.conn.their_state is h11.SEND_BODY:
            # Each byte of the rest puts uvicorn's keep-alive timer off: a trickle would stay for ever.
            if self._rest_timer is not None:
                self._rest_timer.cancel()
            self._rest_timer = self.loop.call_later(self.limits.header_s, self._rest_late)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stop_write_timer()
        self._write_timer = self.loop.call_later(self.limits.write_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_write_timer()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        self._answer(HTTPStatus.BAD_REQUEST, "bad_request", "the request is not valid HTTP")

    def _answer(self, status: HTTPStatus, code: str, message: str) -> None:
        body = json.dumps(self.error_body(code, message)).encode()
        self.transport.write(
            f"HTTP/1.1 {status.value} {status.phrase}\r\n"
            "content-type: application/json\r\nconnection: close\r\n"
            "x-content-type-options: nosniff\r\nreferrer-policy: no-referrer\r\ncache-control: no-store\r\n"
            f"content-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        self.transport.close()

    def _arm(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(self.limits.header_s, self._headers_late)

    def _disarm(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _headers_late(self) -> None:
        self._header_timer = None
        if not self.transport.is_closing():
            self._answer(
                HTTPStatus.REQUEST_TIMEOUT, "too_slow", "the headers of the request did not arrive in time"
            )

    def _rest_late(self) -> None:
        if self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE:
            self.transport.close()

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
