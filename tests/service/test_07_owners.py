"""Whose it is: databases that are restored, copied or mistaken, and the data that outlives them."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.service.servers import Process, eventually

Start = Callable[..., Process]
EMBEDDED = ("--with-node", "--sandbox", "none")
pytestmark = pytest.mark.slow


def backup(source: Path, target: Path) -> None:
    """Copies a database while its server runs, as an operator does."""
    with closing(sqlite3.connect(source)) as database, closing(sqlite3.connect(target)) as copy:
        database.backup(copy)


def restore(source: Path, target: Path) -> None:
    for left in target.parent.glob(f"{target.name}*"):
        left.unlink()
    shutil.copy(source, target)


def result(served: Process, id: int) -> zipfile.ZipFile:
    answer = served.get(f"/download/{id}")
    assert answer.status == 200, answer
    return zipfile.ZipFile(io.BytesIO(answer.body))


def facts(served: Process, id: int) -> Any:
    return json.loads(result(served, id).read(".tenuto/job.json"))


def settings(directory: Path, node: str) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "tenuto.toml").write_text(f'[services.example]\nnodes = ["{node}"]\n')
    return directory


@pytest.mark.parametrize("is_apart", [False, True], ids=["embedded", "apart"])
@pytest.mark.parametrize("is_running", [False, True], ids=["ended", "running"])
def test_a_restored_database_gives_no_user_the_job_of_another(
    start: Start, tmp_path: Path, is_apart: bool, is_running: bool
) -> None:
    """S1-2: user A's job 2 is newer than the backup; user B's upload is job 2 again."""
    if is_apart:
        worker = start("node", "--sandbox", "none", cwd=settings(tmp_path / "n", "http://unused"))
        settings(tmp_path, worker.url)
    arguments = ("serve",) if is_apart else ("serve", *EMBEDDED)
    served = start(*arguments)
    assert served.run("true\n")["id"] == 1
    backup(tmp_path / "db.sqlite", tmp_path / "backup")
    wait = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done" if is_running else "true"
    secret = served.upload(f"echo secret > out; echo a >> {tmp_path}/ledger; {wait}\n", user="1").json["id"]
    if is_running:
        eventually(lambda: served.job(secret)["status"] == "Running")
    else:
        assert served.final(secret)["status"] == "Completed"
    assert served.stop() == 0
    restore(tmp_path / "backup", tmp_path / "db.sqlite")
    served = start(*arguments)
    job = served.run(f"echo mine > out; echo b >> {tmp_path}/ledger\n", user="2")
    assert (job["id"], job["status"]) == (secret, "Completed")
    assert result(served, secret).read("out") == b"mine\n"
    assert (facts(served, secret)["user_id"], facts(served, secret)["id"]) == ("2", secret)
    assert served.get(f"/jobs/{secret}/logs").status == 200
    (tmp_path / "go").touch()
    assert (tmp_path / "ledger").read_text().split() == ["a", "b"], "each was started once"


def test_a_copied_database_shares_a_node_and_no_results(start: Start, tmp_path: Path) -> None:
    """S1-2: a staging copy, with its data, talks to the same node and counts on from the same number."""
    worker = start("node", "--sandbox", "none", cwd=settings(tmp_path / "n", "http://unused"))
    served = start("serve", cwd=settings(tmp_path / "a", worker.url))
    assert served.run("true\n")["id"] == 1
    assert served.stop() == 0
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    servers = [start("serve", cwd=tmp_path / name) for name in "ab"]
    ids = [
        one.upload(f"echo {user} > out\n", user=user).json["id"]
        for one, user in zip(servers, "12", strict=True)
    ]
    assert ids == [2, 2]
    for one, user in zip(servers, "12", strict=True):
        assert one.final(2)["status"] == "Completed"
        assert result(one, 2).read("out") == f"{user}\n".encode()
        assert facts(one, 2)["user_id"] == user


def test_a_restored_queue_finds_what_ran_since(start: Start, tmp_path: Path) -> None:
    """A job that was queued when the database was saved has run since: its result is fetched again."""
    worker = start("node", "--sandbox", "none", cwd=settings(tmp_path / "n", "http://unused"))
    settings(tmp_path, worker.url)
    with (tmp_path / "tenuto.toml").open("a") as file:
        file.write("max_runs = 1\n")
    served = start("serve")
    first = served.upload(f"until [ -e {tmp_path}/go ]; do sleep 0.05; done\n").json["id"]
    second = served.upload(f"echo x >> {tmp_path}/ledger; echo x > out\n").json["id"]
    eventually(lambda: served.job(first)["status"] == "Running")
    backup(tmp_path / "db.sqlite", tmp_path / "backup")
    (tmp_path / "go").touch()
    assert served.final(second)["status"] == "Completed"
    assert served.stop() == 0
    restore(tmp_path / "backup", tmp_path / "db.sqlite")
    served = start("serve")
    assert [served.final(id)["status"] for id in (first, second)] == ["Completed"] * 2
    assert result(served, second).read("out") == b"x\n"
    assert (tmp_path / "ledger").read_text() == "x\n", "it was started once"
