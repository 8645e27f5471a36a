"""Owns W15, very many jobs: a long run that is killed and taken up once, and a workspace of done jobs.

The done jobs are made by `prepare.py`, in directories and packed. They are found done by a script, and looked
at by commands; the whole process counts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import ours
from bench.measure import Broken, tree
from bench.rows import OURS, Row, missing, plain
from bench.scale import Options, Sizes
from bench.scratch import footprint, fresh
from bench.workload import Workload

SIZES = Sizes((8,), (1_000,), (10_000, 60_000), (1_000_000,))
"""Of the workspace."""
LONG = Sizes((20,), (400,), (20_000,), (200_000,))
"""Of the run."""
AGAIN_S = {10_000: 0.6, 60_000: 4.0, 1_000_000: 60.0}
LOOKS = {
    "jobs --limit 20": ("jobs", "--limit", "20"),
    "status": ("status",),
    "results --limit 20": ("results", "--limit", "20"),
}
FILTERS = {
    "jobs -n 20 state=error": ("jobs", "-n", "20", "state=error"),
    "jobs -n 20 number=5": ("jobs", "-n", "20", "number=5"),
}
FIRST_S, FILTER_S, MOST_MB = 2.0, 1.0, 600.0
MOST_INODES = {"directories": 5.0, "packed": 0.02}
JOB_S = 0.004
TIMEOUT_S = 900


def own(options: Options) -> Iterator[Row]:
    slots = os.cpu_count() or 1
    for size in LONG.at(options.scale):
        if options.budget.affords("W15", "a run, killed", size, JOB_S * size, smallest=True):
            yield from _rows(size, _long, options, size, slots)
    for size in SIZES.at(options.scale):
        for kind in MOST_INODES:
            if options.budget.affords("W15", f"done, {kind}", size, 0.0015 * size, smallest=True):
                yield from _rows(size, _done, options, size, kind)


def _rows(size: int, measure: Callable[..., Iterator[Row]], *arguments: object) -> Iterator[Row]:
    try:
        yield from measure(*arguments)
    except Broken as broken:
        yield missing("W15", "no-op jobs", OURS, size, f"failed: {broken}")


def _long(options: Options, size: int, slots: int) -> Iterator[Row]:
    load = os.getloadavg()[0]
    found = ours.run(options, "taken_up.py", size, slots)
    case = f"a run, killed half way and taken up, slots: {slots}"

    def row(what: str, unit: str, value: float, target: str = "", limit: float | None = None) -> Row:
        return plain("W15", f"{case}; {what}", OURS, size, unit, [value], load, target, limit)

    yield row("all", "s", found["wall_s"], "600 jobs/s", size / 600)
    yield row("the driver's CPU a job", "ms", found["own_s"] / size * 1000, "<= 1 ms", 1.0)
    yield row("growth of the driver's memory", "kB a job", found["job_kb"], "<= 1.2 kB", 1.2)
    if found["first_each_s"] and found["last_each_s"]:  # a few jobs are too quick for that
        slower = found["first_each_s"] / found["last_each_s"]
        yield row("the second tenth beside the last", "times as fast", slower, "as fast", 1.1)
    yield row("found done again", "s", found["again_s"])


def _done(options: Options, size: int, kind: str) -> Iterator[Row]:
    load = os.getloadavg()[0]

    def row(what: str, unit: str, value: float, target: str = "", limit: float | None = None) -> Row:
        return plain("W15", f"done, {kind}: {what}", OURS, size, unit, [value], load, target, limit)

    with fresh(options.directory) as place:
        ours.run(options, "prepare.py", size, *(["packed"] if kind == "packed" else []), place=place)
        inodes, taken = footprint(place / "ws")
        most = MOST_INODES[kind]
        yield row("inodes", "a job", inodes / size, f"<= {most:g}", most if size > 1_000 else None)
        yield row("on the disk", "kB a job", taken / size / 1000)
        for what in ("again", "again, with the index"):
            cost = tree(
                [sys.executable, str(ours.DRIVERS / "again.py"), str(size)],
                directory=place,
                timeout_s=TIMEOUT_S,
            )
            limit = AGAIN_S.get(size) if what != "again" else None
            yield row(what, "s", cost.cost.wall_s, f"<= {limit:g} s" if limit else "", limit)
            yield row(f"{what}, memory", "MB", cost.peak_kb / 1024)
        for what, arguments in {**LOOKS, **FILTERS}.items():
            most_s = FILTER_S if what in FILTERS else FIRST_S
            took_s, peak_mb = look(place, arguments)
            yield row(f"tenuto {what}", "s", took_s, f"<= {most_s:g} s", most_s)
            yield row(f"tenuto {what}, memory", "MB", peak_mb, f"<= {MOST_MB:g} MB", MOST_MB)


def look(place: Path, arguments: tuple[str, ...]) -> tuple[float, float]:
    """How long a command took, and its peak memory in MB."""
    argv = [sys.executable, "-m", "tenuto", *arguments, "-w", "ws"]
    found = tree(argv, directory=place, timeout_s=TIMEOUT_S)
    return found.cost.wall_s, found.peak_kb / 1024


WORKLOAD = Workload("W15", "very many jobs: a long run, and a workspace of done jobs", own, share=0.2)
"""Rates, memory, inodes, and the first answer of commands."""
