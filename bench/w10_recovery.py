"""Owns W10, recovery: a scheduler is killed; the next one finds what is done, and adopts what runs.

The running jobs are real processes; the done ones were prepared. A death is seen when listeners are told.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict

from bench import ours
from bench.measure import Broken, Cost, reference, summarise
from bench.rows import OURS, REF_S, Row, missing
from bench.scale import Options, Scale
from bench.scratch import fresh
from bench.workload import Workload

# scale -> (done, running)
SIZES = {
    Scale.TINY: ((5, 2),),
    Scale.QUICK: ((200, 10), (600, 20)),
    Scale.FULL: ((1_000, 100), (10_000, 100)),
    Scale.LARGE: ((1_000, 100), (10_000, 100)),
}
PARTS = {"scan_s": ("scan", 1.5), "adopt_s": ("adopt", 1.0), "death_s": ("death seen", 0.05)}


def own(options: Options) -> Iterator[Row]:
    for done, running in SIZES[options.scale]:
        what = f"{done:,} done, {running} running"
        estimate_s = 0.004 * done + options.repetitions * (2 + 0.0005 * done + 0.03 * running)
        smallest = done == SIZES[options.scale][0][0]
        if not options.budget.affords("W10", what, done + running, estimate_s, smallest=smallest):
            continue
        try:
            yield from _rows(options, done, running, what)
        except Broken as broken:
            yield missing("W10", what, OURS, done, f"failed: {broken}")


def _rows(options: Options, done: int, running: int, what: str) -> Iterator[Row]:
    load = os.getloadavg()[0]
    reports, refs = [], []
    with fresh(options.directory) as place:
        ours.run(options, "prepare.py", done, place=place)
        for repetition in range(options.repetitions):
            refs.append(reference(options.references))
            first = repetition * running
            reports.append(ours.run(options, "recovery.py", done, running, first, place=place))
    ref = summarise(refs)
    for field, (part, most_s) in PARTS.items():
        cost = summarise([Cost(0.0, report[field]) for report in reports])
        in_refs = cost.wall_s / ref.wall_s
        yield Row(
            workload="W10",
            case=f"{part} ({what})",
            system=OURS,
            size=done + running,
            value=cost.wall_s,
            spread=cost.wall_spread,
            ref_wall_s=ref.wall_s,
            ref_cpu_s=ref.cpu_s,
            load=load,
            target=f"<= {most_s:g} s ({most_s / REF_S:.3g} x ref)",
            judged=in_refs,
            limit=most_s / REF_S,
            note=f"{in_refs:.2g} x ref",
            raw=(*(asdict(one) for one in cost.raw),),
        )


WORKLOAD = Workload("W10", "recovery: a killed scheduler's successor", own, share=0.08)
