"""The state provider of a server elsewhere: each question is one request over HTTP.
Needs only the standard library, so that a terminal on another machine needs nothing more.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import signature
from typing import Any, cast
from urllib.parse import urlencode, urlsplit

from tenuto.errors import (
    BadQuestion,
    FilterError,
    MonitorError,
    MonitorUnavailable,
    NotAllowed,
    NotFound,
)
from tenuto.monitor import shapes
from tenuto.monitor.state_provider import Listener, StateProvider

TIMEOUT_S = 30.0
STREAM_S = 60.0
"""A stream says something every 15 s; a stream silent for so long is cut."""


class RemoteProvider:
    """Asks a `tenuto ui` by its address; a code logs in, once.

    A server that was started again knows no session: `login` with a new code continues.
    """

    def __init__(self, url: str, code: str, new_code: Callable[[], str | None] | None = None) -> None:
        """`url`: as `tenuto ui` printed it. Raises `NotAllowed` for a wrong code.

        `new_code`: gives a code of a server that was started again, or None.
        """
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise BadQuestion(f"{url!r:.200} is no address of a monitor: write http://HOST:PORT/")
        self._host, self._port = parts.hostname, parts.port or 80
        self._headers: dict[str, str] = {}
        self._listeners: list[Listener] = []
        self._stream: _Stream | None = None
        self._new_code = new_code
        self._renewing = threading.Lock()
        self.login(code)

    def login(self, code: str) -> None:
        """Log in, with a code of the server's link; `NotAllowed` if the code is wrong or was used."""
        status, headers, answer = self._request("POST", "/api/login", {"code": code})
        if status != 200:
            raise _error(status, answer)
        cookie = headers.get("set-cookie", "").partition(";")[0]
        self._headers = {"Cookie": cookie, "X-Tenuto-Key": answer["key"]}

    def _log_in_again(self, refused: Mapping[str, str]) -> bool:
        """After a session was refused: True if there is a newer one, made here or by another thread."""
        with self._renewing:
            if self._headers is not refused:
                return True
            code = self._new_code() if self._new_code is not None else None
            if code is None:
                return False
            self.login(code)
            return True

    # Questions, with the arguments of the protocol: each is one request (`_question`)

    about: Callable[..., shapes.About]
    overview: Callable[..., shapes.OverviewJson]
    groups: Callable[..., shapes.Groups]
    jobs: Callable[..., shapes.Jobs]
    job: Callable[..., shapes.JobDetail]
    why: Callable[..., shapes.WhyJson]
    log: Callable[..., shapes.LogPart]
    graph: Callable[..., shapes.Graph]
    timeline: Callable[..., shapes.Timeline]
    history: Callable[..., shapes.HistoryJson]
    results: Callable[..., shapes.Results]
    metrics: Callable[..., shapes.MetricsJson]
    tokens: Callable[..., shapes.TokensJson]
    queue: Callable[..., shapes.QueueJson]
    nodes: Callable[..., shapes.Nodes]
    archive: Callable[..., shapes.ArchiveJson]
    carbon: Callable[..., shapes.Carbon]
    cleanup: Callable[..., shapes.Cleanup]

    # Acting, and changes

    def act(
        self, action: str, targets: Sequence[tuple[str, int]], *, dry_run: bool = False, by: str = ""
    ) -> shapes.Outcomes:
        """As the local one; the server says in whose name."""
        jobs = [{"key": key, "attempt": attempt} for key, attempt in targets]
        body: dict[str, Any] = {"action": action, "dry_run": dry_run, "jobs": jobs}
        if action in ("pause", "resume"):
            body = {**body, "jobs": [], "groups": [key for key, _ in targets]}
        status, _, answer = self._ask("POST", "/api/actions", body)
        if status not in (200, 409):
            raise _error(status, answer)
        return {"outcomes": answer["outcomes"]}

    def changes(self, since: str | None, wait_s: float) -> shapes.DeltaJson | shapes.ResetJson:
        if self._stream is None or self._stream.last != since or self._stream.has_ended:
            if self._stream is not None:
                self._stream.close()
            self._stream = None
            self._stream = self._open_stream(since)
        found = self._stream.next(wait_s)
        if found is not None:
            return cast("shapes.DeltaJson | shapes.ResetJson", found)
        epoch, _, seq = (since or "-0").rpartition("-")
        now = self.about()["now"]
        return {"epoch": epoch, "seq": int(seq), "now": now, "jobs": [], "gone": [], "groups": []}

    def add_listener(self, listener: Listener) -> None:
        """Accepted, and never called: a server elsewhere tells of changes, not of events."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        self._listeners.remove(listener)

    def close(self) -> None:
        """Log out."""
        if self._stream is not None:
            self._stream.close()
        with contextlib.suppress(MonitorError):
            self._request("POST", "/api/logout", None)

    # HTTP

    def _get(self, path: str, **asked: Any) -> Any:
        given = {name: value for name, value in asked.items() if value is not None and value != ""}
        query = urlencode(given, doseq=True)
        status, _, answer = self._ask("GET", f"{path}?{query}" if query else path, None)
        if status != 200:
            raise _error(status, answer)
        return answer

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> tuple[int, Mapping[str, str], Any]:
        """A request; again with a new session if the server was started again."""
        used = self._headers
        answer = self._request(method, path, body)
        is_refused = answer[0] == 401 and self._log_in_again(used)
        return self._request(method, path, body) if is_refused else answer

    def _open_stream(self, since: str | None) -> _Stream:
        used = self._headers
        try:
            return _Stream(self._connection(STREAM_S), used, since)
        except NotAllowed:
            if not self._log_in_again(used):
                raise
        return _Stream(self._connection(STREAM_S), self._headers, since)

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)

    def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> tuple[int, Mapping[str, str], Any]:
        connection = self._connection(TIMEOUT_S)
        try:
            kind = {"Content-Type": "application/json"} if body is not None else {}
            data = json.dumps(body) if body is not None else None
            connection.request(method, path, data, {**self._headers, **kind})
            response = connection.getresponse()
            text = response.read()
            headers = {name.lower(): value for name, value in response.getheaders()}
            return response.status, headers, json.loads(text) if text else {}
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise MonitorUnavailable(
                f"the monitor at {self._host}:{self._port} does not answer: {error}"
            ) from error
        finally:
            connection.close()


_AS_SENT = {"groups": "group", "keys": "key", "names": "name", "start": "from", "end": "to"}
"""Arguments whose names are others in a query: there they are repeated, or are words of Python."""


def _question(name: str) -> Callable[..., Any]:
    """The method that asks a server what the protocol calls so."""
    takes = signature(getattr(StateProvider, name))

    def ask(self: RemoteProvider, *given: Any, **named: Any) -> Any:
        bound = takes.bind(self, *given, **named)
        bound.apply_defaults()
        _, *asked = bound.arguments.items()
        return self._get(f"/api/{name}", **{_AS_SENT.get(one, one): value for one, value in asked})

    return ask


for _name in RemoteProvider.__annotations__:
    setattr(RemoteProvider, _name, _question(_name))


class _Stream:
    """Reads frames in a thread of its own, since a read that timed out cannot be gone on with."""

    def __init__(
        self, connection: http.client.HTTPConnection, headers: Mapping[str, str], since: str | None
    ) -> None:
        self.last = since
        self.has_ended = False
        self._frames: queue.Queue[dict[str, Any] | None] = queue.Queue(maxsize=100)
        self._connection = connection
        given = {**headers, **({"Last-Event-ID": since} if since is not None else {})}
        try:
            connection.request("GET", "/api/events", headers=given)
            self._response = connection.getresponse()
            refusal = json.loads(self._response.read() or b"{}") if self._response.status != 200 else None
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            raise MonitorUnavailable(f"the stream of the monitor cannot be opened: {error}") from error
        if refusal is not None:
            connection.close()
            raise _error(self._response.status, refusal)
        self._socket: socket.socket | None = connection.sock
        threading.Thread(target=self._read, name="tenuto-remote", daemon=True).start()

    def next(self, wait_s: float) -> dict[str, Any] | None:
        """The next frame; None if there is none in time."""
        try:
            found = self._frames.get(timeout=wait_s) if wait_s > 0 else self._frames.get_nowait()
        except queue.Empty:
            return None
        if found is None:
            self.has_ended = True
            raise MonitorUnavailable("the monitor has ended, or the way to it was cut")
        self.last = f"{found['epoch']}-{found['seq']}"
        return found

    def close(self) -> None:
        self.has_ended = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, which closes

    def _read(self) -> None:
        try:
            for event, data in self._events():
                if event in ("delta", "reset"):
                    self._frames.put(json.loads(data), timeout=STREAM_S)
        except (OSError, http.client.HTTPException, ValueError, AttributeError, queue.Full):
            pass  # the end is told below
        finally:
            self._response.close()
            self._connection.close()
            with contextlib.suppress(queue.Full):
                self._frames.put_nowait(None)

    def _events(self) -> Iterator[tuple[str, bytes]]:
        event, data = "", b""
        while line := self._response.readline():
            name, _, value = line.rstrip(b"\r\n").partition(b": ")
            if name == b"event":
                event = value.decode()
            elif name == b"data":
                data = value
            elif not name and not value and data:
                yield event, data
                event, data = "", b""


def _error(status: int, answer: Mapping[str, Any]) -> MonitorError | NotFound | FilterError:
    """The error that a local provider would have raised."""
    code, text = answer.get("error"), str(answer.get("message", f"the monitor answered {status}"))
    if code == "bad_filter":
        return FilterError(text, "", int(answer.get("position", 0)))
    if status == 404:
        return NotFound(text)
    if status in (401, 403, 429):
        return NotAllowed(text)
    return BadQuestion(text) if status < 500 else MonitorUnavailable(text)
