"""Owns W13, scale up: W1 and W2 with more slots, and what of each job's time is the scheduler's own.

The scheduler is one process, so its CPU time for a job is the ceiling, however many cores there are. W2 has a
chain for each slot. On fewer cores than slots the figures say nothing of the slots, only of the scheduler.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import replace

from bench import ours
from bench.measure import Broken, Cost, summarise
from bench.rows import OURS, Row, by_cpu, missing, timed
from bench.scale import Options, Scale
from bench.workload import Workload

JOBS = {Scale.TINY: 4, Scale.QUICK: 40, Scale.FULL: 400, Scale.LARGE: 1_000}
"""For each slot."""
MOST_S = 0.0012
"""CPU time of the scheduler's process for a job: 800 jobs a second."""
JOB_S = 0.008


def own(options: Options) -> Iterator[Row]:
    for slots in options.slots[:2] if options.scale is Scale.TINY else options.slots:
        size = JOBS[options.scale] * slots
        script = ("script.py", size, slots)
        chains = ("chain.py", "warm", JOBS[options.scale], slots)
        for case, arguments in (("README's script", script), ("a chain for each slot", chains)):
            yield from _rows(options, f"{case}, slots: {slots}", size, slots, arguments)


def _rows(options: Options, case: str, size: int, slots: int, arguments: tuple[object, ...]) -> Iterator[Row]:
    estimate_s = JOB_S * size * options.repetitions
    if not options.budget.affords("W13", case, size, estimate_s, smallest=slots == options.slots[0]):
        return
    name, *rest = arguments
    try:
        found, reports = ours.measured(options, str(name), *rest)
    except Broken as broken:
        yield missing("W13", case, OURS, size, f"failed: {broken}")
        return
    around = f"Python {platform.python_version()}, {os.cpu_count()} cores"
    rate = f"{size / found.cost.wall_s:.0f} jobs/s; {around}"
    yield replace(timed("W13", case, OURS, size, found), note=rate)
    cost = summarise([Cost(report["scheduler_cpu_s"], report["wall_s"]) for report in reports])
    target = f"<= {MOST_S * 1000:g} ms of CPU a job"
    yield by_cpu(
        "W13", f"{case}; of this the scheduler", OURS, size, cost, found.load, target, MOST_S * size, around
    )


WORKLOAD = Workload("W13", "scale up: more slots, and the scheduler's own CPU time", own, share=0.2)
