"""The proof by soaking: plays one soak in a process of its own, and reports.
What is done there is `stage`'s business.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from proof.report import Case, Options, Planted, Report, Violation
from proof.soak.bugs import BUGS
from proof.soak.stage import EVERY_S, WAITS, Soak
from proof.spread import spread

CORES = 4
"""How many cores one soak keeps busy: on fewer it takes longer than it waits."""
JOBS_A_MINUTE, MINUTES = 400, 5.0
PATIENCE = 6.0
"""How many times as long as its strikes each wait of a soak may last."""
LEAST_PATIENCE_S = 300.0
MARGIN_S = 120.0
"""For the start of the stage and the judge."""
HUNT_JOBS, HUNT_S, HUNT_PATIENCE_S = 120, 15.0, 60.0
"""Of a soak that looks for a planted bug: it may break so much that nothing ever comes to its end."""
JOBS_IN_TESTS, MINUTES_IN_TESTS = 60, 10 / 60
_REPOSITORY = Path(__file__).parents[2]
_MOST_SHOWN = 20


def prove(options: Options) -> Report:
    """Soak for as long as was asked."""
    minutes = options.minutes or (MINUTES_IN_TESTS if options.small else MINUTES)
    jobs = JOBS_IN_TESTS if options.small else max(JOBS_IN_TESTS, round(JOBS_A_MINUTE * minutes))
    soak = Soak(options.first_seed, jobs, minutes * 60, max(LEAST_PATIENCE_S, PATIENCE * minutes * 60))
    print(f"soak: seed {soak.seed}, {soak.jobs} jobs, {minutes:g} minutes", file=sys.stderr, flush=True)
    began = time.perf_counter()
    outcome = play(soak)
    found = report(soak, outcome, time.perf_counter() - began)
    if options.planted and not options.small:  # in small sizes the tests ask the judge directly
        at_once = max(options.workers // CORES, 1)
        bugs = spread(partial(hunt, seed=options.first_seed), list(BUGS), at_once)
        found = replace(found, planted=tuple(bugs))
    return found


def hunt(name: str, seed: int, jobs: int = HUNT_JOBS, seconds: float = HUNT_S) -> Planted:
    """A short soak with a bug in every scheduler: does the judge say what it must?"""
    began = time.perf_counter()
    outcome = play(Soak(seed, jobs, seconds, HUNT_PATIENCE_S, name, BUGS[name].aim))
    seen = [problem for problem in outcome["problems"] if BUGS[name].shows in problem]
    shutil.rmtree(outcome["root"], ignore_errors=True)
    how = f"{len(seen)} times, first: {seen[0]:.120}" if seen else ""
    return Planted("soak", name, BUGS[name].stands_for, bool(seen), how, time.perf_counter() - began)


def play(soak: Soak) -> dict[str, Any]:
    """One soak, in a process of its own; `TimeoutExpired` if it outlives all of its own deadlines."""
    command = [sys.executable, "-m", "proof.soak", "stage", json.dumps(soak._asdict())]
    longest_s = soak.seconds + WAITS * soak.patience_s + MARGIN_S
    done = subprocess.run(
        command, cwd=_REPOSITORY, stdout=subprocess.PIPE, text=True, check=True, timeout=longest_s
    )
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


def report(soak: Soak, outcome: dict[str, Any], seconds: float) -> Report:
    struck = sum(outcome["struck"].values())
    again = f"python -m proof.soak stage '{json.dumps(soak._asdict())}'"
    problems = outcome["problems"]
    violations = [Violation("soak", problem, outcome["root"], again) for problem in problems[:_MOST_SHOWN]]
    if len(problems) > _MOST_SHOWN:
        violations.append(
            Violation("soak", f"and {len(problems) - _MOST_SHOWN} more", outcome["root"], again)
        )
    return Report(
        name="soak",
        title="Soak: three schedulers under random SIGKILL and SIGSTOP",
        cases=(
            Case(
                "soak",
                f"three schedulers on one workspace, warm and spawn, {struck:,} processes struck, one every "
                f"{EVERY_S * 1000:.0f} ms for {soak.seconds:g} s",
                outcome["jobs"],
                "jobs",
                seconds,
                f"seed {soak.seed}; {outcome['payloads']:,} payloads, {outcome['schedulers']} starts of "
                f"schedulers",
            ),
        ),
        violations=tuple(violations),
        notes=tuple(_notes(outcome)),
        seconds=seconds,
    )


def _notes(outcome: dict[str, Any]) -> Iterator[str]:
    yield "Struck: " + ", ".join(f"{what} {count}" for what, count in outcome["struck"].items()) + "."
    yield (
        f"When the strikes ended, {outcome['open_then']} jobs were not done; all was, "
        f"{outcome['ended_s']:g} s after the beginning."
    )
    witness = outcome["witness"]
    first, last = witness["first"], witness["last"]
    yield (
        f"The scheduler that lived through it all saw {witness['waves']} experiments: {first / 1e6:.1f} MB "
        f"in the first minute, {last / 1e6:.1f} MB at the end ({last / first - 1:+.1%}); descriptors "
        f"{witness['descriptors'][0]} and {witness['descriptors'][1]}."
    )
