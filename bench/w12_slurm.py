"""Owns W12, Slurm: no-op jobs on a private cluster, by arrays, one by one and in a pilot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import ours
from bench.measure import ENVIRONMENT, Broken
from bench.places import fresh
from bench.rows import FLOOR, OURS, Row, missing, plain
from bench.scale import Options, Sizes
from bench.workload import Workload
from tests.parts.slurm import PrivateSlurm
from tests.parts.slurm_configuration import Shape

SIZES = Sizes((3,), (50,), (200, 1000))
SLOTS = 8
JOB_S = 0.1
"""A rough guess at what one job takes, for the budget."""
MOST_OF_BARE = 1.2
MOST_OF_WARM = 1.3
BARE = "bare array: python -c 'import tenuto'"
CASES: dict[str, dict[str, str]] = {
    "arrays": {},
    "single sbatch": {"array_size": "1"},
    "pilot": {"pilots": "1", "pilot_cpus": "4", "pilot_idle_s": "1"},
}
"""Case -> settings of Slurm."""
WARM = {"TENUTO_LAUNCHER": "warm", "TENUTO_SLOTS": "4"}
"""As many slots as the pilot has."""


def own(options: Options) -> Iterator[Row]:
    try:
        cluster = PrivateSlurm(Shape(nodes=2, cpus=SLOTS // 2))
    except (RuntimeError, OSError) as problem:
        yield missing("W12", "arrays", OURS, SIZES.at(options.scale)[0], f"no private Slurm here: {problem}")
        return
    try:
        for size in SIZES.at(options.scale):
            smallest = size == SIZES.at(options.scale)[0]
            if options.budget.affords("W12", "all", size, 5 * size * JOB_S, smallest=smallest):
                yield from _rows(options, cluster, size)
    finally:
        cluster.close()


def _rows(options: Options, cluster: PrivateSlurm, size: int) -> Iterator[Row]:
    """Each figure beside its peer, measured one after the other in each repetition."""
    load = os.getloadavg()[0]
    measures: dict[str, Callable[[], float]] = {
        BARE: lambda: _bare(cluster, size),
        "warm beside": lambda: _ours(options, cluster, size, WARM),
        **{case: _case(options, cluster, size, variables) for case, variables in CASES.items()},
    }
    values: dict[str, list[float]] = {case: [] for case in measures}
    for _ in range(options.repetitions):
        for case, measure in measures.items():
            try:
                values[case].append(measure())
            except (Broken, subprocess.SubprocessError) as broken:
                yield missing("W12", case, OURS, size, f"failed: {broken}")
                return
    medians = {case: sorted(found)[len(found) // 2] for case, found in values.items()}
    limits = {"arrays": MOST_OF_BARE * medians[BARE], "pilot": MOST_OF_WARM * medians["warm beside"]}
    targets = {"arrays": f"<= {MOST_OF_BARE} x bare", "pilot": f"<= {MOST_OF_WARM} x warm"}
    for case, found in values.items():
        system = FLOOR if case == BARE else OURS
        yield plain("W12", case, system, size, "s", found, load, targets.get(case, ""), limits.get(case))


def _case(options: Options, cluster: PrivateSlurm, size: int, given: dict[str, str]) -> Callable[[], float]:
    variables = {f"TENUTO_SLURM__{name.upper()}": value for name, value in given.items()}
    return lambda: _ours(options, cluster, size, {"TENUTO_LAUNCHER": "slurm", **variables})


def _ours(options: Options, cluster: PrivateSlurm, size: int, variables: dict[str, str]) -> float:
    """Seconds from entering an experiment to leaving it."""
    environment = {**ENVIRONMENT, **cluster.environment, "PATH": os.environ["PATH"], **variables}
    command = [sys.executable, str(ours.DRIVERS / "slurm.py"), str(size)]
    with fresh(options.directory) as place:
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, text=True, timeout=1800, check=False
        )
    if done.returncode:
        raise Broken(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "it failed")
    return float(json.loads(done.stdout.splitlines()[-1])["wall_s"])


def _bare(cluster: PrivateSlurm, size: int) -> float:
    """Seconds that Slurm takes for an array of interpreters that import Tenuto and end."""
    root = Path(__file__).parents[1] / "src"
    script = f"#!/bin/sh\nPYTHONPATH={root} exec {sys.executable} -c 'import tenuto'\n"
    began = time.monotonic()
    submitted = subprocess.run(
        ["sbatch", "--parsable", "--output=/dev/null", "--chdir=/", f"--array=0-{size - 1}"],
        input=script,
        env={**os.environ, **cluster.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    job = submitted.stdout.strip()
    unfinished = ("squeue", "-h", "-r", "-t", "PENDING,RUNNING,COMPLETING", "-j", job)
    while cluster.run(*unfinished, check=False).strip():
        time.sleep(0.05)
    return time.monotonic() - began


WORKLOAD = Workload("W12", "Slurm: no-op jobs on a private cluster", own, share=0.1)
