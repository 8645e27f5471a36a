"""A stage for searches: a database, perhaps a broker, schedulers and workers in processes of their own."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import select

from tenuto.database import Database, migrate, now_ms
from tenuto.search.export import candidate_rows
from tenuto.search.opening import MIGRATIONS
from tenuto.search.store import Store
from tenuto.search.tables import evolution_moves

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


class Move(NamedTuple):
    """A change of a candidate, at an instant of the database's clock."""

    number: int
    status: str
    message: str | None
    at_ms: int


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
        self.is_logged = False
        """What processes say goes to a file, which never fills, instead of a pipe that a test reads."""
        self._database = Database(url)
        migrate(self._database, MIGRATIONS)
        self.store = Store(self._database)

    def start(self, *arguments: str, **settings: str) -> subprocess.Popen[str]:
        return self.start_module("tenuto", *arguments, **settings)

    def start_module(self, module: str, *arguments: str, **settings: str) -> subprocess.Popen[str]:
        with (self.folder / "stderr").open("a") as said:
            process = subprocess.Popen(
                # Nothing of it outlives the test, also if the watchdog ends that.
                ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", module, *arguments],
                cwd=self.folder,
                env={**self._environment, **settings},
                stderr=said if self.is_logged else subprocess.PIPE,
                text=True,
            )
        self._processes.append(process)
        return process

    def evolve(self, total: int, seconds: float) -> subprocess.Popen[str]:
        return self.start("evolve", "--no-workers", "slow.py", str(total), str(seconds), str(self.log))

    def worker(self, *options: str, workspace: str = "workspace", **settings: str) -> subprocess.Popen[str]:
        process = self.start("worker", "-w", f"./{workspace}", *options, **settings)
        if process.stderr is not None:
            line = process.stderr.readline()
            assert "ready" in line, line
        return process

    def rows(self) -> list[dict[str, Any]]:
        return candidate_rows(self.store, "slow")

    def moves(self) -> list[Move]:
        """Every change of every candidate, in their order."""
        moves = evolution_moves.c
        query = select(moves.number, moves.status, moves.message, moves.at).order_by(moves.id)
        return self._database.read(lambda connection: [Move(*row) for row in connection.execute(query)])

    def now_ms(self) -> int:
        """The instant, on the clock that moves are stamped with."""
        return self._database.read(lambda connection: connection.execute(select(now_ms())).scalar_one())

    def until(self, is_so: Callable[[list[dict[str, Any]]], bool], timeout_s: float = 90) -> None:
        deadline = time.monotonic() + timeout_s
        while not is_so(rows := self.rows()):
            assert time.monotonic() < deadline, [
                (row["number"], row["status"], row["worker"]) for row in rows
            ]
            time.sleep(0.1)

    def until_told(self, total: int, silence_s: float = 90) -> None:
        """Waits for the last of so many candidates, as long as now and then one of them is told."""
        told = 0
        while told < total:
            before = told
            self.until(lambda rows: sum(bool(row["order"]) for row in rows) > before, silence_s)  # noqa: B023
            told = sum(bool(row["order"]) for row in self.rows())

    def moved(self, message: str) -> bool:
        """True once a row moved for this reason."""
        return any(move.message == message for move in self.moves())

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
        self._database.close()


def left_behind(theatre: Theatre) -> list[str]:
    """Processes that work in the folder of a theatre, locks that are held there, and sockets."""
    place = str(theatre.folder)
    inodes = {str(path.stat().st_ino) for path in theatre.folder.rglob("*.lock")}
    found = [f"socket {path}" for path in theatre.folder.rglob("*") if path.is_socket()]
    locks = Path("/proc/locks").read_text().splitlines()
    found += [f"lock {line}" for line in locks if line.split()[-3].rpartition(":")[2] in inodes]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes() + os.readlink(process / "cwd").encode()
        except OSError:  # it ended, or is a zombie
            continue
        if place.encode() in words:
            found.append(f"process {words!r}")
    return found


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
