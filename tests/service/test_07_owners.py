"""Whose it is: databases that are restored, copied or mistaken, and the data that outlives them."""

from __future__ import annotations

import io
import json
import os
import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.service.conftest import Tenuto
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


def settings(directory: Path, worker: Process, beside: Path) -> Path:
    """The directory of a server whose jobs run on a node apart, which works in `beside`."""
    directory.mkdir(exist_ok=True)
    secret = beside / "node" / "node.token"
    (directory / "tenuto.toml").write_text(
        f'[nodes.worker]\nurl = "{worker.url}"\ntoken_file = "{secret}"\n'
        '[services.example]\nnodes = ["worker"]\n'
    )
    return directory


def node(start: Start, directory: Path) -> Process:
    directory.mkdir()
    return start("node", "--sandbox", "none", cwd=directory)


def contents(directory: Path) -> set[str]:
    """The files there, but for those that SQLite makes to read a database."""
    found = {str(path.relative_to(directory)) for path in directory.rglob("*")}
    return {name for name in found if not name.endswith(("-wal", "-shm"))}


def refused(tenuto: Tenuto, *arguments: str) -> str:
    ended = tenuto(*arguments, "--port", "0")
    assert ended.returncode == 2, ended
    assert "Traceback" not in ended.stderr
    return ended.stderr


@pytest.mark.parametrize("exists", [False, True], ids=["new", "another's"])
def test_another_database_is_refused_before_anything_is_touched(
    start: Start, tenuto: Tenuto, tmp_path: Path, exists: bool
) -> None:
    """S1-3: a mistyped --db, or a working directory where there is no database, removed all results."""
    served = start("serve", *EMBEDDED)
    ids = [served.run("echo x > out\n")["id"] for _ in range(2)]
    assert served.stop() == 0
    (tmp_path / "other").mkdir()
    if exists:
        other = start("serve", *EMBEDDED, cwd=tmp_path / "other")
        assert other.stop() == 0
    data, before = tmp_path / "data", contents(tmp_path)
    words = refused(tenuto, "serve", *EMBEDDED, "--data", str(data), "--db", "other/db.sqlite")
    assert str(data) in words
    assert (data / "owner").read_text().strip() in words
    if exists:
        assert (tmp_path / "other" / "data" / "owner").read_text().strip() in words
    assert contents(tmp_path) == before, "no file was removed, and none made"
    served = start("serve", *EMBEDDED)
    for id in ids:
        assert result(served, id).read("out") == b"x\n"


def test_data_without_an_owner_is_refused_unless_it_is_empty(
    start: Start, tenuto: Tenuto, tmp_path: Path
) -> None:
    (tmp_path / "data" / "jobs").mkdir(parents=True)
    served = start("serve", *EMBEDDED)
    assert served.run("true\n")["status"] == "Completed"
    assert served.stop() == 0
    database_id = (tmp_path / "data" / "owner").read_text()
    (tmp_path / "data" / "owner").unlink()
    words = refused(tenuto, "serve", *EMBEDDED)
    assert f"write {database_id.strip()} into {tmp_path}/data/owner" in words, "the remedy"
    words = refused(tenuto, "serve", *EMBEDDED, "--db", "fresh.sqlite")
    assert "belongs to the database of other jobs" in words
    (tmp_path / "data" / "owner").write_text(database_id)
    served = start("serve", *EMBEDDED)
    assert served.get("/download/1").status == 200


def test_servers_that_do_not_share_their_data_are_refused(
    start: Start, tenuto: Tenuto, tmp_path: Path, postgresql_url: str
) -> None:
    """S2-11: jobs were Invalid, and results gone, at the other server."""
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "tenuto.toml").write_text('[services.example]\nnodes = ["http://127.0.0.1:9"]\n')
    start("serve", "--db", postgresql_url, cwd=tmp_path / "a")
    data = tmp_path / "b" / "data"
    words = refused(tenuto, "serve", *EMBEDDED, "--db", postgresql_url, "--data", str(data))
    assert "not shared" in words
    assert str(data) in words
    assert contents(data) <= {"node"}
    start("serve", "--db", postgresql_url, "--data", str(tmp_path / "a" / "data"), cwd=tmp_path / "b")


@pytest.mark.parametrize("how", ["other --db", "lost"])
def test_a_node_whose_database_is_another_is_refused(
    start: Start, tenuto: Tenuto, tmp_path: Path, how: str
) -> None:
    """A fresh database would forget the payloads that run here, and never clean what they leave."""
    worker = start("node", "--sandbox", "none")
    served = start("serve", cwd=settings(tmp_path / "s", worker, tmp_path))
    assert served.run("echo x > out\n")["status"] == "Completed"
    assert worker.stop() == 0
    served.kill()
    more = ("--db", "other.sqlite") if how == "other --db" else ()
    if how == "lost":
        for left in (tmp_path / "node").glob("node.sqlite*"):
            left.unlink()
    before = contents(tmp_path)
    words = refused(tenuto, "node", "--sandbox", "none", *more)
    assert str(tmp_path / "node") in words
    assert contents(tmp_path) == before


def test_results_newer_than_a_restored_database_are_kept(start: Start, tmp_path: Path) -> None:
    """S1-3: a restore is no reason to remove what came after it; the right database may be found yet."""
    served = start("serve", *EMBEDDED)
    served.run("true\n")
    backup(tmp_path / "db.sqlite", tmp_path / "backup")
    newer = served.run("echo newer > out\n")["id"]
    queued = served.upload(f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo later > out\n").json["id"]
    eventually(lambda: served.job(queued)["status"] == "Running")
    served.kill()
    backup(tmp_path / "db.sqlite", tmp_path / "newest")
    cut = tmp_path / "data" / "jobs" / ("0" * 32)
    (cut / "files").mkdir(parents=True)
    restore(tmp_path / "backup", tmp_path / "db.sqlite")
    restored = start("serve", *EMBEDDED)
    assert "kept directories=2" in restored.log
    assert f"swept directory={cut.name}" in restored.log
    assert not cut.exists(), "an upload that a kill cut off"
    restored.kill()
    restore(tmp_path / "newest", tmp_path / "db.sqlite")
    served = start("serve", *EMBEDDED)
    (tmp_path / "go").touch()
    assert result(served, newer).read("out") == b"newer\n"
    assert served.final(queued)["status"] == "Completed"
    assert result(served, queued).read("out") == b"later\n"


def test_results_that_no_database_knows_are_swept_when_they_are_old(start: Start, tmp_path: Path) -> None:
    (tmp_path / "tenuto.toml").write_text("[service]\nmax_age_s = 3600\n")
    served = start("serve", *EMBEDDED)
    backup(tmp_path / "db.sqlite", tmp_path / "backup")
    served.run("true\n")
    [directory] = (tmp_path / "data" / "jobs").iterdir()
    assert served.stop() == 0
    os.utime(directory, (1e9, 1e9))
    restore(tmp_path / "backup", tmp_path / "db.sqlite")
    served = start("serve", *EMBEDDED)
    assert f"swept directory={directory.name}" in served.log
    assert not directory.exists()


@pytest.mark.parametrize("is_apart", [False, True], ids=["embedded", "apart"])
@pytest.mark.parametrize("is_running", [False, True], ids=["ended", "running"])
def test_a_restored_database_gives_no_user_the_job_of_another(
    start: Start, tmp_path: Path, is_apart: bool, is_running: bool
) -> None:
    """S1-2: user A's job 2 is newer than the backup; user B's upload has a number of its own."""
    if is_apart:
        settings(tmp_path, node(start, tmp_path / "n"), tmp_path / "n")
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
    assert f"restored numbers_from={secret + 1}" in served.log
    job = served.run(f"echo mine > out; echo b >> {tmp_path}/ledger\n", user="2")
    mine = job["id"]
    assert (mine, job["status"]) == (secret + 1, "Completed")
    assert served.get(f"/download/{secret}").status == 404, "nobody is given it who asks for the old number"
    assert result(served, mine).read("out") == b"mine\n"
    assert (facts(served, mine)["user_id"], facts(served, mine)["id"]) == ("2", mine)
    assert served.get(f"/jobs/{mine}/logs").status == 200
    (tmp_path / "go").touch()
    assert (tmp_path / "ledger").read_text().split() == ["a", "b"], "each was started once"


def test_a_copied_database_shares_a_node_and_no_results(start: Start, tmp_path: Path) -> None:
    """S1-2: a staging copy, with its data, talks to the same node and counts on from the same number."""
    worker = node(start, tmp_path / "n")
    served = start("serve", cwd=settings(tmp_path / "a", worker, tmp_path / "n"))
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
    settings(tmp_path, node(start, tmp_path / "n"), tmp_path / "n")
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
