"""6, 18: a search on this machine whose process is killed at any moment, and goes on when it is run again."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from tenuto.database import Database, migrate
from tenuto.search.export import candidate_rows
from tenuto.search.opening import FILE_NAME, MIGRATIONS
from tenuto.search.store import Store
from tenuto.search.tables import evolution_moves

SCRIPT = """
import random, sys, time
from tenuto import Meta, Param, Task
from tenuto.search import Evolution, MapElites, Outcome, Real

class Slow(Task):
    x: Param[float]
    log: Meta[str]
    def execute(self):
        with open(self.log, "a") as file:
            file.write(f"start {self.x}\\n")
        time.sleep(random.random() * 0.1)
        if self.x < -0.8:
            raise ValueError("too small")
        with open(self.log, "a") as file:
            file.write(f"end {self.x}\\n")
        return Outcome(self.x, [self.x], cost=1)

if __name__ == "__main__":
    folder, total = sys.argv[1], int(sys.argv[2])
    result = Evolution("slow", Slow.C(log=folder + "/log"), space={"x": Real(-1, 1)}, workdir=folder + "/w",
                       sampler=MapElites([20], [(-1, 1)], start=5), max_total_jobs=total, seed=1,
                       max_unfinished_jobs=4, reproducible="reproducible" in sys.argv).run(slots=4)
    print(result.state, result.scheduled, result.succeeded, result.failed, result.cost)
"""
MOVES_EACH = 4
"""The lines that a candidate leaves at least: PENDING, QUEUED, RUNNING, and its end."""


class Killed:
    """A search whose process is started and killed again and again."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._folder = folder
        self._arguments = arguments
        (folder / "w").mkdir()
        (folder / "slow_search.py").write_text(SCRIPT)
        self._database = Database(folder / "w" / FILE_NAME)
        migrate(self._database, MIGRATIONS)
        self.starts_ms: list[int] = []

    def start(self) -> subprocess.Popen[str]:
        self.starts_ms.append(int(time.time() * 1000))
        command = [sys.executable, str(self._folder / "slow_search.py"), str(self._folder), *self._arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def kill_when(self, is_time: Callable[[], bool]) -> None:
        process = self.start()
        deadline = time.monotonic() + 90
        try:
            while not is_time() and process.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        finally:
            process.kill()
            process.communicate()

    def finish(self) -> list[str]:
        """Runs it to its end; the words that it printed."""
        with self.start() as process:
            try:
                printed, _ = process.communicate(timeout=110)
            finally:
                process.kill()
        assert process.returncode == 0
        return printed.split()

    def lines(self, word: str = "") -> list[str]:
        log = self._folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [line for line in lines if line.startswith(word)]

    def moves_ms(self) -> list[int]:
        """When a candidate moved, on this machine's clock."""
        query = select(evolution_moves.c.at).order_by(evolution_moves.c.at)
        return self._database.read(lambda connection: list(connection.execute(query).scalars()))

    def rows(self) -> list[dict[str, Any]]:
        return candidate_rows(Store(self._database), "slow")

    def close(self) -> None:
        self._database.close()


@pytest.fixture
def killing(tmp_path: Path) -> Iterator[Callable[..., Killed]]:
    """``killing("name", *arguments)``: a search in a folder of its own, closed with the test."""
    made: list[Killed] = []

    def make(name: str, *arguments: str) -> Killed:
        folder = tmp_path / name
        folder.mkdir()
        made.append(Killed(folder, *arguments))
        return made[-1]

    yield make
    for search in made:
        search.close()


def longest_silence_ms(search: Killed) -> int:
    """The longest time in which nothing moved, from a restart or a move to the next of either."""
    instants = sorted([*search.starts_ms, *search.moves_ms()])
    return max(after - before for before, after in itertools.pairwise(instants))


def slowness() -> float:
    """How much longer than its CPU time a search needs to be loaded now; 1 on a machine that is quiet."""
    command = [sys.executable, "-c", "import tenuto.search.search_run, alembic.command"]
    began, before = time.monotonic(), os.times()
    subprocess.run(command, check=True)
    wall_s, after = time.monotonic() - began, os.times()
    used_s = after.children_user + after.children_system - before.children_user - before.children_system
    return max(1.0, wall_s / max(used_s, 0.1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("total", "kills", "limit_ms"),
    [
        (40, 4, None),
        pytest.param(200, 20, 5000, marks=pytest.mark.prove("twenty kills, measured")),
    ],
)
def test_6_a_search_that_is_killed_loses_nothing_and_runs_nothing_twice(
    killing: Callable[..., Killed], total: int, kills: int, limit_ms: int | None
) -> None:
    search = killing("killed", str(total))
    slow = slowness() if limit_ms is not None else 1.0
    moments = random.Random(11)
    for _ in range(kills):
        before = len(search.moves_ms())
        more = moments.randrange(1, MOVES_EACH * total // (kills + 1))
        search.kill_when(lambda: len(search.moves_ms()) >= before + more)  # noqa: B023  called at once
    state, scheduled, succeeded, failed, cost = search.finish()
    assert (state, scheduled) == ("ENDED", str(total))
    assert int(succeeded) + int(failed) == total
    assert float(cost) == int(succeeded)
    begun = search.lines("start")
    assert len(begun) == len(set(begun)) == total
    assert len(search.lines("end")) == int(succeeded)
    assert sorted(row["order"] for row in search.rows()) == list(range(1, total + 1))
    if limit_ms is not None:
        assert longest_silence_ms(search) < limit_ms * max(slow, slowness())


@pytest.mark.slow
def test_18_a_reproducible_search_repeats_itself_also_when_killed(killing: Callable[..., Killed]) -> None:
    found = []
    for is_killed in (False, True):
        search = killing(str(is_killed), "24", "reproducible")
        if is_killed:
            search.kill_when(lambda: len(search.lines()) >= 12)  # noqa: B023  called at once
        search.finish()
        keys = ("number", "values", "order", "parent", "status", "cell")
        found.append([[row[key] for key in keys] for row in search.rows()])
    assert found[0] == found[1]
    assert [row[2] for row in found[0]] == list(range(1, 25))
