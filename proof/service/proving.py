"""Owns the proof of the job service by killing: has the cases played in a few processes at once, and reports.
Knows no kill point and no verdict; `points` and `judge` do.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proof import theatres
from proof.report import Case as Line
from proof.report import Options, Planted, Report, Violation
from proof.service import simulation
from proof.service.bugs import BUGS
from proof.service.case import APART, CASES, EMBEDDED, SAMPLE, Case
from proof.spread import spread

SEEDS, SEEDS_IN_TESTS, SEEDS_TO_FIND = 400, 5, 20
THEATRE = "proof.service.theatre"
TRIED = {
    APART: "server and node are killed, each at one of its kill points; each is started again",
    EMBEDDED: "a server with a node is killed at one kill point, started again, and killed at another",
}
NOTE = """Each case was played with real processes and SIGKILL: a good job, one that fails, and one that is
ended. Judged were: both blows fell; each job ended as it should, was started once, and its result is whole;
no directory without a job, no part of a file and no program is left."""


def run(options: Options) -> Report:
    cases = SAMPLE if options.small else CASES
    lines, violations = [], []
    for layout, tried in TRIED.items():
        began = time.perf_counter()
        results = play([case for case in cases if case.layout == layout], options.workers)
        lines.append(Line(layout, tried, len(results), "pairs", time.perf_counter() - began))
        violations += [_violation(result) for result in results if result["problems"]]
    line, found = simulated(options)
    bugs: list[Planted] = []
    if options.planted and not options.small:
        bugs += spread(plant, list(BUGS), options.workers)
        bugs += spread(plant_in_simulation, list(simulation.PLANTED), options.workers)
    return Report(
        name="service",
        title="Servers and nodes are killed at every pair of their kill points, and simulated",
        cases=(*lines, line),
        violations=(*violations, *found),
        planted=tuple(bugs),
        notes=(NOTE,),
    )


def simulated(options: Options) -> tuple[Line, list[Violation]]:
    """Plays the seeds of the simulation; what they came to."""
    seeds = range(
        options.first_seed,
        options.first_seed + (options.seeds or (SEEDS_IN_TESTS if options.small else SEEDS)),
    )
    began = time.perf_counter()
    verdicts = list(spread(simulation.played, seeds, options.workers))
    tried = "real stages of two servers, fake nodes: kills, freezes, lost calls and answers, clocks that jump"
    line = Line("simulation", tried, len(verdicts), "seeds", time.perf_counter() - began)
    return line, [
        Violation("simulation", verdict.problems[0], "\n".join(verdict.problems), f"seed {verdict.seed}")
        for verdict in verdicts
        if verdict.problems
    ]


def plant_in_simulation(name: str) -> Planted:
    """Plays seeds until one gives the bug away."""
    began = time.perf_counter()
    stands_for = simulation.PLANTED[name]
    for seed in range(SEEDS_TO_FIND):
        if problems := simulation.played(seed, name).problems:
            how = f"{problems[0]}, seed {seed}"
            return Planted("simulation", name, stands_for, True, how, time.perf_counter() - began)
    return Planted("simulation", name, stands_for, False, "", time.perf_counter() - began)


def play(cases: Sequence[Case], count: int) -> list[dict[str, Any]]:
    """Plays the cases in so many processes; one result for each."""
    memory = "/dev/shm"  # nothing here survives a power cut, and nothing needs to
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="tn-service-", dir=place) as root:
        return theatres.play(THEATRE, [case._asdict() for case in cases], Path(root), count)


def plant(name: str) -> Planted:
    """Plays the case that must give a bug away, with the bug in every process."""
    began = time.perf_counter()
    (result,) = play([BUGS[name].case(name)], 1)
    problems = result["problems"]
    how = problems[0].partition(":")[0] if problems else ""
    stands_for = BUGS[name].stands_for
    return Planted(BUGS[name].layout, name, stands_for, bool(problems), how, time.perf_counter() - began)


def _violation(result: dict[str, Any]) -> Violation:
    case = Case(**result["case"])
    problems = result["problems"]
    again = f"python -m proof.service {case.layout} {case.first} {case.second}"
    return Violation(case.name, problems[0].splitlines()[0], "\n".join(problems[1:]), again)
