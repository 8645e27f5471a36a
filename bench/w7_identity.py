"""Owns W7, identity: building configs, computing their identities, submitting them, at two sizes each."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Broken, Cost, driver, summarise
from bench.ours import DRIVERS
from bench.peers import chosen
from bench.peers.environments import interpreter
from bench.peers.peer import PeerAbsent
from bench.rows import OURS, Row, by_cpu, missing
from bench.scale import Options, Sizes
from bench.scratch import fresh
from bench.workload import Workload

WIDE = Sizes((10, 100), (100, 1_000), (1_000, 10_000))
DEEP = Sizes((5, 10), (100, 1_000), (100, 1_000))
# case -> what it is, its sizes, and the target for one unit of size (identity only)
CASES = {
    "a": ("tasks of 3 parameters", WIDE, 10e-6, "<= 10 us each"),
    "b": ("a list of sub-configs", DEEP, 10e-6, "<= 10 ms for 1,000"),
    "c": ("nested deep", DEEP, 10e-6, "<= 10 ms for 1,000"),
    "d": ("tasks sharing a dataset of 100", WIDE, None, "no dearer than (a)"),
}
COMPARED = "experimaestro"
"""The peer that has such a thing."""


SUBMITTED = Sizes((10,), (100,), (100, 1_000))


def own(options: Options) -> Iterator[Row]:
    yield from _system(options, OURS, Path(sys.executable))
    title = "(e) submit tasks of 20 configs from 10 modules"
    for size in SUBMITTED.at(options.scale):
        if options.budget.affords("W7", title, size, 2.0 * options.repetitions, smallest=True):
            load = os.getloadavg()[0]
            runs = []
            for _ in range(options.repetitions):
                with fresh(options.directory) as place:
                    runs.append(driver(DRIVERS / "submits.py", size, directory=place))
            cost = summarise([Cost(**run["submit"]) for run in runs])
            yield by_cpu("W7", title, OURS, size, cost, load, "<= 1 ms each", 1e-3 * size)


def peers(options: Options) -> Iterator[Row]:
    for peer in chosen(options):
        if peer.name == COMPARED:
            try:
                python = interpreter(peer)
            except PeerAbsent as absent:
                yield missing("W7", "identity", peer.title, 1, f"absent: {absent}")
            else:
                yield from _system(options, peer.title, python)


def _system(options: Options, system: str, python: Path) -> Iterator[Row]:
    dearest_s: dict[int, float] = {}  # what (a) took at each size, the target of (d)
    for case, (what, sizes, each_s, target) in CASES.items():
        for size in sizes.at(options.scale):
            title = f"({case}) {what}"
            if not options.budget.affords(
                "W7", f"{system} {title}", size, 0.3 * options.repetitions, smallest=True
            ):
                continue
            load = os.getloadavg()[0]
            try:
                # A fresh process each time: fresh configs, and no cache warmed by the last repetition.
                with fresh(options.directory) as place:
                    runs = [
                        driver(
                            DRIVERS / "identity.py", system, case, size, directory=place, python=str(python)
                        )
                        for _ in range(options.repetitions)
                    ]
            except Broken as broken:
                yield missing("W7", title, system, size, f"failed: {broken}")
                continue
            note = runs[0].get("note", "")
            build = summarise([Cost(**run["build"]) for run in runs])
            digest = summarise([Cost(**run["identity"]) for run in runs])
            if case == "a":
                dearest_s[size] = digest.cpu_s
            goal_s = dearest_s.get(size) if each_s is None else each_s * size
            yield by_cpu("W7", f"{title}: build", system, size, build, load, note=note)
            goal = (target, goal_s) if system == OURS else ("", None)
            yield by_cpu("W7", f"{title}: identity", system, size, digest, load, *goal, note=note)


WORKLOAD = Workload("W7", "identity: build, hash and submit configs", own, peers)
