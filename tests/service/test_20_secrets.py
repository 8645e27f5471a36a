"""Acceptance 20: thirty planted secrets are found nowhere; a job of another takes as long as none at all."""

from __future__ import annotations

import contextlib
import io
import os
import random
import secrets
import sqlite3
import statistics
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.service.servers import Process

Start = Callable[..., Process]


def planted(name: str) -> str:
    return f"canary-{name}-{secrets.token_hex(8)}"


@pytest.mark.slow
def test_planted_secrets_are_found_nowhere(start: Start, tmp_path: Path) -> None:
    """H19, U13: not in logs, answers, results, nor in files that others than the node can read."""
    environment = {f"SECRET_{n}": planted(f"variable{n}") for n in range(5)}
    environment["AWS_SECRET_ACCESS_KEY"] = planted("aws")
    node_secret = planted("node")
    (tmp_path / "node.token").write_text(node_secret)
    (tmp_path / "tenuto.toml").write_text(f'[node]\ntoken_file = "{tmp_path}/node.token"\n')
    server = start(
        "serve", "--with-node", "--sandbox", "none", "--auth", "tokens", "--log", "json", env=environment
    )
    token = _token(tmp_path)
    good = {"Authorization": f"Bearer {token}"}
    found = [*environment.values(), node_secret, token]
    answers = [
        server.upload("env; env > variables; cat /proc/self/environ > more\n", user="ada", headers=good)
    ]
    id = answers[0].json["id"]
    server.request("GET", f"/download/{id}?wait=60", headers=good)
    asked = (
        *(("Authorization", f"Bearer {{}}{n}") for n in range(5)),
        *(("Authorization", kind) for kind in ("{}", "Basic {}", "Token {}", "bearer {}")),
        *(
            (name, "{}")
            for name in (
                "Cookie",
                "Referer",
                "X-Api-Key",
                "Proxy-Authorization",
                "X-Auth",
                "User-Agent",
                "Origin",
                "X-Request-Id",
            )
        ),
    )
    for n, (header, form) in enumerate(asked):
        secret = planted(f"header{n}")
        found.append(secret)
        given = {header: form.format(secret)}
        answers += [server.get(path, **given) for path in ("/jobs", f"/download/{id}")]
    for name in ("token", "access_token", "key", "other", "auth"):
        secret = planted(name)
        found.append(secret)
        answers.append(server.get(f"/jobs?{name}={secret}", **good))
        answers.append(server.get(f"/{secret}?{name}={secret}", **good))
    assert len(found) >= 30
    result = server.request("GET", f"/download/{id}", headers=good)
    assert result.status == 200
    made = zipfile.ZipFile(io.BytesIO(result.body))
    places = {f"result {name}": made.read(name) for name in made.namelist()}
    places["log"] = server.log.encode()
    places |= {f"answer {n}": answer.body + str(answer.headers).encode() for n, answer in enumerate(answers)}
    server.stop()
    ours = [
        path
        for path in tmp_path.rglob("*")
        if path.is_file() and path.name not in ("node.token", "tenuto.toml")
    ]
    places |= {str(path): path.read_bytes() for path in ours}
    assert [(where, s) for where, content in places.items() for s in found if s.encode() in content] == []
    closed = [path for path in ours if path.name.startswith(("db.sqlite", "node.sqlite"))]
    assert closed
    assert all(path.stat().st_mode & 0o077 == 0 for path in closed)


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", ["uid", "none"])
def test_every_file_of_the_service_is_for_its_account_alone(
    start: Start, directory: Path, sandbox: str
) -> None:
    """Whatever the umask; but payloads with uids of their own pass through the directories above theirs."""
    if sandbox == "uid" and os.geteuid() != 0:
        pytest.skip("only root can give payloads a uid of their own")
    if sandbox == "none":
        (directory / "db.sqlite").touch(
            0o644
        )  # as a restored backup has it; with `uid` the server refuses it
    (directory / "far").mkdir()
    arguments = ("--sandbox", sandbox, "--data", str(directory / "far" / "node"))
    with umask(0):
        far = start("node", *arguments, cwd=directory)
        toml = f'[services.example]\n[services.far]\nnodes = ["{far.url}"]\n'
        toml += f'[node]\ntoken_file = "{directory}/far/node/node.token"\n'
        (directory / "tenuto.toml").write_text(toml)
        (directory / "tenuto.toml").chmod(0o600)
        data = ("--data", str(directory / "data"))
        served = start("serve", "--with-node", "--sandbox", sandbox, *data, cwd=directory)
    script = "echo a > made; until [ -e stop ]; do sleep 0.05; done\n"
    running = served.upload(script, service="far", files={"in": b"x"}).json["id"]
    ended = [served.run("true\n", service=name, files={"in": b"x"}) for name in ("example", "far")]
    ended.append(served.run("exit 1\n", service="far"))
    assert [job["status"] for job in ended] == ["Completed", "Completed", "Failed"]
    seen = [path for path in directory.rglob("*") if not path.name.startswith(("log-", "tenuto.toml"))]
    assert {"result.zip", "db.sqlite-wal", "node.sqlite-shm", "in"} <= {path.name for path in seen}
    own = [path for path in seen if "work" not in path.parts]
    files = {str(path): oct(path.stat().st_mode) for path in own if path.is_file()}
    assert {path: mode for path, mode in files.items() if mode != "0o100600"} == {}
    passed = 0o711 if sandbox == "uid" else 0o700
    modes = {str(path): path.stat().st_mode & 0o777 for path in own if path.is_dir() and path.name != "far"}
    assert set(modes.values()) <= {0o700, passed}
    served.post(f"/terminate/{running}")


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    yield
    os.umask(before)


def _token(directory: Path, user: str = "ada") -> str:
    """A token, made by the command in another process."""
    command = [sys.executable, "-m", "tenuto", "token", "create", "--user", user]
    made = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True)
    with contextlib.closing(sqlite3.connect(directory / "db.sqlite")) as database:
        assert made.stdout.strip() not in "".join(map(str, database.execute("SELECT * FROM tokens")))
    return made.stdout.strip()


@pytest.mark.slow
@pytest.mark.prove("it measures time")
def test_not_there_and_not_yours_take_as_long(start: Start, tmp_path: Path) -> None:
    """H17: the two samples are not told apart (Mann-Whitney, at one in a thousand)."""
    server = start("serve", "--with-node", "--sandbox", "none", "--auth", "tokens")
    ada = {"Authorization": f"Bearer {_token(tmp_path)}"}
    id = server.upload("true\n", user="ada", headers=ada).json["id"]
    bob = {"Authorization": f"Bearer {_token(tmp_path, 'bob')}"}
    took: dict[int, list[float]] = {id: [], 999_999: []}
    order = [id, 999_999] * 400
    random.Random(1).shuffle(order)
    for one in order:
        began = time.perf_counter()
        server.request("GET", f"/jobs/{one}", headers=bob)
        took[one].append(time.perf_counter() - began)
    first, second = took.values()
    ranks = {value: rank for rank, value in enumerate(sorted(first + second))}
    n, m = len(first), len(second)
    u = sum(ranks[value] + 1 for value in first) - n * (n + 1) / 2
    z = (u - n * m / 2) / (n * m * (n + m + 1) / 12) ** 0.5
    assert abs(z) < 3.29, (z, statistics.median(first), statistics.median(second))
