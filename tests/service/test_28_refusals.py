"""Acceptance 28: what cannot work is one sentence that says what to do."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.service.servers import Process

NO_PREFIX = {name: value for name, value in os.environ.items() if not name.startswith("TENUTO_")}


def tenuto(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tenuto", *arguments],
        cwd=cwd,
        env={**NO_PREFIX, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["serve"], ["no service is configured", "--with-node"]),
        (["serve", "--service", "x"], ["service x has no nodes", "--with-node"]),
        (["serve", "--with-node", "--host", "0.0.0.0"], ["--auth tokens", "--insecure"]),
        (["serve", "--with-node", "--db", "mysql://x"], ["mysql", "postgresql"]),
    ],
)
def test_unusable_settings(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    ended = tenuto(*arguments, "--port", "0", cwd=tmp_path)
    assert ended.returncode == 2, ended
    assert len(ended.stderr.strip().splitlines()) <= 6
    for word in words:
        assert word in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_a_taken_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = tenuto("serve", "--with-node", "--sandbox", "none", "--port", port, cwd=tmp_path)
    assert ended.returncode == 2
    assert f"port {port}" in ended.stderr
    assert "--port" in ended.stderr


@pytest.mark.slow
def test_without_a_sandbox(tmp_path: Path) -> None:
    """No bwrap to be found, and not root: with tokens it does not start."""
    arguments = ["serve", "--with-node", "--auth", "tokens", "--sandbox", "bwrap", "--port", "0"]
    ended = tenuto(*arguments, cwd=tmp_path, PATH=str(tmp_path))
    assert ended.returncode == 2
    assert "bubblewrap" in ended.stderr
    assert "--sandbox none" in ended.stderr


@pytest.mark.slow
def test_a_foreign_database_and_a_newer_one(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "foreign.db") as foreign:
        foreign.execute("CREATE TABLE customers (x)")
    foreign.close()
    ended = tenuto("token", "list", "--db", "foreign.db", cwd=tmp_path)
    assert ended.returncode == 2
    assert "customers" in ended.stderr
    assert tenuto("token", "list", "--db", "new.db", cwd=tmp_path).returncode == 0
    with sqlite3.connect(tmp_path / "new.db") as newer:
        newer.execute("UPDATE service_version SET version_num = '9999'")
    newer.close()
    ended = tenuto("token", "list", "--db", "new.db", cwd=tmp_path)
    assert ended.returncode == 2
    assert "newer version" in ended.stderr


@pytest.mark.slow
def test_a_second_server_on_the_same_data(start: Callable[..., Process], tmp_path: Path) -> None:
    start("serve", "--with-node", "--sandbox", "none")
    ended = tenuto("serve", "--with-node", "--sandbox", "none", "--port", "0", cwd=tmp_path)
    assert ended.returncode == 4
    assert "--data" in ended.stderr


@pytest.mark.slow
def test_without_the_extra(tmp_path: Path) -> None:
    (tmp_path / "fastapi.py").write_text("raise ModuleNotFoundError('No module', name='fastapi')\n")
    ended = tenuto("serve", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert ended.returncode == 2
    assert "pip install 'tenuto[service]'" in ended.stderr


@pytest.mark.slow
def test_tokens_from_the_command_line(tmp_path: Path) -> None:
    made = tenuto("token", "create", "--user", "ada", "--scope", "submit,read", "--json", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    token = json.loads(made.stdout)
    plain = tenuto(
        "token", "create", "--user", "bob", "--expires", "none", "--note", "x\x1b[2J", cwd=tmp_path
    )
    assert len(plain.stdout.strip()) == 47
    assert tenuto("token", "revoke", str(token["id"]), cwd=tmp_path).returncode == 0
    assert tenuto("token", "revoke", "99", cwd=tmp_path).returncode == 3
    listed = json.loads(tenuto("token", "list", "--json", cwd=tmp_path).stdout)
    assert [one["user"] for one in listed] == ["ada", "bob"]
    assert listed[0]["scopes"] == ["submit", "read"]
    assert listed[0]["revoked_at"]
    assert listed[1]["expires_at"] is None
    assert "\x1b" not in tenuto("token", "list", cwd=tmp_path).stdout
    assert token["token"] not in (tmp_path / "db.sqlite").read_bytes().decode("latin-1")
    for wrong in (["--user", "a b"], ["--user", "a", "--scope", "all"], ["--user", "a", "--expires", "soon"]):
        assert tenuto("token", "create", *wrong, cwd=tmp_path).returncode == 2
