"""What operators need: probes, figures, nodes that are taken out, tokens that are looked up."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenuto.service.access import Scope, Tokens
from tests.service.asgi import ask, make_server, run
from tests.service.conftest import Tenuto
from tests.service.multipart import CONTENT_TYPE, good
from tests.service.servers import Process, eventually
from tests.service.test_35_callbacks import Receiver

Start = Callable[..., Process]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver(302)
    yield found
    found.close()


HEADERS = {"content-type": CONTENT_TYPE}


def test_every_get_has_a_head_without_a_body(shared: Process) -> None:
    number = shared.upload("echo hello\n").json["id"]
    shared.final(number)
    paths = ("/", "/health", "/jobs", f"/jobs/{number}", "/metrics", "/openapi.json", "/swagger", "/services")
    paths += (f"/jobs/{number}/logs", f"/jobs/{number}/events", f"/jobs/{number}/logs?follow=true", "/jobs/x")
    for path in paths:
        head, got = shared.request("HEAD", path), shared.request("GET", path)
        assert (head.status, head.body) == (got.status, b""), path
        assert head.headers["content-type"] == got.headers["content-type"], path
    assert shared.request("HEAD", "/upload").status == 405


def test_health_is_503_while_the_server_drains(tmp_path: Path) -> None:
    server = make_server(tmp_path)
    app = server.app()

    async def main() -> list[tuple[int, str]]:
        before = await ask(app, "GET", "/health")
        server.drain()
        after, head = await ask(app, "GET", "/health"), await ask(app, "HEAD", "/health")
        return [
            (before.status, before.json["status"]),
            (after.status, after.json["status"]),
            (head.status, ""),
        ]

    assert run(main()) == [(200, "ok"), (503, "draining"), (503, "")]


def test_the_scope_metrics_reads_figures_and_nothing_else(tmp_path: Path) -> None:
    server = make_server(tmp_path, auth="tokens")
    app = server.app()
    made = {scope: Tokens(server.database).create("ada", frozenset({scope}), None)[1] for scope in Scope}

    async def status(scope: Scope, method: str, path: str, body: bytes = b"") -> int:
        headers = {**HEADERS, "authorization": f"Bearer {made[scope]}"}
        return (await ask(app, method, path, headers, body)).status

    async def main() -> None:
        assert await status(Scope.METRICS, "GET", "/metrics") == 200
        assert await status(Scope.ADMIN, "GET", "/metrics") == 200
        for scope in (Scope.FRONT, Scope.READ, Scope.SUBMIT):
            assert await status(scope, "GET", "/metrics") == 403, scope
        for path in ("/jobs", "/jobs/1", "/download/1", "/jobs/1/logs", "/jobs/1/events"):
            assert await status(Scope.METRICS, "GET", path) == 403, path
        assert await status(Scope.METRICS, "POST", "/upload", good()) == 403
        assert await status(Scope.METRICS, "POST", "/terminate/1") == 403

    run(main())


def test_a_log_is_followed_from_before_its_job_starts(shared: Process) -> None:
    first = shared.upload("sleep 1\n", user="7", service="one").json["id"]
    second = shared.upload("echo hello\n", user="7", service="one").json["id"]
    followed = shared.get(f"/jobs/{second}/logs?follow=true")
    assert followed.status == 200
    assert b"hello" in followed.body
    assert b"event: end" in followed.body
    ended = shared.upload("echo never\n", user="7", service="one").json["id"]
    shared.final(first)
    assert b"event: end" in shared.get(f"/jobs/{ended}/logs?follow=true").body


def test_a_log_of_a_job_that_ended_before_it_started_ends(tmp_path: Path) -> None:
    server = make_server(tmp_path)
    app = server.app()

    async def main() -> bytes:
        number = (await ask(app, "POST", "/upload", HEADERS, good())).json["id"]
        following = asyncio.create_task(ask(app, "GET", f"/jobs/{number}/logs?follow=true"))
        await asyncio.sleep(0.1)
        await ask(app, "POST", f"/terminate/{number}")
        return (await following).body

    body = run(main())
    assert b"event: end" in body
    assert b"Killed" in body


def command(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "tenuto", *arguments]
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def test_a_node_is_drained_emptied_and_resumed(tmp_path: Path, start: Start) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tenuto.toml").write_text(f'[node]\nname = "{name}"\nslots = 2\n')
    nodes = {name: start("node", "--sandbox", "none", cwd=tmp_path / name) for name in ("a", "b")}
    settings = "".join(
        f'[nodes.{name}]\nurl = "{node.url}"\ntoken_file = "{tmp_path}/{name}/node/node.token"\n'
        for name, node in nodes.items()
    )
    (tmp_path / "tenuto.toml").write_text(settings + '[services.example]\nnodes = ["a", "b"]\n')
    server = start("serve")
    release = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done\n"
    numbers = [server.upload(release, user=str(n)).json["id"] for n in range(4)]
    eventually(lambda: all(server.job(number)["status"] == "Running" for number in numbers))
    assert {server.job(number)["node"] for number in numbers} == {"a", "b"}

    url = ("--url", nodes["a"].url)
    said = command(tmp_path / "a", "node", "drain", *url, "--no-wait")
    assert (said.returncode, said.stdout) == (0, "tenuto: node a takes no more jobs; 2 have not ended\n")
    assert nodes["a"].get("/health").status == 503
    health: Any = nodes["a"].get("/health").json
    assert (health["status"], health["takes"], health["payloads"]) == ("draining", False, 2)
    (tmp_path / "go").touch()
    said = command(tmp_path / "a", "node", "drain", *url)
    assert said.stdout.splitlines()[-1] == "tenuto: node a is empty"
    assert {server.final(number)["status"] for number in numbers} == {"Completed"}
    later = [server.run("true\n", user=str(n)) for n in range(3)]
    assert {(job["status"], job["node"]) for job in later} == {("Completed", "b")}
    assert command(tmp_path / "b", "node", "drain", "--url", nodes["b"].url).returncode == 0
    waiting = server.upload("true\n").json["id"]
    assert command(tmp_path / "a", "node", "resume", *url).stdout == "tenuto: node a takes jobs again\n"
    assert server.final(waiting)["node"] == "a"

    refused = command(tmp_path, "node", "drain", *url)
    assert refused.returncode != 0
    assert "secret" in refused.stderr
    assert "Traceback" not in refused.stderr
    nodes["b"].kill()
    silent = command(tmp_path / "b", "node", "drain", "--url", nodes["b"].url)
    assert "does not answer" in silent.stderr
    again = start("node", "--sandbox", "none", cwd=tmp_path / "b")
    assert again.get("/health").json["status"] == "draining", "also after a restart"


@pytest.mark.parametrize("variable", ["", "http_proxy"])
def test_the_secret_of_a_node_goes_to_that_node_alone(
    tenuto: Tenuto, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Where an answer leads elsewhere it is refused, and a proxy of the environment is not asked."""
    (tmp_path / "secret").write_text("tnn_0\n")
    asked = receiver.url()
    if variable:
        monkeypatch.setenv(variable, asked)
        asked = "http://127.0.0.1:1"
    ended = tenuto("node", "drain", "--url", asked, "--token-file", "secret")
    assert ended.returncode == 2
    assert ("does not answer" if variable else "HTTP 302") in ended.stderr
    assert [call.path for call in receiver.calls] == ([] if variable else ["/told?job=1/drain"])


@pytest.mark.parametrize("url", ["http://[bad", "far:9000", "http://far:99999", "file:///etc/passwd"])
def test_a_url_that_leads_to_no_node_is_said(tenuto: Tenuto, url: str) -> None:
    ended = tenuto("node", "drain", "--url", url)
    assert (ended.returncode, "no URL of a server" in ended.stderr) == (2, True), ended.stderr


@pytest.mark.parametrize("arguments", [("list",), ("revoke", "1")])
def test_tokens_are_looked_up_where_there_is_a_database(
    arguments: tuple[str, ...], tenuto: Tenuto, tmp_path: Path
) -> None:
    ended = tenuto("token", *arguments)
    assert ended.returncode != 0
    assert "db.sqlite" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_expired_tokens_are_listed_as_such(tenuto: Tenuto) -> None:
    assert tenuto("token", "create", "--user", "ada", "--expires", "0s").returncode == 0
    assert "expired" in tenuto("token", "list").stdout


def test_services_and_nodes_are_read_anew_on_a_signal(tmp_path: Path, start: Start) -> None:
    (tmp_path / "n").mkdir()
    node = start("node", "--sandbox", "none", cwd=tmp_path / "n")
    remote = f'[nodes.far]\nurl = "{node.url}"\ntoken_file = "{tmp_path}/n/node/node.token"\n'
    settings = tmp_path / "tenuto.toml"
    settings.write_text(remote + '[services.example]\nnodes = ["far"]\n')
    server = start("serve", "--with-node", "--sandbox", "none")
    release = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done\n"
    number = server.upload(release).json["id"]
    eventually(lambda: server.job(number)["status"] == "Running")
    assert server.upload(service="new").json["error"] == "unknown_service"

    settings.write_text("[services.example]\nruns_per_user = 7\n[services.new]\n")
    server.signal(signal.SIGHUP)
    eventually(lambda: " reloaded " in server.log)
    assert server.run("true\n", service="new")["node"] == "local"
    assert server.run("true\n", user="2")["node"] == "local", "the node is not named any more"

    settings.write_text("[services.example]\nruns_per_user = 'many'\n")
    server.signal(signal.SIGHUP)
    eventually(lambda: " reload_failed " in server.log)
    assert server.run("true\n", service="new")["status"] == "Completed"

    (tmp_path / "go").touch()
    assert (server.final(number)["status"], server.job(number)["node"]) == ("Completed", "far")
    node.signal(signal.SIGHUP)
    eventually(lambda: " reload_failed " in node.log)
    assert node.get("/health").status == 200


def test_a_log_line_names_the_token_behind_each_act(tmp_path: Path, start: Start) -> None:
    def token(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tenuto", "token", *words]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60)

    made = token("create", "--user", "ada", "--json")
    known = json.loads(made.stdout)
    assert f"token_made token={known['id']} user=ada scopes=" in made.stderr
    assert known["token"] not in made.stderr
    assert "token_made token=2" in token("create", "--user", "bob").stderr
    assert "token_revoked token=2" in token("revoke", "2").stderr
    (tmp_path / "tenuto.toml").write_text('[service]\ntrusted_proxies = ["127.0.0.1"]\n')
    server = start("serve", "--with-node", "--sandbox", "none", "--auth", "tokens")
    ada = {"Authorization": f"Bearer {known['token']}", "X-Forwarded-For": "192.0.2.7"}
    server.upload(user="ada", headers=ada)
    assert server.get("/download/1?wait=30", **ada).status == 200
    assert server.get("/download_partial/1", **ada).status == 200
    assert server.get("/jobs/1/files/out.txt", **ada).status == 200
    assert server.request("HEAD", "/download/1", headers=ada).status == 200
    assert server.get("/jobs/1/files/no.txt", **ada).status == 404
    server.upload("sleep 60\n", user="ada", headers=ada)
    assert server.post("/terminate/2", **ada).status in (200, 202)
    assert server.post("/terminate/1", **ada).status == 409
    audited = re.findall(r" (uploaded|downloaded|terminated) (job=.*)", server.log)
    who = "user=ada token=1 address=192.0.2.7"
    assert audited == [
        ("uploaded", f"job=1 {who}"),
        ("downloaded", f"job=1 {who}"),
        ("downloaded", f"job=1 {who}"),
        ("downloaded", f"job=1 file=out.txt {who}"),
        ("uploaded", f"job=2 {who}"),
        ("terminated", f"job=2 {who}"),
    ]
    assert known["token"] not in server.log


def test_every_line_of_a_json_log_is_an_object(start: Start) -> None:
    """Also what a library says of a body that it cannot read."""
    server = start("serve", "--with-node", "--sandbox", "none", "--log", "json")
    for body in (b"\x1f\x8b no multipart", b"--x\r\nbad header\x01: y\r\n\r\n"):
        kind = {"Content-Type": "multipart/form-data; boundary=x"}
        assert server.request("POST", "/upload", body, kind).json["error"] == "bad_multipart"
    lines = [json.loads(line) for line in server.log.splitlines()]
    assert [line["action"] for line in lines].count("upload_refused") == 2
