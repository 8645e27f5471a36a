"""A web page beside an experiment, served by a thread of its process.
Loaded when it is asked for: most experiments have none.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from tenuto.errors import ServiceError
from tenuto.experiments.process_service import Service, ServiceState
from tenuto.jobs.tcp_ports import LOCALHOST, listen
from tenuto.tasks.arguments import guarded

logger = logging.getLogger("tenuto.experiments")

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
"""A WSGI application, such as one of Flask's, Dash's or Django's."""
STOP_S = 5.0


@guarded
class WebService(Service):
    """Serves a WSGI application; for another kind of server override `serve` and `shutdown`.

    `app`: the application. `id`: the service's name in the run. Only this machine can reach it, unless `host`
    says otherwise. `port`: 0 stands for a free one.
    """

    id = "web"

    def __init__(
        self, app: Application | None = None, *, id: str | None = None, host: str = LOCALHOST, port: int = 0
    ) -> None:
        self.app = app
        self.id = id or type(self).id
        self.host = host
        self.port = port
        self._thread: threading.Thread | None = None
        self._server: _Server | None = None
        self._serving = threading.Event()

    @property
    def url(self) -> str | None:
        """Where the page is, once it has a port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/" if self.port else None

    def start(self) -> None:
        listening = listen(self.host, self.port)
        self.port = int(listening.getsockname()[1])
        self._thread = threading.Thread(
            target=self._serve, args=(listening,), name=f"tenuto-{self.id}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        if self._thread is None:
            return
        self.shutdown()
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            raise ServiceError(
                f"{self.id} at {self.url} did not end within {STOP_S:g} s: check its shutdown()"
            )

    def serve(self, listening: socket.socket) -> None:
        """Serves a listening socket, in a thread of its own, until `shutdown` is called."""
        if self.app is None:
            raise ServiceError(
                f"{type(self).__name__} has nothing to serve: give it an app, or override serve()"
            )
        self._server = _Server(listening, self.app)
        self._serving.set()
        self._server.serve_forever(poll_interval=0.05)

    def shutdown(self) -> None:
        """Makes `serve` return."""
        if self._serving.wait(STOP_S) and self._server is not None:
            self._server.shutdown()

    def _serve(self, listening: socket.socket) -> None:
        try:
            with listening:
                self.serve(listening)
        except Exception as error:
            self._serving.set()
            logger.exception("service %s failed", self.id, extra={"action": "service_failed"})
            self.move(ServiceState.FAILED, f"{type(error).__name__}: {error}")


class _Server(ThreadingMixIn, WSGIServer):
    """The server of the standard library, on a socket that listens already."""

    daemon_threads = True

    def __init__(self, listening: socket.socket, app: Application) -> None:
        address = listening.getsockname()
        super().__init__(address[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.server_name, self.server_port = str(address[0]), int(address[1])
        self.setup_environ()
        self.set_app(app)


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        """Keeps the terminal of the experiment free of requests."""
        logger.debug(format, *arguments, extra={"action": "service_request"})
