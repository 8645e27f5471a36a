"""Owns W1, throughput: no-op jobs of one experiment, two at a time, each with directory and durable marker.

The reference is a bare interpreter, two at a time, measured right before each run: only ratios carry over.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import ENVIRONMENT, Broken, Cost, driver, summarise
from bench.report import Row
from bench.workload import Options, Workload

DRIVER = Path(__file__).with_name("drivers") / "throughput.py"
AT_ONCE = 2

# case -> launcher, kind of task, the most that one job may cost, in references
CASES = {
    "no-op task, warm": ("warm", "noop", 0.4),
    "no-op task, spawn": ("spawn", "noop", None),
    "/bin/true, warm": ("warm", "command", 0.4),
    "/bin/true, spawn": ("spawn", "command", 1.1),
    "W1b: task that imports numpy, warm": ("warm", "numpy", None),
}
SIZES = (1_000, 10_000)
QUICK_SIZES = (100, 300)


def rows(options: Options) -> Iterator[Row]:
    for case, (launcher, kind, most) in CASES.items():
        sizes = QUICK_SIZES if options.quick else SIZES
        for size in sizes if launcher == "warm" else sizes[:1]:
            try:
                yield _row(case, launcher, kind, most, size, min(options.repetitions, 3))
            except Broken as error:
                yield Row("W1", case, "tenuto", size, note=f"failed: {error}".replace("|", "/"))


def _row(case: str, launcher: str, kind: str, most: float | None, size: int, repetitions: int) -> Row:
    references, costs = [], []
    for _ in range(repetitions):
        references.append(reference(min(size, 200)))
        run = driver(sys.executable, str(DRIVER), launcher, kind, str(size))
        costs.append(Cost(run["cpu_s"], run["wall_s"]))
    ref, cost = summarise(references), summarise(costs)
    ratio = cost.cpu_s / size / ref.cpu_s
    wall = cost.wall_s / size / ref.wall_s
    goal = {} if most is None else {"target": f"<= {most} x ref", "target_s": most * ref.cpu_s * size}
    note = f"{ratio:.2f} x ref by CPU, {wall:.2f} x by wall; ref {ref.cpu_s * 1e3:.1f} ms CPU"
    return Row("W1", case, "tenuto", size, cost, note=note, **goal)


def reference(count: int) -> Cost:
    """What one bare interpreter costs, two at a time."""
    argv = [sys.executable, "-c", "pass"]
    began, before = time.perf_counter(), os.times()
    living: set[int] = set()
    for _ in range(count):
        if len(living) == AT_ONCE:
            living.discard(os.wait()[0])
        living.add(os.posix_spawn(argv[0], argv, ENVIRONMENT))
    while living:
        living.discard(os.wait()[0])
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(cpu_s / count, (time.perf_counter() - began) / count)


WORKLOAD = Workload("W1", "throughput: no-op jobs, two at a time", rows)
