"""Owns W4, memory: the peak of the scheduler's process at several sizes, as MB and kB a job.

100,000 jobs need not run for that: they wait behind one that sleeps, or are found done. Fewer are really run.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Sequence

from bench import ours
from bench.measure import Broken
from bench.peers import peaks
from bench.rows import OURS, Row, missing, plain
from bench.scale import Options, Sizes
from bench.scratch import fresh
from bench.workload import Workload

# case -> driver and its arguments before the size, whether jobs are prepared, sizes, an estimate for a job
CASES = {
    "jobs waiting": (
        "memory.py",
        ("waiting",),
        False,
        Sizes((5, 50), (1_000, 3_000), (1_000, 10_000, 100_000)),
    ),
    "jobs found done": (
        "memory.py",
        ("done",),
        True,
        Sizes((5, 50), (300, 1_000), (1_000, 10_000), (100_000,)),
    ),
    "jobs run, warm": ("throughput.py", ("warm", "noop"), False, Sizes((5, 10), (100, 300), (1_000, 5_000))),
}
JOB_S = {"jobs waiting": 0.0006, "jobs found done": 0.0035, "jobs run, warm": 0.004}
BASE_MB, JOB_KB = 35.0, 2.0
TARGET = "<= 35 MB + 2 kB a job"


def line(sizes: Sequence[int], values: Sequence[float]) -> tuple[float, float]:
    """Base and slope of the straight line through points, by least squares."""
    slope, base = statistics.linear_regression(sizes, values)
    return base, slope


def own(options: Options) -> Iterator[Row]:
    for case, (name, arguments, prepared, sizes) in CASES.items():
        points: dict[int, float] = {}
        for size in (all_sizes := sizes.at(options.scale)):
            estimate_s = JOB_S[case] * size * options.repetitions
            if not options.budget.affords("W4", case, size, estimate_s, smallest=size == all_sizes[0]):
                continue
            load = os.getloadavg()[0]
            try:
                peaks_mb = _peaks_mb(options, name, arguments, prepared, size)
            except Broken as broken:
                yield missing("W4", case, OURS, size, f"failed: {broken}")
                continue
            points[size] = statistics.median(peaks_mb)
            limit = BASE_MB + JOB_KB * size / 1024
            yield plain("W4", case, OURS, size, "MB", peaks_mb, load, TARGET, limit)
        yield from growth(case, OURS, points)


def _peaks_mb(
    options: Options, name: str, arguments: tuple[str, ...], prepared: bool, size: int
) -> list[float]:
    if not prepared:
        return [
            ours.run(options, name, *arguments, size)["peak_kb"] / 1024 for _ in range(options.repetitions)
        ]
    with fresh(options.directory) as place:
        ours.run(options, "prepare.py", size, place=place)
        return [
            ours.run(options, name, *arguments, size, place=place)["peak_kb"] / 1024
            for _ in range(options.repetitions)
        ]


def growth(case: str, system: str, points: dict[int, float]) -> Iterator[Row]:
    """The row that says what is left of the sizes: a base, and what each job adds."""
    if len(points) < 2:
        return
    base_mb, job_mb = line(list(points), list(points.values()))
    note = f"{base_mb:.1f} MB {job_mb * 1024:+.2f} kB a job"
    yield Row(
        workload="W4",
        case=f"{case}: growth",
        system=system,
        size=max(points),
        unit="kB a job",
        value=job_mb * 1024,
        note=note,
    )


def theirs(options: Options) -> Iterator[Row]:
    """From the runs of W1: the largest process of each."""
    for peer, by_size in peaks(options).items():
        points: dict[int, float] = {}
        for size, (load, peaks_kb) in by_size.items():
            values = [kb / 1024 for kb in peaks_kb]
            points[size] = statistics.median(values)
            yield plain(
                "W4", "jobs run", peer, size, "MB", values, load, note="largest process in its runs of W1"
            )
        yield from growth("jobs run", peer, points)


WORKLOAD = Workload("W4", "memory: the scheduler's peak", own, theirs, share=0.1)
