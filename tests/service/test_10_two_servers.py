"""Acceptance 9, 10 and 14: two servers on one PostgreSQL; killed, frozen, and without their database."""

from __future__ import annotations

import io
import signal
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.parts.postgresql import PostgreSQL
from tests.service.servers import Process, eventually

Start = Callable[..., Process]
pytestmark = pytest.mark.slow


def two(start: Start, directory: Path, url: str, count: int = 2) -> tuple[Process, list[Process]]:
    """A node, and servers that share a database and a data directory."""
    (directory / "n").mkdir()
    (directory / "n" / "tenuto.toml").write_text("[node]\nslots = 8\n")
    worker = start("node", "--sandbox", "none", cwd=directory / "n")
    (directory / "tenuto.toml").write_text(
        f'[service]\ndata = "{directory}/data"\n'
        f'[services.example]\nnodes = ["{worker.url}"]\nruns_per_user = 5\nmax_runs = 20\n'
    )
    return worker, [start("serve", "--db", url, cwd=directory) for _ in range(count)]


def ledger(served: Process, id: int) -> bytes:
    return zipfile.ZipFile(io.BytesIO(served.get(f"/download_partial/{id}").body)).read("ledger")


def test_a_server_that_dies_or_freezes_is_taken_over(
    start: Start, tmp_path: Path, postgresql_url: str
) -> None:
    _, (first, second) = two(start, tmp_path, postgresql_url)
    script = "echo start >> ledger; until [ -e {0} ]; do sleep 0.05; done; echo end >> ledger\n"
    ids = [first.upload(script.format(tmp_path / "go")).json["id"] for _ in range(3)]
    eventually(lambda: all(second.job(id)["status"] == "Running" for id in ids))
    first.signal(signal.SIGSTOP)
    (tmp_path / "go").touch()
    began = time.monotonic()
    for id in ids:
        assert second.final(id)["status"] == "Completed"
    assert time.monotonic() - began < 40
    before = [second.job(id) for id in ids]
    first.signal(signal.SIGCONT)
    late = first.upload("echo late >> ledger\n").json["id"]
    assert second.final(late)["status"] == "Completed"
    assert [second.job(id) for id in ids] == before, "the frozen one changed nothing"
    for id in ids:
        assert ledger(second, id) == b"start\nend\n"
    waiting = second.upload("sleep 0.5; echo x >> ledger\n").json["id"]
    assert first.get(f"/download/{waiting}?wait=30").status == 200, "what another server moved is heard of"


def test_quotas_hold_for_servers_together(start: Start, tmp_path: Path, postgresql_url: str) -> None:
    """Acceptance 14, in small: counted by the payloads themselves."""
    _, servers = two(start, tmp_path, postgresql_url)
    script = (
        f"mkdir -p {tmp_path}/now; touch {tmp_path}/now/$JOB_ID; ls {tmp_path}/now | wc -l > seen; "
        f"sleep 0.1; rm {tmp_path}/now/$JOB_ID\n"
    )
    ids = [servers[n % 2].upload(script).json["id"] for n in range(16)]
    seen = []
    for id in ids:
        assert servers[0].final(id)["status"] == "Completed"
        made = zipfile.ZipFile(io.BytesIO(servers[1].get(f"/download/{id}").body))
        seen.append(int(made.read("seen")))
    assert max(seen) <= 5


@pytest.mark.watchdog(300)
def test_a_database_that_restarts_loses_nothing(
    start: Start, tmp_path: Path, require: Callable[[str], None]
) -> None:
    """Acceptance 9, in small: PostgreSQL is restarted under load; uploads are answered 201 or 503."""
    require("postgresql")
    database = PostgreSQL()
    try:
        with database.database() as url:
            _, (served,) = two(start, tmp_path, url, count=1)
            accepted, codes = [], set()
            for n in range(12):
                if n in (3, 8):
                    database.restart()
                answer = served.upload(f"echo {n} >> ledger\n", user=str(n))
                codes.add(answer.status)
                if answer.status == 201:
                    accepted.append((n, answer.json["id"]))
            assert codes <= {201, 503}
            assert accepted
            for n, id in accepted:
                assert served.final(id)["status"] == "Completed"
                assert ledger(served, id) == f"{n}\n".encode()
            served.stop()
    finally:
        database.end()
