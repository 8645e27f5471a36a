"""Acceptance 9, 10 and 14: two servers on one PostgreSQL; killed, frozen, and without their database."""

from __future__ import annotations

import io
import itertools
import signal
import threading
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
        f'[services.other]\nnodes = ["{worker.url}"]\nruns_per_user = 3\nmax_runs = 20\n'
        f'[node]\ndata = "{directory}/n/node"\n'
    )
    return worker, [start("serve", "--db", url, cwd=directory) for _ in range(count)]


def ledger(served: Process, id: int) -> bytes:
    return zipfile.ZipFile(io.BytesIO(served.get(f"/download_partial/{id}").body)).read("ledger")


@pytest.mark.parametrize(
    "frozen_s", [0.0, pytest.param(30.0, marks=pytest.mark.prove("a server stands still for half a minute"))]
)
def test_a_server_that_freezes_or_dies_is_taken_over(
    start: Start, tmp_path: Path, postgresql_url: str, frozen_s: float
) -> None:
    """Acceptance 10: the frozen one changes nothing when it comes back; then the other is killed."""
    _, (first, second) = two(start, tmp_path, postgresql_url)
    script = "echo start >> ledger; until [ -e {0} ]; do sleep 0.05; done; echo end >> ledger\n"
    ids = [first.upload(script.format(tmp_path / "go")).json["id"] for _ in range(3)]
    eventually(lambda: all(second.job(id)["status"] == "Running" for id in ids))
    first.signal(signal.SIGSTOP)
    (tmp_path / "go").touch()
    began = time.monotonic()
    assert [second.final(id)["status"] for id in ids] == ["Completed"] * 3
    if frozen_s:
        assert time.monotonic() - began < 20, "how long a take-over takes"
        time.sleep(max(0.0, began + frozen_s - time.monotonic()))
    before = [second.job(id) for id in ids]
    first.signal(signal.SIGCONT)
    late = first.upload("echo late >> ledger\n").json["id"]
    assert second.final(late)["status"] == "Completed"
    assert [second.job(id) for id in ids] == before, "the frozen one changed nothing"
    assert [ledger(second, id) for id in ids] == [b"start\nend\n"] * 3
    waiting = second.upload("sleep 0.5; echo x >> ledger\n").json["id"]
    assert first.get(f"/download/{waiting}?wait=60").status == 200, "what another server moved is heard of"
    killed = second.upload(script.format(tmp_path / "gone")).json["id"]
    eventually(lambda: first.job(killed)["status"] == "Running")
    second.kill()
    (tmp_path / "gone").touch()
    assert first.final(killed)["status"] == "Completed"
    assert ledger(first, killed) == b"start\nend\n"


def test_jobs_of_a_server_that_stopped_are_taken_over(
    start: Start, tmp_path: Path, postgresql_url: str
) -> None:
    """S1-1: a graceful stop of the only server, as of every upgrade; and of one of two."""
    _, (first,) = two(start, tmp_path, postgresql_url, count=1)
    script = f"echo start >> ledger; until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo end >> ledger\n"
    ids = [first.upload(script).json["id"] for _ in range(4)]
    eventually(lambda: all(first.job(id)["status"] == "Running" for id in ids))
    assert first.stop() == 0
    second = start("serve", "--db", postgresql_url, cwd=tmp_path)
    third = start("serve", "--db", postgresql_url, cwd=tmp_path)
    eventually(lambda: "taken_over=4" in second.log, timeout_s=20)
    assert second.stop() == 0
    eventually(lambda: "taken_over=4" in third.log, timeout_s=20)
    assert third.post(f"/terminate/{ids[3]}").status in (200, 202)
    assert third.final(ids[3])["status"] == "Killed"
    (tmp_path / "go").touch()
    assert [third.final(id)["status"] for id in ids[:3]] == ["Completed"] * 3
    assert [ledger(third, id) for id in ids[:3]] == [b"start\nend\n"] * 3


@pytest.mark.parametrize(
    "uploads", [16, pytest.param(50, marks=pytest.mark.prove("fifty uploads at once, of each service"))]
)
def test_quotas_hold_for_servers_together(
    start: Start, tmp_path: Path, postgresql_url: str, uploads: int
) -> None:
    """Acceptance 14: uploads at once at a limit of 5, counted by the payloads themselves; services apart."""
    _, servers = two(start, tmp_path, postgresql_url)
    now = f"{tmp_path}/now-$JOB_SERVICE"
    script = f"mkdir -p {now}; touch {now}/$JOB_ID; ls {now} | wc -l > seen; sleep 0.1; rm {now}/$JOB_ID\n"

    def upload(n: int) -> int:
        answer = servers[n % 2].upload(script, service="example" if n < uploads else "other")
        assert answer.status == 201, answer
        return int(answer.json["id"])

    with ThreadPoolExecutor(25) as pool:
        ids = list(pool.map(upload, range(uploads + uploads // 2)))
    seen: dict[str, list[int]] = {"example": [], "other": []}
    for id in ids:
        job = servers[0].final(id, timeout_s=60 + uploads)
        assert job["status"] == "Completed"
        made = zipfile.ZipFile(io.BytesIO(servers[1].get(f"/download/{id}").body))
        seen[job["service"]].append(int(made.read("seen")))
    assert max(seen["example"]) <= 5
    assert max(seen["other"]) <= 3


@pytest.mark.watchdog(600)
@pytest.mark.parametrize(
    "strikes", [2, pytest.param(15, marks=pytest.mark.prove("a strike every two seconds, for half a minute"))]
)
def test_a_database_that_restarts_loses_nothing(
    start: Start, tmp_path: Path, require: Callable[[str], None], strikes: int
) -> None:
    """Acceptance 9: PostgreSQL is restarted, its backends are killed, under load: 201 or 503, none lost."""
    require("postgresql")
    database = PostgreSQL()
    accepted: list[tuple[int, int]] = []
    codes: set[int] = set()
    struck = threading.Event()

    def load(first: int) -> None:
        for n in itertools.count(first, 4):
            answer = served.upload(f"echo {n} >> ledger\n", user=str(n))
            codes.add(answer.status)
            if answer.status == 201:
                accepted.append((n, answer.json["id"]))
            codes.add(served.get("/jobs?limit=1").status)
            if struck.is_set():
                return

    def strike() -> None:
        for n in range(strikes):
            if n % 2:
                database.restart()
            else:
                database.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tenuto'"
                )
            if strikes > 2:
                time.sleep(2)

    try:
        with database.database() as url, ThreadPoolExecutor(5) as pool:
            _, (served,) = two(start, tmp_path, url, count=1)
            loading = [pool.submit(load, n) for n in range(4)]
            eventually(lambda: len(accepted) > 2)
            try:
                strike()
            finally:
                struck.set()
            for one in loading:
                one.result(120)
            assert codes <= {200, 201, 503}
            for n, id in accepted:
                assert served.final(id, timeout_s=120)["status"] == "Completed"
                assert ledger(served, id) == f"{n}\n".encode()
            served.stop()
    finally:
        database.end()
