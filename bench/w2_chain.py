"""Owns W2, chain: jobs that each need the one before, so that one runs at a time."""

from __future__ import annotations

from collections.abc import Iterator

from bench import ours
from bench.peers import many
from bench.rows import Row, seconds_each
from bench.scale import Options, Sizes
from bench.workload import Workload

# launcher -> the most that a hop may take, sizes, an estimate
CASES = {
    "warm": (0.006, Sizes((3, 6), (30, 100), (200, 2_000, 10_000)), 0.015),
    "spawn": (0.012, Sizes((2, 4), (8, 24), (50, 200)), 0.055),
}


def own(options: Options) -> Iterator[Row]:
    for launcher, (most_s, sizes, job_s) in CASES.items():
        for size in (all_sizes := sizes.at(options.scale)):
            found = ours.row(
                options,
                "W2",
                f"chain, {launcher}",
                size,
                "chain.py",
                launcher,
                size,
                target=seconds_each(most_s),
                estimate_s=job_s * size,
                smallest=size == all_sizes[0],
            )
            if found is not None:
                yield found


def peers(options: Options) -> Iterator[Row]:
    return many(options, "W2", "chain", "chain", Sizes((2, 4), (10, 50), (20, 50, 200, 1_000)))


WORKLOAD = Workload("W2", "chain: each job needs the one before", own, peers, share=0.12)
