"""Owns W7, identity: building configs and computing their identities, at two sizes each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from bench import peers
from bench.measure import Broken, Cost, driver, summarise
from bench.report import Row
from bench.workload import Options, Workload

DRIVER = Path(__file__).with_name("drivers") / "identity.py"

# case -> what it is, the two sizes, and the target for one unit of size (identity only)
CASES = {
    "a": ("tasks of 3 parameters", (1_000, 10_000), 10e-6, "<= 10 us each"),
    "b": ("a list of sub-configs", (100, 1_000), 10e-6, "<= 10 ms for 1,000"),
    "c": ("nested deep", (100, 1_000), 10e-6, "<= 10 ms for 1,000"),
    "d": ("tasks sharing a dataset of 100", (1_000, 10_000), None, "no dearer than (a)"),
}


def rows(options: Options) -> Iterator[Row]:
    yield from _system("tenuto", Path(sys.executable), options, ours=True)
    try:
        python = peers.interpreter("experimaestro", enabled=options.peers)
    except peers.PeerAbsent as absent:
        yield Row("W7", "identity", "experimaestro", 1, note=f"absent: {absent}")
    else:
        yield from _system("experimaestro", python, options, ours=False)


def _system(system: str, python: Path, options: Options, *, ours: bool) -> Iterator[Row]:
    dearest_s: dict[int, float] = {}  # what (a) took at each size, the target of (d)
    for case, (what, sizes, each_s, target) in CASES.items():
        for size in [n // 10 for n in sizes] if options.quick else sizes:
            title = f"({case}) {what}"
            try:
                # A fresh process each time: fresh configs, and no cache warmed by the last repetition.
                runs = [
                    driver(str(python), str(DRIVER), system, case, str(size))
                    for _ in range(options.repetitions)
                ]
            except Broken as error:
                yield Row("W7", title, system, size, note=f"failed: {error}".replace("|", "/"))
                continue
            note = runs[0].get("note", "")
            build = summarise([Cost(**run["build"]) for run in runs])
            digest = summarise([Cost(**run["identity"]) for run in runs])
            if case == "a":
                dearest_s[size] = digest.cpu_s
            goal_s = dearest_s.get(size) if each_s is None else each_s * size
            yield Row("W7", f"{title}: build", system, size, build, note=note)
            goal = {"target": target, "target_s": goal_s} if ours else {}
            yield Row("W7", f"{title}: identity", system, size, digest, note=note, **goal)


WORKLOAD = Workload("W7", "identity: build and hash configs", rows)
