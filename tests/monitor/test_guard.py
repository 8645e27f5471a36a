"""Lines 2 and 3: codes work once, and nothing but page, files, health and login answers without a login."""

from __future__ import annotations

import contextlib
import http.client
import socket
import statistics
import time

import pytest

from tenuto.monitor.web.guard import HEADERS
from tenuto.monitor.web.http_server import LIMITS
from tenuto.monitor.web.sessions import CODE_S, IDLE_S, LONGEST_S, MOST_WRONG, Sessions
from tenuto.testing.clock import FakeClock
from tenuto.testing.contracts.providers import key
from tests.parts.answers import NO_HOSTS, Answer

from .conftest import Client, Served

ROUTES = (
    "about overview groups jobs job why log graph timeline history results "
    "tokens queue nodes archive carbon cleanup events metrics notes servers"
).split()


def has_headers(answer: Answer) -> bool:
    return all(answer.headers.get(name.decode()) == value.decode() for name, value in HEADERS)


def test_line_02_a_code_works_once_and_for_ten_minutes() -> None:
    clock = FakeClock()
    sessions = Sessions(clock)
    code = sessions.new_code()
    assert sessions.login(code) is not None
    assert sessions.login(code) is None
    late = sessions.new_code()
    clock.advance(CODE_S + 1)
    assert sessions.login(late) is None


def test_line_02_a_session_ends_when_idle_and_after_a_week() -> None:
    clock = FakeClock()
    sessions = Sessions(clock)
    login = sessions.login(sessions.new_code())
    assert login is not None
    for _ in range(int(LONGEST_S // IDLE_S)):
        clock.advance(IDLE_S - 1)
        assert sessions.is_open(login.cookie, login.key)
    clock.advance(IDLE_S - 1)
    assert not sessions.is_open(login.cookie, login.key)
    other = sessions.login(sessions.new_code())
    assert other is not None
    clock.advance(IDLE_S + 1)
    assert not sessions.is_open(other.cookie, other.key)


def test_line_03_wrong_codes_are_throttled_and_a_right_one_is_taken(served: Served) -> None:
    client = Client(served.port)
    codes = [client.login(f"wrong-{number}").status for number in range(MOST_WRONG + 1)]
    assert codes == [401] * MOST_WRONG + [429]
    assert client.login(served.server.sessions.new_code()).status == 200
    assert client.get("/api/about").status == 200


@pytest.mark.parametrize("half", ["Cookie", "X-Tenuto-Key", "both"])
def test_line_03_nothing_answers_without_cookie_and_key(served: Served, half: str) -> None:
    client = served.client()
    left_out = ["Cookie", "X-Tenuto-Key"] if half == "both" else [half]
    for route in ROUTES:
        answer = client.ask("GET", f"/api/{route}", headers=dict.fromkeys(left_out))
        assert (answer.status, answer.json["error"]) == (401, "unauthenticated"), route
        assert has_headers(answer)
    body = {"action": "kill", "jobs": [{"key": key(1), "attempt": 1}]}
    assert client.ask("POST", "/api/actions", body, dict.fromkeys(left_out)).status == 401
    assert client.ask("POST", "/api/codes", headers=dict.fromkeys(left_out)).status == 401
    assert client.ask("GET", "/api/openapi.json", headers=dict.fromkeys(left_out)).status == 401
    assert client.ask("GET", "/healthz", headers=dict.fromkeys(left_out)).json == {"ok": True}


@pytest.mark.parametrize("attempt", ["1", True, 1.0, None, [1]])
def test_an_attempt_is_an_integer(served: Served, attempt: object) -> None:
    body = {"action": "kill", "jobs": [{"key": key(1), "attempt": attempt}], "dry_run": True}
    answer = served.client().ask("POST", "/api/actions", body)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")


def test_line_03_the_halves_of_two_sessions_do_not_fit(served: Served) -> None:
    one, other = served.client(), served.client()
    mixed = {"X-Tenuto-Key": other.headers["X-Tenuto-Key"]}
    assert one.ask("GET", "/api/about", headers=mixed).status == 401
    assert one.get("/api/about").status == 200


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Host": "evil.example"}, 400, "bad_host"),
        ({"Host": "127.0.0.1.evil.example:80"}, 400, "bad_host"),
        ({"Host": None}, 400, None),
        ({"Origin": "http://evil.example"}, 403, "forbidden"),
        ({"Origin": "null"}, 403, "forbidden"),
        ({"Sec-Fetch-Site": "cross-site"}, 403, "forbidden"),
        ({"Sec-Fetch-Site": "same-site"}, 403, "forbidden"),
        ({"Sec-Fetch-Site": "same-origin"}, 200, None),
        ({"Host": "localhost:1234"}, 200, None),
        ({"Host": "localhost:1234", "Origin": "http://localhost:1234"}, 200, None),
        ({"Host": "localhost:1234", "Origin": "http://localhost:4321"}, 403, "forbidden"),
    ],
)
def test_line_03_only_our_own_page_may_ask(
    served: Served, headers: dict[str, str | None], status: int, code: str | None
) -> None:
    answer = served.client().ask("GET", "/api/about", headers=headers)
    assert answer.status == status
    if code is not None:
        assert answer.json["error"] == code
        assert has_headers(answer)
    assert "access-control-allow-origin" not in answer.headers


def test_line_03_two_host_headers_are_refused(served: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    connection.putrequest("GET", "/healthz", skip_host=True)
    connection.putheader("Host", "localhost")
    connection.putheader("Host", "localhost")
    connection.endheaders()
    assert connection.getresponse().status == 400
    connection.close()


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{}", "text/plain", 415),
        (b"{}", None, 415),
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b'{"action":"dance"}', "application/json", 400),
        (b'{"action":"kill","jobs":[]}', "application/json", 400),
        (b'{"action":"kill","jobs":[{"key":"experiments:a/b"}]}', "application/json", 400),
        (b" " * ((1 << 20) + 1), "application/json", 413),
    ],
)
def test_line_03_wrong_bodies_are_refused(served: Served, body: bytes, kind: str | None, status: int) -> None:
    answer = served.client().ask("POST", "/api/actions", body, {"Content-Type": kind})
    assert answer.status == status
    assert set(answer.json) >= {"error", "message"}
    assert has_headers(answer)


def test_line_03_every_answer_has_the_headers(served: Served) -> None:
    client = served.client()
    paths = (
        "/",
        "/static/main.js",
        "/static/../app.py",
        "/healthz",
        "/api/about",
        "/api/nothing",
        "/nothing",
    )
    for path in (*paths, "/api/jobs?limit=none", "/api/jobs?filter=%3D", "/api/queue"):
        answer = client.get(path)
        assert has_headers(answer), path
        assert answer.status in (200, 400, 404), path
        if path.startswith("/api"):
            assert answer.headers["cache-control"] == "no-store"
    assert "server" not in client.get("/healthz").headers


def test_line_03_a_read_only_server_acts_on_nothing(served: Served) -> None:
    client = served.client()
    served.provider.read_only = True
    body = {"action": "kill", "jobs": [{"key": key(1), "attempt": 1}]}
    answer = client.ask("POST", "/api/actions", body)
    assert (answer.status, answer.json["error"]) == (403, "read_only")


def test_logout_ends_the_session_and_its_streams(served: Served) -> None:
    client = served.client()
    stream = client.stream()
    assert stream.frame()[0] == "reset"
    assert client.ask("POST", "/api/logout").status == 204
    assert client.get("/api/about").status == 401
    assert stream.frame() == ("end", None)
    stream.close()


def ask(port: int, host: str) -> int:
    """The status of an answer to a request with this Host."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest("GET", "/healthz", skip_host=True)
    connection.putheader("Host", host)
    connection.endheaders()
    status = connection.getresponse().status
    connection.close()
    return status


def test_hosts_are_read_strictly(served: Served) -> None:
    port = served.port
    for host in (f"127.0.0.1:{port}", "localhost", "LOCALHOST:1", "[::1]", f"[0:0::1]:{port}", "127.0.0.1:"):
        assert ask(port, host) == 200, host
    for host in NO_HOSTS:
        assert ask(port, host.format(port=port)) == 400, host


def test_half_requests_end_in_time(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger who can connect cannot keep the descriptors of the server; others are answered meanwhile."""
    monkeypatch.setattr(served.server.protocol, "limits", LIMITS._replace(header_s=0.3, connections=40))
    halves = [b"", b"GET /healthz HT", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "] * 10
    with contextlib.ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection(("127.0.0.1", served.port), 60)) for _ in halves
        ]
        for connection, sent in zip(connections, halves, strict=True):
            connection.sendall(sent)
        assert ask(served.port, "localhost") == 200
        answers = [connection.makefile("rb").read() for connection in connections]
    assert all(b" 408 " in answer and b'"too_slow"' in answer for answer in answers)


def is_closed_soon(connection: socket.socket) -> bool:
    """True if the server closes a connection on which bytes trickle."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            connection.sendall(b"x")
        except ConnectionError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("request_line", ["GET /healthz", "POST /api/actions"])
def test_a_trickle_after_its_answer_ends_in_time(
    served: Served, monkeypatch: pytest.MonkeyPatch, request_line: str
) -> None:
    monkeypatch.setattr(served.server.protocol, "limits", LIMITS._replace(header_s=0.5))
    with socket.create_connection(("127.0.0.1", served.port), 60) as connection:
        length = 2 << 20  # more than is taken: it is refused, or not read, before its end
        head = f"{request_line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
        connection.sendall(head.encode())
        if request_line.startswith("POST"):
            connection.sendall(b"x" * ((1 << 20) + 1))
        assert connection.recv(12).startswith(b"HTTP/1.1 ")
        assert is_closed_soon(connection)


def test_an_answer_on_a_kept_connection_is_sent_at_once(served: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    took = []
    for _ in range(20):
        began = time.perf_counter()
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        took.append(time.perf_counter() - began)
    connection.close()
    assert statistics.median(took) < 0.02
