"""Owns W11, the monitor: `tenuto ui` on many done jobs, and on a run that is followed.

The jobs were prepared; the server is a process of its own, asked over HTTP on loopback.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator

from bench import ours
from bench.measure import Broken
from bench.places import fresh
from bench.rows import OURS, Row, missing
from bench.scale import Options, Scale
from bench.workload import Workload

SIZES = {
    Scale.TINY: (5,),
    Scale.QUICK: (1_000,),
    Scale.FULL: (10_000,),
    Scale.LARGE: (10_000, 100_000),
}
FOLLOWED = {Scale.TINY: 2, Scale.QUICK: 10, Scale.FULL: 30, Scale.LARGE: 30}
# field -> (what, unit, the most at 10,000 jobs or fewer, the most at 100,000)
PARTS = {
    "ready_s": ("ready", "s", 2.0, 2.0),
    "first_rows_s": ("first rows", "s", 3.0, 3.0),
    "known_s": ("all known", "s", 3.0, 20.0),
    "slowest_s": ("slowest answer while loading", "s", 0.3, 0.3),
    "page_s": ("a page of 100", "s", 0.05, 0.3),
    "filter_s": ("a filter", "s", 0.2, None),
    "sort_s": ("an order", "s", 0.2, None),
    "resident_mb": ("memory", "MB", 150.0, 500.0),
    "idle_percent": ("idle", "%", 3.0, 3.0),
    "marker_to_client_s": ("marker to client, median", "s", 0.2, 0.2),
}


def own(options: Options) -> Iterator[Row]:
    for count in SIZES[options.scale]:
        estimate_s = 0.006 * count + options.repetitions * (15 + 0.002 * count)
        smallest = count == SIZES[options.scale][0]
        if not options.budget.affords("W11", "monitor", count, estimate_s, smallest=smallest):
            continue
        try:
            yield from _rows(options, count)
        except Broken as broken:
            yield missing("W11", "monitor", OURS, count, f"failed: {broken}")


def _rows(options: Options, count: int) -> Iterator[Row]:
    load = os.getloadavg()[0]
    reports = []
    for _ in range(options.repetitions):
        with fresh(options.directory) as place:
            ours.run(options, "prepare.py", count, place=place)
            reports.append(ours.run(options, "monitor.py", count, FOLLOWED[options.scale], place=place))
    for field, (part, unit, most, most_of_many) in PARTS.items():
        found = [report[field] for report in reports]
        value = statistics.median(found)
        limit = most if count <= 10_000 else most_of_many
        yield Row(
            workload="W11",
            case=part,
            system=OURS,
            size=count,
            unit=unit,
            value=value,
            spread=(max(found) - min(found)) / value if value else None,
            load=load,
            target=f"<= {limit:g} {unit}" if limit is not None else "",
            judged=value if limit is not None else None,
            limit=limit,
            raw=tuple(found),
        )


WORKLOAD = Workload("W11", "monitor: tenuto ui on many jobs", own, share=0.08)
