"""Callbacks: which addresses are called, with what, how often, and what is said of it."""

from __future__ import annotations

import hashlib
import hmac
import json
import signal
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tenuto.database import Database, migrate
from tenuto.errors import InvalidSetting, RequestRefused
from tenuto.lifecycle.service import ServiceState
from tenuto.service import callbacks
from tenuto.service.callbacks import AGAIN_S, CallbackHosts, take_due
from tenuto.service.decisions import Quota
from tenuto.service.requests import Requests
from tenuto.service.rows import NewJob
from tenuto.service.tables import MIGRATIONS
from tenuto.service.tables import callbacks as table
from tests.service.asgi import ask, make_server, run
from tests.service.multipart import CONTENT_TYPE, body, field, file
from tests.service.servers import Process, eventually

Start = Callable[..., Process]


class Call(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    """An address that is called, and answers with one code after the other, the last one for ever."""

    def __init__(self, *codes: int) -> None:
        self.calls: list[Call] = []
        left = list(codes)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler) -> None:
                said = handler.rfile.read(int(handler.headers["content-length"]))
                self.calls.append(Call(handler.path, dict(handler.headers), said))
                handler.send_response(left.pop(0) if len(left) > 1 else left[0])
                handler.send_header("location", f"http://127.0.0.1:{self.port}/elsewhere")
                handler.send_header("content-length", "0")
                handler.end_headers()

            def log_message(handler, *words: Any) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def url(self, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}/told?job=1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver(204)
    yield made
    made.close()


def upload(server: Process, callback: str, script: str = "true\n", **headers: str) -> Any:
    parts = [field("service", "example"), field("callback", callback), file("run.sh", script.encode())]
    if not headers:
        parts.append(field("user_id", "1"))
    return server.request("POST", "/upload", body(*parts), {"Content-Type": CONTENT_TYPE, **headers})


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_end_of_a_job_is_told_once_and_signed(
    host: str, receiver: Receiver, start: Start, tmp_path: Path
) -> None:
    (tmp_path / "tenuto.toml").write_text(
        f'[service]\ncallback_hosts = ["{host}"]\ncallback_secret_file = "secret"\n'
    )
    (tmp_path / "secret").write_text("a secret\n")
    server = start("serve", "--with-node", "--sandbox", "none")
    good, bad = (upload(server, receiver.url(host), script).json["id"] for script in ("true\n", "exit 3\n"))
    eventually(lambda: len(receiver.calls) == 2)
    told = {json.loads(call.body)["id"]: (json.loads(call.body), call) for call in receiver.calls}
    assert {name: status["status"] for name, (status, _) in told.items()} == {
        good: "Completed",
        bad: "Failed",
    }
    for number, (said, call) in told.items():
        job = server.job(number)
        assert said == {name: job[name] for name in ("id", "service", "status", "message", "ended_at")}
        signed = hmac.new(b"a secret", call.body, hashlib.sha256).hexdigest()
        assert call.headers["Tenuto-Signature"] == f"sha256={signed}"
        assert call.headers["Tenuto-Delivery"]
        assert call.path == "/told?job=1"
        eventually(lambda number=number: server.job(number)["callback"]["status"] == "delivered")
        assert server.job(number)["callback"] == {
            "url": receiver.url(host),
            "status": "delivered",
            "tries": 1,
            "message": "",
            "next_try": None,
        }
    killed = upload(server, receiver.url(host), "sleep 60\n").json["id"]
    assert server.job(killed)["callback"]["status"] == "waiting"
    server.post(f"/terminate/{killed}")
    eventually(lambda: len(receiver.calls) == 3)
    assert json.loads(receiver.calls[-1].body)["status"] == "Killed"
    assert server.get("/jobs").json["jobs"][0]["callback"] is None
    assert receiver.url(host) not in server.log, "an address may hold a secret"


def test_a_token_signs_the_callbacks_of_its_jobs(receiver: Receiver, start: Start, tmp_path: Path) -> None:
    (tmp_path / "tenuto.toml").write_text('[service]\ncallback_hosts = ["127.0.0.0/8"]\n')
    server = start("serve", "--with-node", "--sandbox", "none", "--auth", "tokens")
    from tests.service.test_24_operators import command

    token = command(tmp_path, "token", "create", "--user", "ada").stdout.strip()
    assert upload(server, receiver.url(), Authorization=f"Bearer {token}").status == 201
    (call,) = eventually(lambda: receiver.calls)
    key = hashlib.sha256(token.encode()).hexdigest().encode()
    assert call.headers["Tenuto-Signature"] == f"sha256={hmac.new(key, call.body, 'sha256').hexdigest()}"


def test_a_server_without_tokens_makes_a_secret(receiver: Receiver, start: Start, tmp_path: Path) -> None:
    (tmp_path / "tenuto.toml").write_text('[service]\ncallback_hosts = ["127.0.0.1"]\n')
    server = start("serve", "--with-node", "--sandbox", "none")
    upload(server, receiver.url())
    (call,) = eventually(lambda: receiver.calls)
    secret = tmp_path / "data" / "callback.secret"
    assert secret.stat().st_mode & 0o777 == 0o600
    signed = hmac.new(secret.read_bytes().strip(), call.body, "sha256").hexdigest()
    assert call.headers["Tenuto-Signature"] == f"sha256={signed}"


def test_callbacks_are_signed_once_hosts_are_listed(receiver: Receiver, start: Start, tmp_path: Path) -> None:
    settings = tmp_path / "tenuto.toml"
    settings.write_text("[services.example]\n")
    server = start("serve", "--with-node", "--sandbox", "none")
    assert upload(server, receiver.url()).json["error"] == "callbacks_off"
    settings.write_text('[service]\ncallback_hosts = ["a b"]\n[services.example]\n')
    server.signal(signal.SIGHUP)
    eventually(lambda: " reload_failed " in server.log)
    settings.write_text('[service]\ncallback_hosts = ["127.0.0.1"]\n[services.example]\n')
    server.signal(signal.SIGHUP)
    eventually(lambda: " reloaded " in server.log)
    assert upload(server, receiver.url()).status == 201
    (call,) = eventually(lambda: receiver.calls)
    secret = (tmp_path / "data" / "callback.secret").read_bytes().strip()
    assert call.headers["Tenuto-Signature"] == f"sha256={hmac.new(secret, call.body, 'sha256').hexdigest()}"


def test_a_call_that_does_not_arrive_is_made_again_by_the_next_server(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = Receiver(302)
    (tmp_path / "tenuto.toml").write_text('[service]\ncallback_hosts = ["127.0.0.1"]\n')
    server = start("serve", "--with-node", "--sandbox", "none")
    number = upload(server, receiver.url()).json["id"]
    eventually(lambda: receiver.calls and server.job(number)["callback"]["message"])
    said = server.job(number)["callback"]
    assert (said["status"], said["tries"], said["message"]) == ("waiting", 1, "HTTP 302")
    assert said["next_try"] > server.job(number)["ended_at"]
    assert [call.path for call in receiver.calls] == ["/told?job=1"], "a redirect is not followed"
    server.kill()
    receiver.close()
    receiver = Receiver(200)
    (tmp_path / "tenuto.toml").write_text('[service]\ncallback_hosts = ["127.0.0.1"]\n')
    database = Database(str(tmp_path / "db.sqlite"))
    change = table.update().values(due_at=0, url=receiver.url())
    database.write(lambda connection: connection.execute(change))
    database.close()
    server = start("serve", "--with-node", "--sandbox", "none")
    eventually(lambda: server.job(number)["callback"]["status"] == "delivered")
    assert server.job(number)["callback"]["tries"] == 2
    receiver.close()


def test_callbacks_are_off_unless_hosts_are_listed(tmp_path: Path) -> None:
    app = make_server(tmp_path).app()
    sent = body(field("user_id", "1"), field("service", "example"), field("callback", "https://a.example"))
    reply = run(ask(app, "POST", "/upload", {"content-type": CONTENT_TYPE}, sent))
    assert (reply.status, reply.json["error"]) == (400, "no_run_sh")
    sent = body(
        field("user_id", "1"),
        field("service", "example"),
        field("callback", "https://a.example"),
        file("run.sh"),
    )
    reply = run(ask(app, "POST", "/upload", {"content-type": CONTENT_TYPE}, sent))
    assert (reply.status, reply.json["error"]) == (400, "callbacks_off")
    assert list((tmp_path / "data" / "jobs").iterdir()) == []


LISTED = CallbackHosts(["hooks.example.org", "*.lab.example", "192.0.2.0/24", "fd00::/8", "localhost"])


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.org/x",
        "http://hooks.example.org:8080/x?y=1",
        "https://HOOKS.example.org./x",
        "https://a.b.lab.example/",
        "https://192.0.2.7/",
        "http://[fd00::1]:99/",
        "http://localhost:5000/",
        "http://[::ffff:192.0.2.9]/",
    ],
)
def test_addresses_of_listed_hosts_are_taken(url: str) -> None:
    assert LISTED.problem(url) is None


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/",
        "https://lab.example/",
        "https://evil-hooks.example.org/",
        "https://hooks.example.org.evil.example/",
        "ftp://hooks.example.org/",
        "file:///etc/passwd",
        "hooks.example.org",
        "https://user:word@hooks.example.org/",
        "https://hooks.example.org@evil.example/",
        "https://hooks.example.org/#x",
        "https://hooks.example.org:0/",
        "https://hooks.example.org:99999/",
        "https://hooks.example.org/a b",
        "https://hooks.example.org/\r\nX: y",
        "https://evil.example\\@hooks.example.org/",
        "https://höoks.example.org/",
        "https://10.0.0.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://0x0a000001/",
        "http://167772161/",
        "http://[::ffff:10.0.0.1]/",
        "https:///x",
        "https://hooks.example.org/" + "x" * 2000,
    ],
)
def test_other_addresses_are_refused_by_name(url: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        LISTED.refuse(url)
    assert refused.value.code == "bad_callback"


def test_every_host_is_called_by_https_alone() -> None:
    every = CallbackHosts(["*", "plain.example"])
    every.refuse("https://a.example/")
    every.refuse("http://plain.example/")
    for url in ("http://a.example/", "https://127.0.0.1/", "https://8.8.8.8/"):
        with pytest.raises(RequestRefused):
            every.refuse(url)


@pytest.mark.parametrize(
    ("address", "is_reached"),
    [
        ("8.8.8.8", True),
        ("192.0.2.7", True),
        ("10.0.0.1", False),
        ("127.0.0.1", True),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("0.0.0.0", False),
        ("fe80::1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::a00:1", False),
        ("2002:a00:1::", False),
        ("2606:4700::1111", True),
        ("fd00::5", True),
    ],
)
def test_a_name_leads_to_no_address_inside_but_listed_ones(address: str, is_reached: bool) -> None:
    found = callbacks._address(address)
    assert found is not None
    assert LISTED.may_reach(found) is is_reached


def test_a_listed_name_that_leads_inside_is_not_called() -> None:
    async def main() -> None:
        resolver = callbacks._Resolver(lambda: CallbackHosts(["inside.example"]))
        with pytest.raises(OSError, match="address inside"):
            await resolver.resolve("127.0.0.1", 80)  # where the name leads

    run(main())


@pytest.mark.parametrize(
    "entry", ["https://a.example", "a.example:80", "", "a b", "*a.example", "*.*", "a/b"]
)
def test_hosts_that_are_none_are_refused(entry: str) -> None:
    with pytest.raises(InvalidSetting):
        CallbackHosts([entry])


def test_a_callback_is_tried_six_times_and_given_up(database_url: str) -> None:
    database = Database(database_url)
    migrate(database, MIGRATIONS)
    requests = Requests(database, "me")
    requests.add(NewJob("1", "s", "d", callback="https://a.example"))
    assert database.write(lambda connection: take_due(connection, 9)) == [], "it has not ended"
    (row,) = requests.claim("s", Quota(5, 5), ["n"])
    requests.move(row, ServiceState.FAILED, "why")
    seen: list[int] = []
    for _ in AGAIN_S:
        (due,) = database.write(lambda connection: take_due(connection, 9))
        seen.append(due.tries)
        assert database.write(lambda connection: take_due(connection, 9)) == [], "not before its time"
        database.write(lambda connection: connection.execute(table.update().values(due_at=0)))
    (due,) = database.write(lambda connection: take_due(connection, 9))
    assert [*seen, due.tries] == [1, 2, 3, 4, 5, 6]
    assert json.loads(due.body)["message"] == "why"
    database.write(lambda connection: connection.execute(table.update().values(due_at=0)))
    assert database.write(lambda connection: take_due(connection, 9)) == []
    found = requests.get(row.id)
    assert found is not None
    said = callbacks.callback_of(database, found)
    assert said is not None
    assert said.status == "given_up"
    database.close()
