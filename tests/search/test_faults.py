"""7, 11, 38: schedulers and workers killed at every step, cut off, frozen; the whole in `make prove`."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from tenuto.database import Database, migrate
from tenuto.search.opening import MIGRATIONS
from tenuto.search.rows import Added
from tenuto.search.store import Store
from tests.parts.postgresql import PostgreSQL
from tests.parts.redis import Redis
from tests.search.builders import ANY, new, opened
from tests.search.killed import OF_SCHEDULERS, OF_WORKERS
from tests.search.proxies import Proxy
from tests.search.theatre import LEASE_S, Theatre, left_behind, overlaps, taken_over

PAIRS = list(itertools.product(OF_SCHEDULERS, OF_WORKERS))
TOTAL = 6


Outcome = tuple[list[tuple[int, str, float]], list[int], int, int]
NUMBERS = list(range(1, TOTAL + 1))
WELL: Outcome = ([(number, "SUCCEEDED", 1.0) for number in NUMBERS], NUMBERS, TOTAL, TOTAL)
"""Every candidate ended well and was told once, and ran once."""


def outcome(theatre: Theatre) -> Outcome:
    """The rows of the candidates, the order in which they were told, and how many began and ended."""
    rows = theatre.rows()
    return (
        [(row["number"], row["status"], row["cost"]) for row in rows],
        sorted(row["order"] for row in rows),
        len(theatre.noted("start")),
        len(theatre.noted("end")),
    )


def killed_at(theatre: Theatre, scheduler_step: str, worker_step: str) -> Outcome:
    """A scheduler and a worker die after a step each; others take over, and this is how it ends."""
    evolve = ("evolve", "--no-workers", "slow.py", str(TOTAL), "0.1", str(theatre.log))
    first = [
        theatre.start_module("tests.search.killed", scheduler_step, "2", *evolve),
        theatre.start_module("tests.search.killed", worker_step, "2", "worker", "-w", "./workspace"),
    ]
    deadline = time.monotonic() + 90
    second = None
    while first[1].poll() is None:
        assert time.monotonic() < deadline
        if first[0].poll() is not None and second is None:  # its work goes on
            second = theatre.evolve(TOTAL, 0.1)
        time.sleep(0.05)
    assert first[1].returncode == -signal.SIGKILL
    theatre.worker("--slots", "2")
    second = second or theatre.evolve(TOTAL, 0.1)
    _, said = second.communicate(timeout=90)
    assert second.returncode == 0, said
    assert first[0].wait(90) in (-signal.SIGKILL, 0)
    return outcome(theatre)


@pytest.mark.slow
def test_7_scheduler_and_worker_that_are_killed_lose_nothing(stage: Callable[..., Theatre]) -> None:
    assert killed_at(stage(), "row in", "submitted") == WELL


@pytest.mark.prove("sixteen pairs of kill points, some ten seconds each")
@pytest.mark.parametrize(("scheduler_step", "worker_step"), PAIRS)
def test_7_whatever_step_they_are_killed_at(
    stage: Callable[..., Theatre], scheduler_step: str, worker_step: str
) -> None:
    assert killed_at(stage(), scheduler_step, worker_step) == WELL


@pytest.fixture
def proxy(postgresql_url: str) -> Iterator[Proxy]:
    (directory,) = parse_qs(urlsplit(postgresql_url).query)["host"]
    made = Proxy(directory)
    yield made
    made.close()


@pytest.mark.slow
def test_11_a_worker_that_is_cut_off_loses_its_payload_and_its_row(
    stage: Callable[..., Theatre], proxy: Proxy, postgresql_url: str
) -> None:
    theatre = stage(TENUTO_SEARCH__LEASE_S=LEASE_S)
    theatre.hold()
    theatre.evolve(1, 0)
    (directory,) = parse_qs(urlsplit(postgresql_url).query)["host"]
    through = postgresql_url.replace(directory, str(proxy.directory))
    cut_off = theatre.worker("--slots", "1", workspace="mine", TENUTO_DATABASE__URL=through)
    theatre.until(lambda rows: bool(theatre.noted("alive")))
    proxy.fall_silent()
    theatre.worker("--slots", "1", workspace="other")
    taken_over(theatre)
    assert cut_off.poll() is None
    proxy.answer_again()  # connections that were cut stay silent, new ones pass
    cut_off.send_signal(signal.SIGTERM)
    _, said = cut_off.communicate(timeout=90)  # by then it wrote whatever it had to write
    assert cut_off.returncode == 0, said
    (row,) = theatre.rows()
    assert (row["status"], row["attempt"], row["cost"]) == ("SUCCEEDED", 2, 1.0)


FROZEN = """
import sys, time
from sqlalchemy import text
from tenuto.database import Database
def stand_still(connection):
    connection.execute(text("SELECT * FROM searches FOR UPDATE"))
    print("in", flush=True)
    time.sleep(300)
Database(sys.argv[1]).write(stand_still)
"""


@pytest.mark.prove("it measures time: ten seconds until PostgreSQL gives up")
def test_12_a_frozen_scheduler_inside_a_transaction_holds_others_up_for_fifteen_seconds(
    postgresql_url: str,
) -> None:
    database = Database(postgresql_url)
    migrate(database, MIGRATIONS)
    store = opened(Store(database))
    command = [sys.executable, "-c", FROZEN, postgresql_url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as frozen:
        assert frozen.stdout is not None
        assert frozen.stdout.readline() == "in\n"
        frozen.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        try:
            assert isinstance(store.add("s", new(1), ANY), Added)
            assert time.monotonic() - began < 15
        finally:
            frozen.kill()
    database.close()


@pytest.mark.prove("five minutes of kills, freezes and restarts")
def test_38_soak(stage: Callable[..., Theatre], redis: Redis, postgresql: PostgreSQL) -> None:
    seconds = float(os.environ.get("SOAK_S", "300"))
    theatre = stage(redis.url, TENUTO_SEARCH__LEASE_S="4")
    theatre.is_logged = True
    total = int(seconds * 4)
    actors = Actors(theatre, total, redis, postgresql)
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        time.sleep(0.5)
        view = theatre.store.view("slow")
        assert view is None or view.counts.unfinished <= 6, "the cap"
        actors.strike()
    actors.thaw()
    theatre.until_told(total)
    rows = theatre.rows()
    assert [row["number"] for row in rows] == list(range(1, total + 1))
    assert [row["number"] for row in rows if row["status"] != "SUCCEEDED"] == []
    assert sorted(row["order"] for row in rows) == list(range(1, total + 1)), "each told once"
    search = theatre.store.search("slow")
    assert search is not None
    assert search.cost == total
    assert overlaps(theatre) == []
    actors.end()
    deadline = time.monotonic() + 90
    while left := left_behind(theatre):
        assert time.monotonic() < deadline, left
        time.sleep(0.5)


class Actors:
    """Two schedulers and three workers on two workspaces, of which one after the other is struck."""

    def __init__(self, theatre: Theatre, total: int, redis: Redis, postgresql: PostgreSQL) -> None:
        self._theatre = theatre
        self._total = total
        self._redis = redis
        self._postgresql = postgresql
        self._rng = random.Random(38)
        self._living = [self._start(kind) for kind in ["scheduler"] * 2 + ["worker"] * 3]
        self._frozen: list[subprocess.Popen[str]] = []

    def _start(self, kind: str) -> tuple[str, subprocess.Popen[str]]:
        if kind == "scheduler":
            return kind, self._theatre.evolve(self._total, 0.2)
        workspace = f"w{self._rng.randrange(2)}"
        return kind, self._theatre.worker("--slots", "2", workspace=workspace)

    def strike(self) -> None:
        """A kill, a freeze until the next strike, or a restart of the broker or, as a crash, the database."""
        self.thaw()
        at = self._rng.randrange(len(self._living))
        kind, process = self._living[at]
        strike = self._rng.choice(["kill", "kill", "kill", "freeze", "freeze", "broker", "database"])
        if strike == "broker":
            self._redis.stop()
            self._redis.start()
        elif strike == "database":
            self._postgresql.restart()
        elif strike == "freeze":
            process.send_signal(signal.SIGSTOP)
            self._frozen.append(process)
        else:
            process.kill()
            process.wait()
            self._living[at] = self._start(kind)

    def thaw(self) -> None:
        for process in self._frozen:
            process.send_signal(signal.SIGCONT)
        self._frozen.clear()

    def end(self) -> None:
        """Schedulers ended with the search; workers are asked to."""
        for kind, process in self._living:
            if kind == "worker":
                process.send_signal(signal.SIGTERM)
            assert process.wait(90) == 0, kind
