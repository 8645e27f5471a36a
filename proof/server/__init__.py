"""Owns the proof that a scheduler can live in a server for months: memory stays flat, no event loop stalls.

Both with real files, and jobs that end in the moment they start (`tests.parts.instant`), so that there is
nothing to measure but the scheduler: `months` lets owners come and go, `load` submits from an event loop.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from proof.report import Case, Options, Planted, Report, Violation
from proof.server.load import Load, submitted_at_a_rate
from proof.server.months import Months, lived_through

S = TypeVar("S")
T = TypeVar("T")

JOBS, JOBS_IN_TESTS = 100_000, 1_000
SECONDS, SECONDS_IN_TESTS = 20.0, 1.0
RATE = 1_000
"""Submissions a second."""
MOST_STALL_S = 0.010
"""How long the caller's loop may stand still for the scheduler's sake."""
MOST_GROWTH_BYTES = 4 << 20
"""By how much memory may grow over the last four fifths of all jobs."""


def run(options: Options) -> Report:
    """Many jobs through one scheduler, then many submissions a second, then the planted bug.

    Each in a fresh process: what was left in memory makes the collector stop the loop longer.
    """
    jobs = JOBS_IN_TESTS if options.small else JOBS
    began = time.perf_counter()
    months = _in_fresh_process(_months, jobs)
    between = time.perf_counter()
    load = _in_fresh_process(_load, SECONDS_IN_TESTS if options.small else SECONDS)
    ended = time.perf_counter()
    return Report(
        name="server",
        title="Server: a scheduler that lives for months",
        cases=(
            Case(
                "months",
                f"{months.owners:,} owners come and go, with jobs that fail, are shared, withdrawn, run once",
                jobs,
                "jobs",
                between - began,
                f"{months.grown / (1 << 20):+.1f} MiB over the last four fifths, {months.kept} jobs kept",
            ),
            Case(
                "load",
                f"{RATE:,} submissions a second from an event loop that also answers",
                load.submitted,
                "jobs",
                ended - between,
                f"the loop stood still for {1e3 * load.stalls.own_s:.1f} ms at most "
                f"({1e3 * load.stalls.wall_s:.1f} ms with the time that the machine had no processor for it, "
                f"which was more than half of it in {load.stalls.left_out:,} moments that are not judged)",
            ),
        ),
        violations=(*judged_months(months), *judged_load(load)),
        planted=_planted() if options.planted else (),
    )


def _in_fresh_process(prove: Callable[[S], T], size: S) -> T:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
        return fresh.submit(prove, size).result()


def _months(jobs: int) -> Months:
    return asyncio.run(lived_through(jobs))


def _load(seconds: float) -> Load:
    return asyncio.run(submitted_at_a_rate(RATE, seconds))


def judged_months(months: Months) -> list[Violation]:
    """What is wrong with a long life."""
    found = []
    if months.grown > MOST_GROWTH_BYTES:
        found.append(f"memory grew by {months.grown:,} bytes after the first fifth of the jobs")
    if months.kept:
        found.append(f"{months.kept} jobs are still kept, though all were forgotten")
    if months.wrong:
        found.append(f"{months.wrong} jobs ended otherwise than they should")
    return [Violation("months", what, again="python -m proof --only server") for what in found]


def judged_load(load: Load) -> list[Violation]:
    """What is wrong with a server under load."""
    found = []
    if load.stalls.own_s > MOST_STALL_S:
        found.append(f"the caller's loop stood still for {1e3 * load.stalls.own_s:.1f} ms")
    if load.ended != load.submitted:
        found.append(f"of {load.submitted} jobs {load.ended} ended")
    return [Violation("load", what, again="python -m proof --only server") for what in found]


def _planted() -> tuple[Planted, ...]:
    """Owners that never forget: the proof would see it."""
    began = time.perf_counter()
    months = asyncio.run(lived_through(JOBS_IN_TESTS, forgets=False))
    found = judged_months(months)
    return (
        Planted(
            "months",
            "never-forgotten",
            "an ended job stays until its owner leaves",
            bool(found),
            found[0].what if found else "",
            time.perf_counter() - began,
        ),
    )
