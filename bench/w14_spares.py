"""Owns W14, idle time: how long a token is unused between two jobs whose module takes long to import.

Such a module cannot be forked. `warm` imports it for the next job while one runs; `spawn` does not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from bench import ours
from bench.measure import Broken
from bench.rows import OURS, Row, missing, plain
from bench.scale import Options, Scale, Sizes
from bench.workload import Workload

SIZES = Sizes((3,), (6,), (12,))
WORK_S = {Scale.TINY: 0.1}
USUAL_WORK_S = 1.0
MOST_S = {"warm": 0.05, "spawn": None}


def own(options: Options) -> Iterator[Row]:
    work_s = WORK_S.get(options.scale, USUAL_WORK_S)
    for launcher, most_s in MOST_S.items():
        for size in SIZES.at(options.scale):
            case = f"between two jobs, {launcher}"
            if not options.budget.affords("W14", case, size, (work_s + 0.6) * size, smallest=True):
                continue
            try:
                report = ours.run(options, "spares.py", launcher, size, work_s)
            except Broken as broken:
                yield missing("W14", case, OURS, size, f"failed: {broken}")
                continue
            target = "" if most_s is None else f"<= {most_s:g} s"
            note = f"0.5 s of import, {work_s:g} s of work; the median from the second pair on"
            load = os.getloadavg()[0]
            yield plain("W14", case, OURS, size, "s", report["idle"][1:], load, target, most_s, note)


WORKLOAD = Workload("W14", "idle time: a token between two jobs that cannot be forked", own)
