"""Owns W3, nothing to do: the same experiment again, the whole process of the user's script."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench import ours
from bench.measure import Broken, beside_reference, tree
from bench.peers import again
from bench.rows import OURS, Row, missing, seconds_whole, timed
from bench.scale import Options, Sizes
from bench.scratch import footprint, fresh, last_changes
from bench.workload import Workload

SIZES = Sizes((5, 10), (300, 1_000), (1_000, 10_000), (100_000,))
TARGETS_S = {1_000: 0.2, 10_000: 1.2}
CASE = "all done before"


def own(options: Options) -> Iterator[Row]:
    for size in (sizes := SIZES.at(options.scale)):
        estimate_s = 0.003 * size + options.repetitions * (0.3 + 0.0003 * size)
        if not options.budget.affords("W3", CASE, size, estimate_s, smallest=size == sizes[0]):
            continue
        with fresh(options.directory) as place:
            try:
                yield _row(options, place, size)
            except Broken as broken:
                yield missing("W3", CASE, OURS, size, f"failed: {broken}")


def _row(options: Options, place: Path, size: int) -> Row:
    ours.run(options, "prepare.py", size, place=place)
    argv = [sys.executable, str(ours.DRIVERS / "again.py"), str(size)]
    before = last_changes(place / "ws" / "jobs")
    found = beside_reference(
        options.repetitions,
        options.references,
        lambda: tree(argv, directory=place, timeout_s=600).cost,
    )
    goal = seconds_whole(TARGETS_S[size]) if size in TARGETS_S else None
    row = timed("W3", CASE, OURS, size, found, goal)
    if last_changes(place / "ws" / "jobs") != before:
        return replace(row, limit=-1.0, note="WROTE in the jobs' directories")
    inodes, taken = footprint(place / "ws")
    held = f"{inodes / size:.1f} inodes and {taken / size / 1000:.1f} kB a job"
    return replace(row, note=f"whole process; wrote nothing in the jobs' directories; {held}")


def peers(options: Options) -> Iterator[Row]:
    return again(options, "W3", CASE, Sizes((2, 4), (4, 10, 20, 60), (20, 100, 1_000)))


WORKLOAD = Workload("W3", "nothing to do: the same experiment again", own, peers, share=0.06)
