"""One soak, from the first submission to the verdict: starts schedulers, has them struck, starts them again.
A process of its own, since it becomes the parent of all that lose theirs:

    python -m proof.soak stage '{"seed": 7, "jobs": 60, "seconds": 10}'     (prints one line of JSON)
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from proof.soak import judge
from proof.soak.oracle import STAGE
from proof.soak.plan import SCHEDULERS, WITNESS, draw
from proof.soak.scheduler import Orders
from proof.soak.strikes import Striker, processes
from tenuto.launchers.kernel import become_subreaper
from tenuto.workspace.machine import this_machine

EVERY_S = 0.2
WAITS = 4
"""How many waits of a soak may last as long as its patience."""
_LOOK_S = 0.01
_KILL_S = 60.0
_REPOSITORY = Path(__file__).parents[2]


class Soak(NamedTuple):
    """How long, how much, and from which seed."""

    seed: int
    jobs: int
    seconds: float
    patience_s: float = 1800.0
    """How long each wait may last: for the waves once nobody is struck, and for the last submission."""
    bug: str = ""
    """What is planted in the schedulers, to see whether it is found."""
    aim: str = ""
    """The only kind of process that is struck, to see whether a bug is found; none: all kinds."""
    keep: bool = False
    """Leave the directory, whatever the verdict."""


class Stage:
    """The schedulers of one soak."""

    def __init__(self, soak: Soak, root: Path) -> None:
        self._soak = soak
        self._root = root
        self._stage = root.name
        self._waves = draw(soak.seed, soak.jobs)
        self._begin = time.monotonic()
        self._striker = Striker(Random(f"strikes {soak.seed}"), self._stage, soak.aim)
        self._schedulers: dict[int, int] = {}
        """pid -> which one."""
        self._starts = 0
        self.problems: list[str] = []
        for name in ("ledger", "locks", "units", "logs"):
            (root / name).mkdir()

    def play(self) -> dict[str, Any]:
        """Everything, and how it went."""
        for who in range(SCHEDULERS):
            self._start(who)
        self._strike()
        jobs = judge.planned(self._waves)
        open_then = sum("end" not in self._kinds(job.number) for job in jobs if job.fate.name == "DONE")
        self._until(lambda: not self._schedulers, "the schedulers to see their waves through")
        struck = time.monotonic() - self._begin
        before = {job.number: judge.read_ledger(self._root, job.number) for job in jobs}
        self._start(SCHEDULERS, closing=True)
        self._until(lambda: not self._schedulers, "everything to be submitted once more")
        self._until(lambda: not processes(self._stage), "all processes to be gone", 30.0)
        answers_file = self._orders(SCHEDULERS).answers
        answers = json.loads(answers_file.read_text()) if answers_file.exists() else {}
        ledgers = {job.number: judge.read_ledger(self._root, job.number) for job in jobs}
        said = {int(number): answer for number, answer in answers.items()}
        states = {number: answer["state"] for number, answer in said.items()}
        self.problems += judge.by_ledger(jobs, ledgers, states, before)
        self.problems += judge.by_strikes(jobs, ledgers, self._striker.ended)
        self.problems += judge.by_order(jobs, ledgers)
        self.problems += judge.by_answers(jobs, said)
        self.problems += judge.by_files(this_machine(), self._root)
        reports = judge.read_reports(self._orders(WITNESS).ended)
        if not reports:
            self.problems.append("the scheduler that is never killed was through with nothing")
            reports = [{"at": 0.0, "rss": 1, "descriptors": []}]
        grown = judge.growth(reports, self._begin, self._soak.seconds)
        self.problems += judge.by_witness(reports, grown)
        starts = sum(entry.what == "start" for entries in ledgers.values() for entry in entries)
        return {
            "seed": self._soak.seed,
            "jobs": len(jobs),
            "payloads": starts,
            "schedulers": self._starts,
            "struck": {f"{how} {role}": count for (role, how), count in sorted(self._striker.struck.items())},
            "open_then": open_then,
            "ended_s": round(struck, 1),
            "witness": {
                "waves": len(reports),
                "first": grown.first,
                "last": grown.last,
                "descriptors": [len(reports[0]["descriptors"]), len(reports[-1]["descriptors"])],
            },
            "problems": self.problems,
            "root": str(self._root),
        }

    def _kinds(self, number: int) -> list[str]:
        return [entry.what for entry in judge.read_ledger(self._root, number)]

    def _orders(self, who: int, *, closing: bool = False) -> Orders:
        soak = self._soak
        return Orders(
            str(self._root), who, soak.seed, soak.jobs, self._begin, soak.seconds, closing, soak.bug
        )

    def _start(self, who: int, *, closing: bool = False) -> None:
        orders = json.dumps(self._orders(who, closing=closing)._asdict())
        log = os.open(self._root / "logs" / str(who), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", "proof.soak", "scheduler", orders],
            {**os.environ, STAGE: self._stage},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                *((os.POSIX_SPAWN_DUP2, log, standard) for standard in (1, 2)),
            ],
        )
        os.close(log)
        self._schedulers[pid] = who
        self._starts += 1

    def _strike(self) -> None:
        """Strike every 200 ms, until the time is over; those who stand still then go on.

        A hunt begins with the first job: on a busy machine its few seconds pass before there is anything.
        """
        if self._soak.aim:
            self._until(lambda: any((self._root / "ledger").iterdir()), "the first job")
        due = time.monotonic()
        end = due + self._soak.seconds if self._soak.aim else self._begin + self._soak.seconds
        while (now := time.monotonic()) < end:
            self._reap()
            self._striker.let_go()
            if now >= due:
                due += EVERY_S
                self._striker.strike(self._schedulers)
            time.sleep(_LOOK_S)
        self._striker.let_go(all_of_them=True)

    def _reap(self) -> None:
        """Bury the processes that ended, and start killed schedulers again."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            who = self._schedulers.pop(pid, None)
            if who is None:
                continue
            code = os.waitstatus_to_exitcode(status)
            if code and pid in self._striker.ended:
                self._start(who)
            elif code not in (0, -signal.SIGKILL):
                log = (self._root / "logs" / str(who)).read_text()[-2000:]
                self.problems.append(f"scheduler {who} ended by itself, with code {code}: {log}")
            elif code == -signal.SIGKILL:
                self._start(who)

    def _until(self, holds: Callable[[], bool], what: str, patience_s: float | None = None) -> None:
        give_up = time.monotonic() + (patience_s or self._soak.patience_s)
        while True:
            self._reap()
            if holds():
                return
            if time.monotonic() > give_up:
                left = [f"{one.pid} {one.command:.200}" for one in processes(self._stage).values()]
                self.problems.append(f"waited in vain for {what}; there are {left}")
                self.end_all()
                return
            time.sleep(_LOOK_S)

    def end_all(self) -> None:
        """Nothing of this soak outlives it, but what the kernel does not end within a minute."""
        self._striker.let_go(all_of_them=True)
        self._schedulers.clear()
        give_up = time.monotonic() + _KILL_S
        while (seen := processes(self._stage)) and time.monotonic() < give_up:
            for pid in seen:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._reap()
            time.sleep(_LOOK_S)


def main(soak: Soak) -> None:
    become_subreaper()
    os.chdir(_REPOSITORY)
    root = Path(tempfile.mkdtemp(prefix="tenuto-soak-"))
    stage = Stage(soak, root)
    try:
        outcome = stage.play()
    finally:
        stage.end_all()
    print(json.dumps(outcome), flush=True)
    if not outcome["problems"] and not soak.keep:
        shutil.rmtree(root)
