"""What users took, and what one user may have: usage, limits of users and tokens, figures of nodes."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenuto.database import Database, migrate, now_ms
from tenuto.lifecycle.service import ServiceState
from tenuto.service.access import Scope, Tokens
from tenuto.service.decisions import Quota
from tenuto.service.requests import Requests, TooManyBytes
from tenuto.service.rows import NewJob, UserLimits
from tenuto.service.tables import MIGRATIONS, jobs
from tenuto.service.usage import BY, used
from tests.service.asgi import ask, make_server, run
from tests.service.conftest import Tenuto
from tests.service.multipart import CONTENT_TYPE, body, field, file, good
from tests.service.servers import Process, eventually

Start = Callable[..., Process]
S = ServiceState
BUSY = "python3 -c 'x = bytearray(60_000_000); sum(range(3_000_000))'\nhead -c 5000 /dev/urandom > out\n"


@pytest.mark.parametrize("is_apart", [False, True], ids=["embedded", "apart"])
def test_a_job_says_what_it_took_and_usage_adds_it_up(is_apart: bool, start: Start, tmp_path: Path) -> None:
    if is_apart:
        node = start("node", "--sandbox", "none")
        (tmp_path / "tenuto.toml").write_text(f'[services.example]\nnodes = ["{node.url}"]\n')
        server = start("serve")
    else:
        server = start("serve", "--with-node", "--sandbox", "none")
    first = server.run(BUSY, files={"in": bytes(1000)})
    assert (first["status"], first["bytes_in"]) == ("Completed", 1000 + len(BUSY))
    assert 0 < first["cpu_s"] < 30
    assert 60e6 < first["memory_peak"] < 1e9
    failed = server.run("exit 3\n", user="2")
    assert failed["status"] == "Failed"
    assert failed["cpu_s"] > 0

    (both,) = server.get("/usage?by=service").json["usage"]
    assert (both["service"], both["user"], both["month"], both["jobs"]) == ("example", None, None, 2)
    assert both["cpu_s"] == pytest.approx(first["cpu_s"] + failed["cpu_s"], abs=0.01)
    assert both["bytes_out"] == first["result_bytes"] + failed["result_bytes"]
    assert both["memory_peak"] == first["memory_peak"]
    month = first["ended_at"][:7]
    all_of_it = server.get("/usage").json["usage"]
    assert [(one["user"], one["service"], one["month"]) for one in all_of_it] == [
        ("1", "example", month),
        ("2", "example", month),
    ]
    assert server.get("/usage?by=color").json["error"] == "bad_parameter"


def filled(requests: Requests, database: Database, user: str, count: int, ended_ms: int) -> None:
    """So many jobs of a user that ended at an instant, and whose files are gone."""
    for n in range(count):
        requests.add(NewJob(user, "s", f"{user}{ended_ms}{n}", bytes_in=10))
    for row in requests.claim("s", Quota(1000, 1000), [None] * count):
        moved = requests.move(row, S.FAILED, cpu_s=1.5, memory_peak=row.id, result_bytes=100)
        assert moved is not None
        requests.move(moved, S.CLEANED)
    change = jobs.update().where(jobs.c.user_id == user, jobs.c.ended_at > ended_ms)
    database.write(lambda connection: connection.execute(change.values(ended_at=ended_ms)))


def test_forgotten_jobs_count_for_usage(database_url: str) -> None:
    database = Database(database_url)
    migrate(database, MIGRATIONS)
    requests = Requests(database, "me")
    filled(requests, database, "ada", 3, 1_704_067_199_999)  # the last millisecond of 2023
    filled(requests, database, "bob", 2, 1_704_067_200_000)

    def told(*by: str) -> list[Any]:
        return database.read(lambda connection: used(connection, by))

    before = [told(*by) for by in (BY, ("user",), ("month",), ())]
    assert [(one.user, one.month, one.jobs, one.cpu_s) for one in before[0]] == [
        ("ada", "2023-12", 3, 4.5),
        ("bob", "2024-01", 2, 3.0),
    ]
    assert [(one.jobs, one.bytes_in, one.bytes_out) for one in before[3]] == [(5, 50, 500)]
    assert [requests.forget(1000, 2) for _ in range(4)] == [2, 2, 1, 0]
    assert [told(*by) for by in (BY, ("user",), ("month",), ())] == before
    filled(requests, database, "ada", 1, 1_704_067_199_999)
    assert told("user")[0].jobs == 4
    assert requests.forget(1000, 2) == 1
    assert (told("user")[0].jobs, told("user")[0].bytes_in) == (4, 40)
    database.close()


def test_the_age_of_a_queue_is_that_of_its_oldest_job(database_url: str) -> None:
    database = Database(database_url)
    migrate(database, MIGRATIONS)
    requests = Requests(database, "me")
    for n, service in enumerate("aab"):
        requests.add(NewJob("1", service, f"d{n}"))
    change = jobs.update().where(jobs.c.id == 1).values(created_at=now_ms() - 60_000)
    database.write(lambda connection: connection.execute(change))
    ages = requests.queue_ages()
    assert 60 <= ages["a"] < 90
    assert ages["b"] < 30
    database.close()


def test_usage_is_a_command(tenuto: Tenuto, tmp_path: Path) -> None:
    assert tenuto("usage").returncode == 3
    assert list(tmp_path.iterdir()) == []
    database = Database(str(tmp_path / "db.sqlite"))
    migrate(database, MIGRATIONS)
    filled(Requests(database, "me"), database, "ada", 2, 1_704_067_200_000)
    database.close()
    rows = list(csv.DictReader(io.StringIO(tenuto("usage", "--by", "user,service,month", "--csv").stdout)))
    assert [(row["user"], row["service"], row["month"], row["jobs"]) for row in rows] == [
        ("ada", "s", "2024-01", "2")
    ]
    assert json.loads(tenuto("usage", "--by", "month", "--json").stdout) == [
        {"month": "2024-01", "jobs": 2, "cpu_s": 3.0, "memory_peak": 2, "bytes_in": 20, "bytes_out": 200}
    ]
    assert "ada" in tenuto("usage").stdout
    assert tenuto("usage", "--by", "color").returncode == 2
    assert tenuto("usage", "--csv", "--json").returncode == 2


def test_a_user_may_store_so_many_bytes(tmp_path: Path) -> None:
    server = make_server(tmp_path, stored_bytes_per_user=1000)
    app, requests = server.app(), server.parts.requests

    def upload(size: int, user: str = "1") -> Any:
        sent = body(field("user_id", user), field("service", "example"), file("run.sh", b"x" * size))
        return run(ask(app, "POST", "/upload", {"content-type": CONTENT_TYPE}, sent))

    assert upload(600).status == 201
    refused = upload(401)
    assert (refused.status, refused.json["error"]) == (507, "quota_bytes")
    assert len(list((tmp_path / "data" / "jobs").iterdir())) == 1
    assert upload(900, user="2").status == 201
    (row, _) = requests.claim("example", Quota(5, 5), ["absent"] * 5)
    moved = requests.move(row, S.FAILED, result_bytes=700)
    assert moved is not None
    assert upload(301).status == 507, "its result counts now"
    assert upload(300).status == 201
    requests.move(moved, S.CLEANED)
    assert upload(700).status == 201


def test_uploads_at_once_pass_no_limit(database_url: str) -> None:
    database = Database(database_url)
    migrate(database, MIGRATIONS)
    requests, passed = Requests(database, "me"), []

    async def add(n: int) -> None:
        try:
            new = NewJob("1", "s", f"d{n}", bytes_in=300)
            passed.append(await asyncio.to_thread(requests.add, new, UserLimits(stored_bytes=1000)))
        except TooManyBytes:
            pass

    async def main() -> None:
        await asyncio.gather(*(add(n) for n in range(12)))

    run(main())
    assert len(passed) == 3
    database.close()


def test_a_token_has_limits_of_its_own(tmp_path: Path) -> None:
    server = make_server(tmp_path, auth="tokens", queued_per_user=1, stored_bytes_per_user=10)
    app, both = server.app(), frozenset({Scope.SUBMIT, Scope.READ})
    made = Tokens(server.database)
    plain = made.create("ada", both, None)[1]
    more = made.create("bob", both, None, limits=UserLimits(queued=2, stored_bytes=10_000))[1]

    def upload(token: str) -> Any:
        headers = {"content-type": CONTENT_TYPE, "authorization": f"Bearer {token}"}
        sent = body(field("service", "example"), file("run.sh", b"x" * 50))
        return run(ask(app, "POST", "/upload", headers, sent))

    assert upload(plain).json["error"] == "quota_bytes"
    assert [upload(more).status for _ in range(3)] == [201, 201, 429]
    row = server.parts.requests.get(1)
    assert row is not None
    assert row.token_id == 2


def test_a_user_has_so_many_requests_at_once(tmp_path: Path) -> None:
    server = make_server(tmp_path, auth="tokens", connections_per_user=2)
    app, made = server.app(), Tokens(server.database)
    both = frozenset({Scope.SUBMIT, Scope.READ})
    tokens = {
        "ada": made.create("ada", both, None)[1],
        "bob": made.create("bob", both, None, limits=UserLimits(connections=3))[1],
        "web": made.create("web", frozenset({Scope.FRONT}), None)[1],
    }

    async def asked(user: str, path: str, method: str = "GET", sent: bytes = b"") -> Any:
        headers = {"authorization": f"Bearer {tokens[user]}", "content-type": CONTENT_TYPE}
        return await ask(app, method, path, headers, sent)

    async def codes(user: str, count: int) -> list[int]:
        path = "/jobs/1?wait=1" if user != "bob" else "/jobs/2?wait=1"
        return sorted(
            [reply.status for reply in await asyncio.gather(*(asked(user, path) for _ in range(count)))]
        )

    async def main() -> None:
        sent = body(field("service", "example"), file("run.sh"))
        for user in ("ada", "bob"):
            assert (await asked(user, "/upload", "POST", sent)).status == 201
        assert await codes("ada", 4) == [200, 200, 429, 429]
        assert await codes("ada", 2) == [200, 200], "those that ended count no more"
        assert await codes("bob", 4) == [200, 200, 200, 429]
        assert await codes("web", 5) == [200] * 5
        for path in ("/jobs/9", "/jobs/x", "/download_partial/1", "/nothing"):
            await asked("ada", path)
        assert await codes("ada", 2) == [200, 200], "refusals and errors end, too"
        assert not app._app.state.front._under_way

    run(main())


def test_limits_of_a_token_are_listed(tenuto: Tenuto) -> None:
    made = tenuto(
        "token", "create", "--user", "a", "--queued", "5", "--stored-bytes", "2G", "--connections", "7"
    )
    assert made.returncode == 0
    (one,) = json.loads(tenuto("token", "list", "--json").stdout)
    assert (one["queued"], one["stored_bytes"], one["connections"]) == (5, 2 << 30, 7)
    assert tenuto("token", "create", "--user", "a", "--stored-bytes", "much").returncode == 2


def test_a_node_has_figures(start: Start, tmp_path: Path) -> None:
    (tmp_path / "tenuto.toml").write_text("[node]\nslots = 1\n")
    node = start("node", "--sandbox", "none")
    (tmp_path / "serving").mkdir()
    secret = tmp_path / "node" / "node.token"
    (tmp_path / "serving" / "tenuto.toml").write_text(
        f'[nodes.far]\nurl = "{node.url}"\ntoken_file = "{secret}"\n[services.example]\nnodes = ["far"]\n'
    )
    server = start("serve", cwd=tmp_path / "serving")
    release = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done\n"
    numbers = [server.upload(release).json["id"] for _ in range(2)]

    def figures(of: Process = node) -> dict[str, float]:
        lines = of.get("/metrics").body.decode().splitlines()
        return {
            name: float(value)
            for name, _, value in (line.rpartition(" ") for line in lines)
            if "#" not in name
        }

    eventually(lambda: figures()['tenuto_node_payloads{state="Prepared"}'] == 1)
    eventually(lambda: figures()['tenuto_node_payloads{state="Running"}'] == 1)
    eventually(lambda: figures()["tenuto_node_queue_age_seconds"] > 0)
    assert figures()["tenuto_node_slots"] == 1
    assert figures()["tenuto_node_takes"] == 1
    assert figures()["tenuto_node_disk_free_bytes"] > 0
    assert node.request("POST", "/submit", good(), {"Content-Type": CONTENT_TYPE}).status == 401
    token = {"Authorization": f"Bearer {secret.read_text().strip()}", "Content-Type": CONTENT_TYPE}
    assert node.request("POST", "/submit", b"nothing", token).status == 400
    assert figures()['tenuto_node_refusals_total{why="bad_multipart"}'] == 1
    eventually(lambda: figures(server)['tenuto_service_node_slots{node="far"}'] == 1)
    waiting = [server.upload(release).json["id"] for _ in range(3)]
    eventually(lambda: figures(server)['tenuto_service_queue_age_seconds{service="example"}'] > 0)
    assert figures(server)["tenuto_service_disk_free_bytes"] > 0
    (tmp_path / "go").touch()
    for number in numbers + waiting:
        assert server.final(number)["status"] == "Completed"
    assert figures(server)['tenuto_service_bytes_total{direction="in"}'] == 5 * len(release)


def test_new_limits_of_a_service_hold_on_the_node_inside(start: Start, tmp_path: Path) -> None:
    settings = tmp_path / "tenuto.toml"
    settings.write_text("[services.example]\n")
    server = start("serve", "--with-node", "--sandbox", "none")
    settings.write_text(
        "[service]\nqueued_per_user = 1\n[services.example]\n[services.brief]\nwalltime_s = 0.5\n"
    )
    server.signal(signal.SIGHUP)
    eventually(lambda: " reloaded " in server.log)
    assert server.run("sleep 60\n", service="brief")["status"] == "Failed"


def test_new_limits_hold_on_a_node_of_its_own(start: Start, tmp_path: Path) -> None:
    (tmp_path / "n").mkdir()
    node = start("node", "--sandbox", "none", cwd=tmp_path / "n")
    (tmp_path / "tenuto.toml").write_text(
        f'[nodes.far]\nurl = "{node.url}"\ntoken_file = "{tmp_path}/n/node/node.token"\n'
        '[services.example]\nnodes = ["far"]\n'
    )
    server = start("serve")
    (tmp_path / "n" / "tenuto.toml").write_text("[services.example]\nwalltime_s = 'long'\n")
    node.signal(signal.SIGHUP)
    eventually(lambda: " reload_failed " in node.log)
    (tmp_path / "n" / "tenuto.toml").write_text("[services.example]\nwalltime_s = 0.5\n")
    node.signal(signal.SIGHUP)
    eventually(lambda: " reloaded " in node.log)
    assert server.run("sleep 60\n")["status"] == "Failed"


@pytest.mark.parametrize("by_url", [False, True], ids=["by name", "by URL"])
def test_a_node_that_left_the_settings_is_asked_by_a_server_that_starts_later(
    by_url: bool, start: Start, tmp_path: Path
) -> None:
    node = start("node", "--sandbox", "none")
    secret = f'token_file = "{tmp_path}/node/node.token"\n'
    named = f'[nodes.far]\nurl = "{node.url}"\n{secret}[services.example]\nnodes = ["far"]\n'
    if by_url:
        named = f'[services.example]\nnodes = ["{node.url}"]\n'
    (tmp_path / "tenuto.toml").write_text(named)
    server = start("serve")
    release = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo done > out\n"
    number = server.upload(release).json["id"]
    eventually(lambda: server.job(number)["status"] == "Running")
    server.kill()
    (tmp_path / "tenuto.toml").write_text("[services.example]\n")
    server = start("serve", "--with-node", "--sandbox", "none")
    assert " node_left " in server.log
    (tmp_path / "go").touch()
    ended = server.final(number)
    assert (ended["status"], ended["message"]) == ("Completed", "")
    assert server.run("true\n")["node"] == "local", "it gets no jobs"
    eventually(lambda: f'{{node="{ended["node"]}"}}' not in server.get("/metrics").body.decode())


def test_figures_tell_of_no_service_and_no_node_that_is_gone(start: Start, tmp_path: Path) -> None:
    """They were told as they had been last: of a node that was taken out, that it is down, for ever."""
    settings = tmp_path / "tenuto.toml"
    settings.write_text(
        '[nodes.far]\nurl = "http://127.0.0.1:9"\n[services.old]\nnodes = ["far"]\n[services.new]\n'
    )
    server = start("serve", "--with-node", "--sandbox", "none")
    waiting = server.upload("true\n", service="old").json["id"]
    told = {'_node_up{node="far"}', '_node_slots{node="far"}'}
    assert all(name in server.get("/metrics").body.decode() for name in told)
    settings.write_text("[services.new]\n")
    server.signal(signal.SIGHUP)
    eventually(lambda: not any(name in server.get("/metrics").body.decode() for name in told))
    assert '_jobs{service="old",state="Queued"} 1.0' in server.get("/metrics").body.decode(), "it waits still"
    assert server.run("true\n", service="new")["status"] == "Completed"
    assert server.post(f"/terminate/{waiting}").status == 200
    assert '_queue_age_seconds{service="old"} 0.0' in server.get("/metrics").body.decode()
    assert "stage_failed" not in server.log
