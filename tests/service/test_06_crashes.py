"""Acceptance 6 in small, and the drain: a server with a node is killed, and nothing is lost or run twice."""

from __future__ import annotations

import io
import signal
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.service.servers import Process, eventually

Start = Callable[..., Process]
EMBEDDED = ("--with-node", "--sandbox", "none")


def ledger(server: Process, id: int) -> list[bytes]:
    made = zipfile.ZipFile(io.BytesIO(server.get(f"/download_partial/{id}").body))
    return made.read("ledger").split()


@pytest.mark.slow
def test_a_server_that_is_killed_goes_on_where_it_was(start: Start, tmp_path: Path) -> None:
    """H15: jobs queued, running and ended while the server is away; each is started once."""
    (tmp_path / "tenuto.toml").write_text("[services.example]\nruns_per_user = 2\n[node]\nslots = 4\n")
    server = start("serve", *EMBEDDED)
    script = "echo start >> ledger; while [ ! -e {0} ]; do sleep 0.05; done; echo end >> ledger\n"
    flags = [tmp_path / f"go{n}" for n in range(4)]
    ids = [server.upload(script.format(flag)).json["id"] for flag in flags]
    eventually(lambda: [server.job(id)["status"] for id in ids[:2]] == ["Running", "Running"])
    server.kill()
    flags[0].touch()  # ends while there is no server
    server = start("serve", *EMBEDDED)
    assert server.final(ids[0])["status"] == "Completed"
    assert server.job(ids[1])["status"] == "Running"
    for flag in flags[1:]:
        flag.touch()
    for id in ids:
        assert server.final(id)["status"] == "Completed"
        assert ledger(server, id) == [b"start", b"end"]
    assert server.stop() == 0


@pytest.mark.slow
def test_a_server_that_is_asked_to_stop_leaves_its_payloads_running(start: Start, tmp_path: Path) -> None:
    """H29: SIGINT drains, exit code 0; the next start adopts."""
    server = start("serve", *EMBEDDED)
    id = server.upload(f"echo start >> ledger; until [ -e {tmp_path}/go ]; do sleep 0.05; done\n").json["id"]
    eventually(lambda: server.job(id)["status"] == "Running")
    server.signal(signal.SIGINT)
    assert server.stop() == 0
    for action in ("draining", "stopped"):
        assert f" info {action}" in server.log
    assert "Traceback" not in server.log
    server = start("serve", *EMBEDDED)
    assert server.job(id)["status"] in ("Submitted", "Running")
    (tmp_path / "go").touch()
    assert server.final(id)["status"] == "Completed"
    assert ledger(server, id) == [b"start"]
    assert server.post(f"/terminate/{id}").status == 409


@pytest.mark.slow
def test_old_results_are_cleaned(start: Start, tmp_path: Path) -> None:
    (tmp_path / "tenuto.toml").write_text("[service]\nmax_age_s = 1\n[node]\nmax_age_s = 1\n")
    server = start("serve", *EMBEDDED)
    id = server.run("true\n")["id"]
    eventually(lambda: server.job(id)["status"] == "Cleaned")
    answer = server.get(f"/download/{id}")
    assert (answer.status, answer.json["status"]) == (410, "Cleaned")
    assert server.get(f"/download_partial/{id}").json["error"] == "cleaned"
    eventually(lambda: not list((tmp_path / "data" / "jobs").iterdir()))
    assert server.stop() == 0
    with sqlite3.connect(tmp_path / "db.sqlite") as database:
        states = [row[0] for row in database.execute("SELECT state FROM moves ORDER BY id")]
    database.close()
    assert states[-1] == "Cleaned"
