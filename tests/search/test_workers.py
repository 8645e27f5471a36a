"""Workers: processes of their own, with PostgreSQL and Redis, that are drained, killed and frozen."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tenuto.search.dramatiq_queue import DramatiqQueue
from tenuto.settings import Url
from tests.parts.postgresql import PostgreSQL
from tests.parts.rabbitmq import RabbitMQ
from tests.parts.redis import Redis
from tests.search.theatre import LEASE_S, Theatre, overlaps, taken_over


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["redis", pytest.param("rabbitmq", marks=pytest.mark.prove("the same with the other broker"))]
)
def test_8_workers_lose_nothing_whatever_happens_to_the_broker(
    stage: Callable[..., Theatre], request: pytest.FixtureRequest, kind: str
) -> None:
    broker: Redis | RabbitMQ = request.getfixturevalue(kind)
    theatre = stage(broker.url)
    scheduler = theatre.evolve(24, 0.2)
    workers = [theatre.worker("--slots", "2") for _ in range(2)]
    theatre.until(lambda rows: any(row["started"] for row in rows))
    broker.empty()
    queue = DramatiqQueue(Url(broker.url), "tenuto")
    for row in [*reversed(theatre.rows()), *theatre.rows()]:  # late, repeated and out of order
        queue.send(row["id"])
    queue.close()
    theatre.until(lambda rows: sum(row["status"] == "SUCCEEDED" for row in rows) >= 6)
    broker.stop()
    theatre.until(lambda rows: theatre.moved("could not be sent") or scheduler.poll() is not None)
    broker.start()
    _, said = scheduler.communicate(timeout=90)
    assert scheduler.returncode == 0, said
    assert "slow: ended (TOTAL): 24 candidates, 24 succeeded" in said
    assert len(theatre.noted("start")) == len(theatre.noted("end")) == 24
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=90)
        assert worker.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["redis", pytest.param("rabbitmq", marks=pytest.mark.prove("the same with the other broker"))]
)
@pytest.mark.parametrize("limit_ms", [None, pytest.param(5000, marks=pytest.mark.prove("it measures time"))])
def test_8_sends_succeed_once_the_broker_is_back(
    stage: Callable[..., Theatre], request: pytest.FixtureRequest, kind: str, limit_ms: int | None
) -> None:
    broker: Redis | RabbitMQ = request.getfixturevalue(kind)
    theatre = stage(broker.url)
    broker.stop()
    theatre.evolve(6, 0)
    theatre.until(lambda rows: len(rows) == 6 and theatre.moved("could not be sent"))
    broker.start()
    back_ms = theatre.now_ms()
    theatre.until(lambda rows: [row["status"] for row in rows] == ["QUEUED"] * 6)
    last = {move.number: move for move in theatre.moves()}
    if limit_ms is not None:
        assert max(move.at_ms for move in last.values()) - back_ms < limit_ms
    theatre.worker("--slots", "2", "--once").communicate(timeout=90)
    assert [row["status"] for row in theatre.rows()] == ["SUCCEEDED"] * 6


@pytest.mark.slow
@pytest.mark.parametrize("limit_ms", [None, pytest.param(3000, marks=pytest.mark.prove("it measures time"))])
def test_24_a_worker_told_twice_stops_its_payloads_and_gives_its_rows_back(
    stage: Callable[..., Theatre], limit_ms: int | None
) -> None:
    theatre = stage()
    theatre.hold()
    theatre.evolve(3, 0)
    first = theatre.worker("--slots", "3")
    theatre.until(lambda rows: len(theatre.noted("start")) == 3)
    theatre.worker("--slots", "3", workspace="other")
    first.send_signal(signal.SIGTERM)
    assert first.stderr is not None
    assert "nothing more is claimed" in first.stderr.readline()
    first.send_signal(signal.SIGTERM)
    _, said = first.communicate(timeout=90)
    assert first.returncode == 0, said
    theatre.until(lambda rows: len(theatre.noted("start")) == 6)
    theatre.let_go()
    theatre.until(lambda rows: [row["status"] for row in rows] == ["SUCCEEDED"] * 3)
    assert [row["attempt"] for row in theatre.rows()] == [1, 1, 1], "to be given back costs no attempt"
    moves = theatre.moves()
    given_back = {move.number: move.at_ms for move in moves if move.message == "given back"}
    claimed = {move.number: move.at_ms for move in moves if move.status == "RUNNING"}  # the last time
    assert sorted(given_back) == [1, 2, 3]
    stopped = [float(line[2]) for line in theatre.noted("alive") if "/workspace/" in line[3]]
    assert max(stopped) * 1000 <= min(given_back.values()), "payloads end before rows go back"
    assert overlaps(theatre) == []
    assert len(theatre.noted("end")) == 3
    if limit_ms is not None:
        assert max(claimed[number] - given_back[number] for number in given_back) < limit_ms


@pytest.mark.slow
def test_24_a_worker_that_is_asked_to_end_waits_for_its_payloads(stage: Callable[..., Theatre]) -> None:
    theatre = stage()
    theatre.hold()
    theatre.evolve(2, 0)
    worker = theatre.worker("--slots", "1")
    theatre.until(lambda rows: len(theatre.noted("alive")) > 0)
    worker.send_signal(signal.SIGTERM)
    theatre.let_go()
    _, said = worker.communicate(timeout=90)
    assert worker.returncode == 0, said
    assert len(theatre.noted("start")) == len(theatre.noted("end")), "what ran was waited for"


@pytest.mark.slow
def test_10_a_frozen_workers_payload_ends_before_another_machine_begins(
    stage: Callable[..., Theatre],
) -> None:
    theatre = stage(TENUTO_SEARCH__LEASE_S=LEASE_S)
    theatre.hold()
    theatre.evolve(1, 0)
    frozen = theatre.worker("--slots", "1", workspace="mine")
    theatre.until(lambda rows: bool(theatre.noted("alive")))
    frozen.send_signal(signal.SIGSTOP)
    theatre.worker("--slots", "1", workspace="other")
    taken_over(theatre)
    frozen.send_signal(signal.SIGCONT)
    frozen.send_signal(signal.SIGTERM)
    _, said = frozen.communicate(timeout=90)  # by then it wrote whatever it had to write
    assert frozen.returncode == 0, said
    (row,) = theatre.rows()
    assert (row["status"], row["attempt"], row["cost"]) == ("SUCCEEDED", 2, 1.0)


@pytest.mark.prove("it waits until a lease is over")
def test_10_a_frozen_workers_job_is_adopted_on_the_same_workspace(stage: Callable[..., Theatre]) -> None:
    theatre = stage(TENUTO_SEARCH__LEASE_S="20")
    theatre.hold()
    theatre.evolve(1, 0)
    frozen = theatre.worker("--slots", "1")
    theatre.until(lambda rows: bool(theatre.noted("alive")))
    theatre.worker("--slots", "1")  # keeps the leases of the workspace fresh, so that payloads live
    frozen.send_signal(signal.SIGSTOP)
    theatre.until(lambda rows: rows[0]["attempt"] == 2)
    theatre.let_go()
    theatre.until(lambda rows: rows[0]["order"] is not None)
    (before,) = theatre.rows()
    assert before["status"] == "SUCCEEDED"
    frozen.send_signal(signal.SIGCONT)
    frozen.send_signal(signal.SIGTERM)
    _, said = frozen.communicate(timeout=90)  # by then it wrote whatever it had to write
    assert frozen.returncode == 0, said
    assert theatre.rows() == [before], "what the old attempt writes has no effect"
    assert f"-{frozen.pid}-" not in before["worker"]
    assert len(theatre.noted("start")) == len(theatre.noted("end")) == 1, "one payload, adopted"


@pytest.mark.slow
def test_58_a_killed_workers_jobs_are_adopted_on_its_workspace(stage: Callable[..., Theatre]) -> None:
    # Runners end payloads half a lease after their worker: longer than any machine needs to start another.
    theatre = stage(TENUTO_SEARCH__LEASE_S="600")
    theatre.hold()
    theatre.evolve(2, 0)
    first = theatre.worker("--slots", "2")
    theatre.until(lambda rows: len(theatre.noted("start")) == 2)
    first.kill()
    theatre.worker("--slots", "2")
    theatre.let_go()
    theatre.until(lambda rows: all(row["status"] == "SUCCEEDED" for row in rows))
    assert len(theatre.noted("start")) == len(theatre.noted("end")) == 2


PASSWORD = "geheim-4711"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("total", "looks"), [(14, 1), pytest.param(300, 1000, marks=pytest.mark.prove("a thousand looks"))]
)
def test_4_9_35_two_whole_searches_side_by_side_while_their_database_restarts(
    tmp_path: Path, postgresql: PostgreSQL, postgresql_url: str, total: int, looks: int
) -> None:
    name = urlsplit(postgresql_url).path.lstrip("/")
    theatre = Theatre(tmp_path, postgresql.url_of(name, PASSWORD), None)
    arguments = ("evolve", "--slots", "2", "slow.py", str(total), "0.1", str(theatre.log))
    try:
        searches = [theatre.start(*arguments) for _ in range(2)]
        struck, looked = False, 0
        while any(search.poll() is None for search in searches):
            view = theatre.store.view("slow")
            looked += view is not None
            assert view is None or view.counts.unfinished <= 6, "4: the cap"
            if not struck and view is not None and view.search.told >= total // 3:
                struck = True
                postgresql.restart()  # 9: as a crash; and between a statement and its commit
                postgresql.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tenuto'"
                )
            time.sleep(0.005)
        assert struck
        assert looked >= looks
        said = [search.communicate(timeout=90)[1] for search in searches]
        assert [search.returncode for search in searches] == [0, 0], said
        rows = theatre.rows()
    finally:
        theatre.end()
    assert [row["number"] for row in rows] == list(range(1, total + 1))
    assert [row["status"] for row in rows] == ["SUCCEEDED"] * total
    assert sorted(row["order"] for row in rows) == list(range(1, total + 1))
    started = [line[1] for line in theatre.noted("start")]
    assert len(started) == len(set(started)) == len(theatre.noted("end")) == total
    assert PASSWORD not in "".join(said)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == []
    kept = [
        postgresql.execute(f"SELECT * FROM {table}", name)
        for table in ("searches", "evolution_jobs", "evolution_moves", "members")
    ]
    assert PASSWORD not in str(kept)
    texts = "SELECT params, proposal, outcome FROM evolution_jobs"
    for row in postgresql.execute(texts, name):
        assert all(isinstance(json.loads(str(column)), dict) for column in row), "35: no pickle"


def test_a_worker_that_passes_leaves_when_nothing_is_left(stage: Callable[..., Theatre]) -> None:
    theatre = stage()
    scheduler = theatre.evolve(3, 0)
    theatre.until(lambda rows: [row["status"] for row in rows] == ["QUEUED"] * 3)
    worker = theatre.worker("--slots", "2", "--once")
    _, said = worker.communicate(timeout=90)
    assert worker.returncode == 0
    assert "ended, 3 candidates" in said
    scheduler.communicate(timeout=90)
    assert scheduler.returncode == 0
