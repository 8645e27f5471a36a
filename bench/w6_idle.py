"""Owns W6, idle: the CPU that is used while all jobs sleep, by scheduler and supervisors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench import ours
from bench.measure import ENVIRONMENT, TREE, Broken, reason
from bench.peers import sleeping
from bench.rows import OURS, Row, missing, plain
from bench.scale import Options, Scale, Sizes
from bench.scratch import fresh
from bench.workload import Workload

SIZES = Sizes((1,), (1, 10), (1, 10))
WINDOW_S = {Scale.TINY: 0.3, Scale.QUICK: 1.0, Scale.FULL: 10.0, Scale.LARGE: 10.0}
SETTLE_S = {Scale.TINY: 0.1, Scale.QUICK: 0.5, Scale.FULL: 2.0, Scale.LARGE: 2.0}
PEER_STARTS_S = 6.0
MOST_PERCENT = 0.1


def cpu_s(pid: int) -> float:
    """CPU time of another process, to the nanosecond: its own clock (see clock_getcpuclockid)."""
    return time.clock_gettime(~pid << 3 | 2)


def descendants(pid: int) -> list[int]:
    """All processes below one."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


def percents(groups: Sequence[Sequence[int]], window_s: float) -> list[float]:
    """CPU that each group of processes uses, in percent of one core."""
    began, before = time.monotonic(), [sum(map(cpu_s, pids)) for pids in groups]
    time.sleep(window_s)
    used = [sum(map(cpu_s, pids)) - earlier for pids, earlier in zip(groups, before, strict=True)]
    took_s = time.monotonic() - began
    return [100 * share / took_s for share in used]


@contextmanager
def running(argv: Sequence[str], place: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A command and all it starts, ended on leaving."""
    command = [sys.executable, "-I", "-S", str(TREE), "600", *argv]
    with subprocess.Popen(
        command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def own(options: Options) -> Iterator[Row]:
    for launcher in ("warm",) if options.scale is Scale.QUICK else ("warm", "spawn"):
        for size in SIZES.at(options.scale):
            case = f"sleeping, {launcher}"
            if not options.budget.affords("W6", case, size, _estimate_s(options), smallest=size == 1):
                continue
            load = os.getloadavg()[0]
            try:
                shares = _shares(options, launcher, size)
            except Broken as broken:
                yield missing("W6", case, OURS, size, f"failed: {broken}")
                continue
            for who, values in shares.items():
                target, limit = (f"<= {MOST_PERCENT} %", MOST_PERCENT) if size == 1 else ("", None)
                yield plain("W6", f"{case}: {who}", OURS, size, "% CPU", values, load, target, limit)


def _estimate_s(options: Options) -> float:
    return 1.0 + SETTLE_S[options.scale] + options.repetitions * WINDOW_S[options.scale]


def _shares(options: Options, launcher: str, size: int) -> dict[str, list[float]]:
    argv = [sys.executable, str(ours.DRIVERS / "idle.py"), launcher, str(size)]
    with fresh(options.directory) as place, running(argv, place, ENVIRONMENT) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        if not said.startswith("{"):
            raise Broken(reason(said, process.poll() or 0))
        pids = json.loads(said)
        of_jobs = {pid for runner in pids["supervisors"] for pid in (runner, *descendants(runner))}
        others = [pid for pid in descendants(process.pid) if pid not in of_jobs]
        time.sleep(SETTLE_S[options.scale])
        window_s = WINDOW_S[options.scale]
        groups = (others, pids["supervisors"])
        shares = [percents(groups, window_s) for _ in range(options.repetitions)]
        return {"scheduler": [one for one, _ in shares], "supervisors": [two for _, two in shares]}


def peers(options: Options) -> Iterator[Row]:
    """All processes of a peer while one job sleeps."""
    return sleeping(options, "W6", "one job sleeping: all processes", _watch)


def _watch(options: Options) -> Callable[[Sequence[str], Path, dict[str, str]], list[float]]:
    def watch(argv: Sequence[str], place: Path, environment: dict[str, str]) -> list[float]:
        with running(argv, place, environment) as process:
            time.sleep(PEER_STARTS_S)
            pids = descendants(process.pid)
            if not pids:
                raise Broken("ended before it could be watched")
            window_s = WINDOW_S[options.scale]
            return [share for _ in range(options.repetitions) for share in percents([pids], window_s)]

    return watch


WORKLOAD = Workload("W6", "idle: CPU while jobs sleep", own, peers, share=0.08)
