"""Servers for the tests of the monitor: real sockets on loopback, real uvicorn, in a thread."""

from __future__ import annotations

import http.client
import json
import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tenuto.monitor.provider import LocalProvider
from tenuto.monitor.web.http_server import WebServer, open_socket
from tenuto.testing.contracts.providers import fill
from tenuto.testing.fake_source import FakeSource
from tests.parts.answers import Answer

READY_S = 30.0


class Client:
    """Asks a server, as a browser that has logged in or not."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.headers: dict[str, str] = {}

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str | None] | None = None
    ) -> Answer:
        """A request; a header that is None is left out."""
        given: dict[str, str | None] = {**self.headers}
        if body is not None:
            given["Content-Type"] = "application/json"
        given.update(headers or {})
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=READY_S)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            given.setdefault("Host", f"127.0.0.1:{self.port}")
            for name, value in given.items():
                if value is not None:
                    connection.putheader(name, value)
            if data is not None:
                connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(data)
            response = connection.getresponse()
            headers_ = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, headers_, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str | None) -> Answer:
        return self.ask(
            "GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )

    def login(self, code: str) -> Answer:
        answer = self.ask("POST", "/api/login", {"code": code})
        if answer.status == 200:
            cookie = answer.headers["set-cookie"].partition(";")[0]
            self.headers = {"Cookie": cookie, "X-Tenuto-Key": answer.json["key"]}
        return answer

    def stream(self, path: str = "/api/events", last: str | None = None) -> Stream:
        return Stream(self, path, last)


class Stream:
    """An open stream of frames."""

    def __init__(self, client: Client, path: str, last: str | None) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=READY_S)
        given = {**client.headers, **({"Last-Event-ID": last} if last else {})}
        self.connection.request("GET", path, headers=given)
        self.response = self.connection.getresponse()
        self.last = last

    def frame(self) -> tuple[str, Any]:
        """The next frame: its event and data; ("end", None) when the server ends it."""
        event, data = "", None
        while line := self.response.readline():
            name, _, value = line.rstrip(b"\n").partition(b": ")
            if name == b"event":
                event = value.decode()
            elif name == b"id":
                self.last = value.decode()
            elif name == b"data":
                data = json.loads(value)
            elif not line.strip() and event:
                return event, data
        return "end", None

    def close(self) -> None:
        self.response.close()
        self.connection.close()


class Served:
    """A provider, and a server on it, in a thread."""

    def __init__(self, provider: LocalProvider) -> None:
        self.provider = provider
        self.server = WebServer(provider, open_socket("127.0.0.1", 0))
        self._ready = threading.Event()
        self._loop: Any = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(READY_S)
        self.port = self.server.address.port

    def _run(self) -> None:
        import asyncio

        def ready() -> None:
            self._loop = asyncio.get_running_loop()
            self._ready.set()

        self.server.run(ready, os.getpid(), with_signals=False)

    def client(self) -> Client:
        """A client that has logged in."""
        client = Client(self.port)
        assert client.login(self.server.sessions.new_code()).status == 200
        return client

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self.server.stop)
        self._thread.join(READY_S)
        assert not self._thread.is_alive()
        self.provider.close()


@pytest.fixture
def source() -> FakeSource:
    """A door with four jobs."""
    made = FakeSource()
    fill(made)
    return made


@pytest.fixture
def local(source: FakeSource) -> Iterator[LocalProvider]:
    """A provider that knows them."""
    made = LocalProvider([source], workspace="/somewhere", version="1.2.3")
    assert made.wait_until_loaded(READY_S)
    yield made
    made.close()


@pytest.fixture
def served(local: LocalProvider) -> Iterator[Served]:
    """A server of that provider."""
    made = Served(local)
    yield made
    made.close()
