"""Workers: processes of their own, with PostgreSQL and Redis, that are drained, killed and frozen."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from sqlalchemy import select

from tenuto.database import Database, migrate
from tenuto.lifecycle.evolution import EvolutionStatus
from tenuto.search.export import candidate_rows
from tenuto.search.opening import MIGRATIONS
from tenuto.search.store import Store
from tenuto.search.tables import evolution_moves
from tests.parts.postgresql import PostgreSQL
from tests.parts.rabbitmq import RabbitMQ
from tests.parts.redis import Redis

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os, sys, time
from tenuto import Meta, Param, Task
from tenuto.search import Evolution, Outcome, RandomSearch, Real

def note(path, *words):
    with open(path, "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

class Slow(Task):
    x: Param[float]
    log: Meta[str]
    seconds: Meta[float]
    def execute(self):
        note(self.log, "start", self.x, time.time(), os.getcwd(), os.getpid())
        end = time.monotonic() + self.seconds
        gate = self.log + ".gate"  # closed, as long as a test needs the payload
        while time.monotonic() < end or os.path.exists(gate):
            time.sleep(0.05)
            note(self.log, "alive", self.x, time.time(), os.getcwd(), os.getpid())
        note(self.log, "end", self.x, time.time(), os.getcwd(), os.getpid())
        return Outcome(self.x, cost=1)

if __name__ == "__main__":
    total, seconds, log = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    Evolution("slow", Slow.C(log=log, seconds=seconds), space={"x": Real(0, 1)}, sampler=RandomSearch(),
              max_total_jobs=total, max_unfinished_jobs=6).run()
"""


class Theatre:
    """A database, a broker, schedulers and workers, all ended in the end."""

    def __init__(self, folder: Path, url: str, queue: str | None, **settings: str) -> None:
        self.folder = folder
        self.log = folder / "log"
        self._gate = folder / "log.gate"
        (folder / "slow.py").write_text(SCRIPT)
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self._environment = {**os.environ, "PYTHONPATH": path, "TENUTO_DATABASE__URL": url, **settings}
        if queue is not None:
            self._environment["TENUTO_QUEUE__URL"] = queue
        self._processes: list[subprocess.Popen[str]] = []
        self._url = url
        database = Database(url)
        migrate(database, MIGRATIONS)
        database.close()

    def start(self, *arguments: str, **settings: str) -> subprocess.Popen[str]:
        return self.start_module("tenuto", *arguments, **settings)

    def start_module(self, module: str, *arguments: str, **settings: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            # Nothing of it outlives the test, also if the watchdog ends that.
            ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", module, *arguments],
            cwd=self.folder,
            env={**self._environment, **settings},
            stderr=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        return process

    def evolve(self, total: int, seconds: float) -> subprocess.Popen[str]:
        return self.start("evolve", "--no-workers", "slow.py", str(total), str(seconds), str(self.log))

    def worker(self, *options: str, workspace: str = "workspace", **settings: str) -> subprocess.Popen[str]:
        process = self.start("worker", "-w", f"./{workspace}", *options, **settings)
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "ready" in line, line
        return process

    def rows(self) -> list[dict[str, Any]]:
        database = Database(self._url)
        try:
            return candidate_rows(Store(database), "slow")
        finally:
            database.close()

    def until(self, is_so: Callable[[list[dict[str, Any]]], bool], timeout_s: float = 90) -> None:
        deadline = time.monotonic() + timeout_s
        while not is_so(rows := self.rows()):
            assert time.monotonic() < deadline, [
                (row["number"], row["status"], row["worker"]) for row in rows
            ]
            time.sleep(0.1)

    def moved(self, message: str) -> bool:
        """True once a row moved for this reason."""
        database = Database(self._url)
        query = select(evolution_moves.c.id).where(evolution_moves.c.message == message).limit(1)
        try:
            return database.read(lambda connection: connection.execute(query).one_or_none()) is not None
        finally:
            database.close()

    def hold(self) -> None:
        """Keeps every payload alive until `let_go`, or until it is killed."""
        self._gate.touch()

    def let_go(self) -> None:
        """Lets payloads end."""
        self._gate.unlink(missing_ok=True)

    def noted(self, word: str) -> list[list[str]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.split() for line in lines if line.startswith(word)]

    def end(self) -> None:
        self.let_go()
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.communicate()


def running(count: int) -> Callable[[list[dict[str, Any]]], bool]:
    return lambda rows: sum(row["status"] == EvolutionStatus.RUNNING.value for row in rows) >= count


@pytest.fixture
def stage(tmp_path: Path, postgresql_url: str) -> Iterator[Callable[..., Theatre]]:
    made: list[Theatre] = []

    def build(queue: str | None = None, **settings: str) -> Theatre:
        made.append(Theatre(tmp_path, postgresql_url, queue, **settings))
        return made[-1]

    yield build
    for theatre in made:
        theatre.end()


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


def is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
def test_24_a_worker_drains_and_told_twice_gives_its_rows_back(stage: Callable[..., Theatre]) -> None:
    theatre = stage()
    theatre.hold()
    theatre.evolve(3, 0)
    first = theatre.worker("--slots", "3")
    theatre.until(running(3))
    theatre.until(lambda rows: len(theatre.noted("alive")) > 0 and len(theatre.noted("start")) == 3)
    first.send_signal(signal.SIGTERM)
    first.send_signal(signal.SIGINT)  # a second wish to end; two signals of one kind may arrive as one
    _, said = first.communicate(timeout=90)
    assert first.returncode == 0, said
    assert [row["attempt"] for row in theatre.rows()] == [0, 0, 0]
    assert not any(is_alive(line[4]) for line in theatre.noted("start")), "payloads end before rows go back"
    theatre.worker("--slots", "3", workspace="other")
    theatre.until(running(3))
    theatre.until(lambda rows: len(theatre.noted("start")) == 6)
    theatre.let_go()
    theatre.until(lambda rows: [row["status"] for row in rows] == ["SUCCEEDED"] * 3)
    assert len(theatre.noted("end")) == 3
    assert overlaps(theatre) == []


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


LEASE_S = "10"
"""Payloads end by three quarters of it: a busy machine has 2.5 s to be late."""


def taken_over(theatre: Theatre) -> None:
    """Waits until another worker evaluated the candidate; its payload began after the first one ended."""
    theatre.until(lambda rows: rows[0]["attempt"] == 2)
    theatre.until(lambda rows: any("/other/" in line[3] for line in theatre.noted("start")))
    theatre.let_go()
    theatre.until(lambda rows: rows[0]["status"] == "SUCCEEDED")
    mine = [float(line[2]) for line in theatre.noted("alive") if "/mine/" in line[3]]
    other = [float(line[2]) for line in theatre.noted("start") if "/other/" in line[3]]
    assert max(mine) < other[0]


def overlaps(theatre: Theatre) -> list[str]:
    """The candidates that two payloads worked on at the same time, each seen alive by its notes."""
    spans: dict[str, dict[str, list[float]]] = {}
    for word in ("start", "alive", "end"):
        for _, x, at, place, pid in theatre.noted(word):
            spans.setdefault(x, {}).setdefault(f"{place} {pid}", []).append(float(at))
    found = []
    for x, payloads in spans.items():
        ordered = sorted((min(times), max(times)) for times in payloads.values())
        if any(later[0] < earlier[1] for earlier, later in itertools.pairwise(ordered)):
            found.append(x)
    return found


@pytest.mark.slow
def test_58_a_killed_workers_jobs_are_adopted_on_its_workspace(stage: Callable[..., Theatre]) -> None:
    theatre = stage()
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
    "total", [14, pytest.param(300, marks=pytest.mark.prove("as long as a thousand looks take"))]
)
def test_4_9_35_two_whole_searches_side_by_side_while_their_database_restarts(
    tmp_path: Path, postgresql: PostgreSQL, postgresql_url: str, total: int
) -> None:
    name = urlsplit(postgresql_url).path.lstrip("/")
    theatre = Theatre(tmp_path, postgresql.url_of(name, PASSWORD), None)
    arguments = ("evolve", "--slots", "2", "slow.py", str(total), "0.1", str(theatre.log))
    try:
        searches = [theatre.start(*arguments) for _ in range(2)]
        struck = False
        while any(search.poll() is None for search in searches):
            rows = theatre.rows()
            assert sum(row["status"] in ("PENDING", "QUEUED", "RUNNING") for row in rows) <= 6, "4: the cap"
            if not struck and sum(row["status"] == "SUCCEEDED" for row in rows) >= total // 3:
                struck = True
                postgresql.restart()  # 9: as a crash; and between a statement and its commit
                postgresql.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tenuto'"
                )
        said = [search.communicate(timeout=90)[1] for search in searches]
        assert [search.returncode for search in searches] == [0, 0], said
        rows = theatre.rows()
    finally:
        theatre.end()
    assert [row["number"] for row in rows] == list(range(1, total + 1))
    assert [row["status"] for row in rows] == ["SUCCEEDED"] * total
    assert sorted(row["told"] for row in rows) == list(range(1, total + 1))
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
