"""Acceptance 28: what cannot work is one sentence that says what to do."""

from __future__ import annotations

import json
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from tenuto.database import Migrations
from tenuto.service.tables import MIGRATIONS, NODE_MIGRATIONS, opened
from tests.service.conftest import Tenuto
from tests.service.servers import Process


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["serve"], ["no service is configured", "--with-node"]),
        (["serve", "--service", "x"], ["service x has no nodes", "--with-node"]),
        (["serve", "--with-node", "--host", "0.0.0.0"], ["--auth tokens", "--insecure"]),
        (["serve", "--with-node", "--db", "mysql://x"], ["mysql", "PostgreSQL"]),
    ],
)
def test_unusable_settings(tenuto: Tenuto, arguments: list[str], words: list[str]) -> None:
    ended = tenuto(*arguments, "--port", "0")
    assert ended.returncode == 2, ended
    assert len(ended.stderr.strip().splitlines()) <= 6
    for word in words:
        assert word in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ('[services.x]\nnodes = ["http://[bad"]', "services.x.nodes"),
        ('[services.x]\nnodes = ["http://far:99999"]', "services.x.nodes"),
        ('[services.x]\nnodes = ["far"]\n[nodes.far]\nurl = "http://[::1:9000"', "nodes.far.url"),
        ('[service]\nhosts = ["https://jobs.example.org"]', "service.hosts"),
        ('[service]\nprefix = "/jobs/../x"', "service.prefix"),
    ],
)
def test_addresses_that_cannot_be(tenuto: Tenuto, tmp_path: Path, settings: str, word: str) -> None:
    (tmp_path / "tenuto.toml").write_text(settings)
    ended = tenuto("serve", "--with-node", "--sandbox", "none", "--port", "0")
    assert (ended.returncode, word in ended.stderr) == (2, True), ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_taken_port(tenuto: Tenuto) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = tenuto("serve", "--with-node", "--sandbox", "none", "--port", port)
    assert ended.returncode == 2
    assert f"port {port}" in ended.stderr
    assert "--port" in ended.stderr


def test_without_a_sandbox(tenuto: Tenuto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No bwrap to be found, and not root: with tokens it does not start."""
    arguments = ["serve", "--with-node", "--auth", "tokens", "--sandbox", "bwrap", "--port", "0"]
    monkeypatch.setenv("PATH", str(tmp_path))
    ended = tenuto(*arguments)
    assert ended.returncode == 2
    assert "bubblewrap" in ended.stderr
    assert "--sandbox none" in ended.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["token", "list"],
        ["serve", "--with-node", "--sandbox", "none", "--port", "0"],
        ["node", "--port", "0"],
    ],
    ids=lambda command: command[0],
)
def test_a_foreign_database(tenuto: Tenuto, tmp_path: Path, command: list[str]) -> None:
    with sqlite3.connect(tmp_path / "foreign.db") as foreign:
        foreign.execute("CREATE TABLE customers (x)")
    foreign.close()
    before = (tmp_path / "foreign.db").read_bytes()
    ended = tenuto(*command, "--db", "foreign.db")
    assert ended.returncode == 2
    [sentence] = ended.stderr.strip().splitlines()
    assert "foreign.db holds tables of another program (customers): give another file" in sentence
    assert [path.name for path in tmp_path.iterdir()] == ["foreign.db"]
    assert (tmp_path / "foreign.db").read_bytes() == before


@pytest.mark.parametrize(
    ("command", "migrations"),
    [
        (["token", "list"], MIGRATIONS),
        (["serve", "--with-node", "--sandbox", "none", "--port", "0"], MIGRATIONS),
        (["node", "--port", "0"], NODE_MIGRATIONS),
    ],
    ids=["token", "serve", "node"],
)
def test_a_database_of_a_newer_version(
    tenuto: Tenuto, tmp_path: Path, command: list[str], migrations: Migrations
) -> None:
    newer(tmp_path / "new.db", migrations)
    ended = tenuto(*command, "--db", "new.db")
    assert ended.returncode == 2
    [sentence] = ended.stderr.strip().splitlines()
    assert "newer version of Tenuto" in sentence
    assert "install that version; nothing was changed" in sentence
    assert {path.name for path in tmp_path.iterdir()} <= {"new.db", "new.db-shm", "new.db-wal"}


def test_an_embedded_node_of_a_newer_version(tenuto: Tenuto, tmp_path: Path) -> None:
    (tmp_path / "data" / "node").mkdir(parents=True)
    newer(tmp_path / "data" / "node" / "node.sqlite", NODE_MIGRATIONS)
    ended = tenuto("serve", "--with-node", "--sandbox", "none", "--port", "0")
    assert ended.returncode == 2
    assert "newer version of Tenuto" in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert not (tmp_path / "data" / "node" / "uploads").exists()


def test_a_database_of_a_newer_version_on_postgresql(
    tenuto: Tenuto, tmp_path: Path, postgresql_url: str
) -> None:
    newer(postgresql_url, MIGRATIONS)
    ended = tenuto("serve", "--with-node", "--sandbox", "none", "--port", "0", "--db", postgresql_url)
    assert ended.returncode == 2
    assert "newer version of Tenuto" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def newer(url: str | Path, migrations: Migrations) -> None:
    """A database as a version of Tenuto to come would leave it."""
    database = opened(url, migrations, 30.0)
    statement = text(f"UPDATE {migrations.version_table} SET version_num = '9999'")
    database.write(lambda connection: connection.execute(statement))
    database.close()


@pytest.mark.slow
def test_a_second_server_on_the_same_data(tenuto: Tenuto, start: Callable[..., Process]) -> None:
    start("serve", "--with-node", "--sandbox", "none")
    ended = tenuto("serve", "--with-node", "--sandbox", "none", "--port", "0")
    assert ended.returncode == 4
    assert "--data" in ended.stderr


def test_without_the_extra(tenuto: Tenuto, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("tenuto.cli.commands", "tenuto.service"))]:
        monkeypatch.delitem(sys.modules, name)
    for package, name in ((sys.modules["tenuto"], "service"), (sys.modules["tenuto.cli"], "commands")):
        # Put back at the end: a package that was imported anew would stay where names are looked up.
        monkeypatch.setattr(package, name, getattr(package, name, None), raising=False)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    ended = tenuto("serve")
    assert ended.returncode == 2
    assert "pip install 'tenuto[service]'" in ended.stderr


def test_tokens_from_the_command_line(tenuto: Tenuto, tmp_path: Path) -> None:
    made = tenuto("token", "create", "--user", "ada", "--scope", "submit,read", "--json")
    assert made.returncode == 0, made.stderr
    token = json.loads(made.stdout)
    plain = tenuto("token", "create", "--user", "bob", "--expires", "none", "--note", "x\x1b[2J")
    assert len(plain.stdout.strip()) == 47
    assert tenuto("token", "revoke", str(token["id"])).returncode == 0
    assert tenuto("token", "revoke", "99").returncode == 3
    listed = json.loads(tenuto("token", "list", "--json").stdout)
    assert [one["user"] for one in listed] == ["ada", "bob"]
    assert listed[0]["scopes"] == ["submit", "read"]
    assert listed[0]["revoked_at"]
    assert listed[1]["expires_at"] is None
    assert "\x1b" not in tenuto("token", "list").stdout
    assert token["token"] not in (tmp_path / "db.sqlite").read_bytes().decode("latin-1")
    for wrong in (
        ["--user", "a b"],
        ["--user", "a", "--scope", "all"],
        ["--user", "a", "--expires", "soon"],
        ["--user", "a", "--expires", "99999999999d"],
        ["--user", "a", "--queued", "9" * 19],
        ["--user", "a", "--stored-bytes", "9" * 20],
    ):
        assert tenuto("token", "create", *wrong).returncode == 2
    assert len(json.loads(tenuto("token", "list", "--json").stdout)) == 2


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("is_mute", [False, True], ids=["nobody listens", "it says nothing"])
def test_a_database_that_does_not_answer_at_the_start_is_said_soon(
    is_mute: bool, form: str, tmp_path: Path
) -> None:
    """The server waits for it, half a minute at most; without a word the operator takes that for a hang."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if is_mute:
            listening.listen()
        url = f"postgresql://ada:hidden@127.0.0.1:{listening.getsockname()[1]}/jobs"
        command = [sys.executable, "-m", "tenuto", "serve", "--with-node", "--db", url, "--log", form]
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr is not None
            line = server.stderr.readline()  # it comes long before the end, which leaves nothing behind it
            assert server.poll() is None
            server.kill()
            rest = server.stderr.read()
    said = json.loads(line)["message"] if form == "json" else line
    assert "does not answer, and is waited for" in said
    assert url.replace("hidden", "***") in said
    assert rest == ""
