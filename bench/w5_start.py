"""Owns W5, start: what `import tenuto` and `tenuto --help` cost over a bare interpreter, in CPU time."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Broken, child, repeat_over
from bench.peers import starting
from bench.rows import OURS, Row, by_cpu, missing
from bench.scale import Options, Scale
from bench.workload import Workload

CASES = {
    "import": (["python", "-c", "import tenuto"], 0.040, "<= 40 ms CPU"),
    "--help": (["tenuto", "--help"], 0.090, "<= 90 ms CPU"),
}


def own(options: Options) -> Iterator[Row]:
    repetitions = max(options.repetitions, 1 if options.scale is Scale.TINY else 7)
    for case, ((command, *rest), limit_s, target) in CASES.items():
        load = os.getloadavg()[0]
        argv = [str(Path(sys.executable).with_name(command)), *rest]
        try:
            child(argv)  # once for nothing: byte code and file cache
        except (Broken, FileNotFoundError) as problem:
            yield missing("W5", case, OURS, 1, f"failed: {problem}")
            continue
        cost = repeat_over(
            repetitions, lambda: child([sys.executable, "-c", "pass"]), lambda argv=argv: child(argv)
        )
        yield by_cpu("W5", case, OURS, 1, cost, load, target, limit_s, note="over python -c pass")


def peers(options: Options) -> Iterator[Row]:
    return starting(options, "W5")


WORKLOAD = Workload("W5", "start: import and --help over bare Python", own, peers)
