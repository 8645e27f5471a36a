"""Owns W1, throughput: no-op jobs of one experiment, two at a time, each with directory and durable marker.

Measured from entering the experiment to leaving it. Peers: their own way to run as many jobs, two at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench import ours
from bench.measure import AT_ONCE, pairs, summarise
from bench.peers import many
from bench.rows import Row, refs_each
from bench.scale import Options, Sizes
from bench.workload import Workload


@dataclass(frozen=True, slots=True)
class Case:
    """A launcher and a kind of task; `most` is the target, in references for a job."""

    title: str
    launcher: str
    kind: str
    most: float | None
    sizes: Sizes
    job_s: float


MANY = Sizes((5, 10), (50, 200), (200, 1_000, 10_000), (100_000,))
WARM = Sizes((5, 10), (50, 200), (200, 1_000))
SPAWN = Sizes((3, 6), (10, 40), (200, 1_000))
CASES = (
    Case("README's script, warm", "warm", "script", 0.6, WARM, 0.0075),
    Case("no-op task, warm", "warm", "noop", 0.6, MANY, 0.0075),
    Case("no-op task, warm, not durable", "warm", "undurable", 0.6, WARM, 0.0075),
    Case("no-op task, spawn", "spawn", "noop", None, SPAWN, 0.03),
    Case("/bin/true, warm", "warm", "command", 0.5, WARM, 0.006),
    Case("/bin/true, spawn", "spawn", "command", 0.5, WARM, 0.006),
    Case("W1b: numpy task, warm", "warm", "numpy", None, WARM, 0.014),
)
OVER_IMPORT = 1.15
"""A Python task may cost so many times `python -c 'import tenuto'`, spawned."""


def own(options: Options) -> Iterator[Row]:
    for case in CASES:
        for size in (all_sizes := case.sizes.at(options.scale)):
            goal = refs_each(case.most) if case.most else None
            found = ours.row(
                options,
                "W1",
                case.title,
                size,
                *_driver(case, size),
                target=goal,
                estimate_s=case.job_s * size,
                smallest=size == all_sizes[0],
            )
            if found is not None:
                yield over_import(options, found) if case.title == "no-op task, spawn" else found


def _driver(case: Case, size: int) -> tuple[str, object, object, object] | tuple[str, object, object]:
    if case.kind == "script":
        return "script.py", size, AT_ONCE
    return "throughput.py", case.launcher, case.kind, size


def over_import(options: Options, row: Row) -> Row:
    """The row with its target, a multiple of the bare import of Tenuto, which is measured now."""
    if row.each is None:
        return row
    argv = [sys.executable, "-c", "import tenuto"]
    bare = summarise([pairs(argv, options.references) for _ in range(options.repetitions)])
    ratio = row.each / bare.wall_s
    text = f"<= {OVER_IMPORT} x `python -c 'import tenuto'`"
    return replace(row, target=text, judged=ratio, limit=OVER_IMPORT, note=f"{ratio:.2f} x the import")


def peers(options: Options) -> Iterator[Row]:
    return many(options, "W1", "no-op job", "many", Sizes((2, 4), (4, 10, 20, 60), (20, 100, 1_000)))


WORKLOAD = Workload("W1", "throughput: no-op jobs, two at a time", own, peers, share=0.3)
