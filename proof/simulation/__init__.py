"""Owns the proof by simulation: the real scheduler on a virtual machine that crashes, thousands of times.

Each seed is a world (`scenario`), lived through without threads, files or real time (`world`), and held
against what Tenuto promises by a judge that trusts nothing of it (`judge`). A world that breaks a promise is
made small (`shrink`). Bugs that are put in on purpose (`planted`) show that they would be found.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from proof.report import Case, Options, Planted, Report, Violation
from proof.simulation.planted import BUGS, planted
from proof.simulation.scenario import FAR, FAR_AT, Scenario, draw
from proof.simulation.shrink import shown, shrunk
from proof.simulation.world import Outcome, simulate
from proof.spread import spread

SEEDS = 10_000
SEEDS_IN_TESTS = 500
"""How many worlds there are, and how many worlds with a cluster."""
SEEDS_FOR_A_BUG = 2_000
"""Within so many seeds each planted bug must be found."""
_CHUNK = 50
_MOST_SHOWN = 5
"""After so many failing seeds the others are only counted."""


class Tally(NamedTuple):
    """What a group of seeds came to."""

    seeds: int = 0
    jobs: int = 0
    payloads: int = 0
    deeds: int = 0
    virtual_s: float = 0.0
    failing: tuple[int, ...] = ()


def run(options: Options) -> Report:
    """Live through all worlds, then look for each planted bug."""
    seeds = options.seeds or (SEEDS_IN_TESTS if options.small else SEEDS)
    first, end = options.first_seed, options.first_seed + seeds
    case, failing = _lived_through("worlds", range(first, end), options)
    # Some of those had a cluster; with these there are as many as were asked for.
    later = [seed for seed in range(end, first + FAR * seeds) if seed % FAR == FAR_AT]
    far_case, far_failing = _lived_through("worlds with a cluster", later, options)
    far_case = replace(far_case, note=f"{seeds:,} with those above; {far_case.note}")
    failing += far_failing
    violations = [explained(seed) for seed in failing[:_MOST_SHOWN]]
    if len(failing) > _MOST_SHOWN:
        others = ", ".join(map(str, failing[_MOST_SHOWN:]))
        violations.append(Violation("worlds", f"more seeds fail: {others}"))
    bugs = tuple(spread(_search, list(BUGS), options.workers)) if options.planted else ()
    return Report(
        name="simulation",
        title="Simulation: the real scheduler on a virtual machine that crashes",
        cases=(case, far_case),
        violations=tuple(violations),
        planted=bugs,
        notes=(f"The seeds are {first} to {end - 1}, then those that bring a cluster to {later[-1]}.",),
    )


def _lived_through(name: str, seeds: Sequence[int], options: Options) -> tuple[Case, tuple[int, ...]]:
    """What a group of worlds came to, and the seeds of those that broke a promise."""
    began = time.perf_counter()
    chunks = [seeds[at : at + _CHUNK] for at in range(0, len(seeds), _CHUNK)]
    tally = added(spread(lived, chunks, options.workers))
    tried = (
        f"1 to 3 schedulers, {tally.jobs:,} jobs, {tally.payloads:,} payloads, {tally.deeds:,} deeds "
        f"(crashes, power losses, full disks, delays, clock jumps, cancellations ...)"
    )
    hours = f"{tally.virtual_s / 3600:,.0f} virtual hours"
    case = Case(name, tried, tally.seeds, "seeds", time.perf_counter() - began, hours)
    return case, tally.failing


def lived(seeds: Iterable[int]) -> Tally:
    """Live through these worlds."""
    return added(_tallied(simulate(draw(seed))) for seed in seeds)


def added(tallies: Iterable[Tally]) -> Tally:
    total = Tally()
    for tally in tallies:
        total = Tally(
            total.seeds + tally.seeds,
            total.jobs + tally.jobs,
            total.payloads + tally.payloads,
            total.deeds + tally.deeds,
            total.virtual_s + tally.virtual_s,
            total.failing + tally.failing,
        )
    return total


def first_finding(name: str, seeds: Iterable[int]) -> Outcome | None:
    """The first world in which a planted bug breaks a promise."""
    with planted(name):
        worlds = (simulate(draw(seed), is_hasty=True) for seed in seeds)
        return next((world for world in worlds if world.violations), None)


def explained(seed: int) -> Violation:
    """A failing seed: what it breaks, the smallest scenario that does so too, and the story of that."""
    outcome = simulate(draw(seed))
    small = smallest(outcome)
    return Violation(
        case="worlds",
        what=f"seed {seed}: {outcome.violations[0]}",
        details=f"{shown(small.scenario)}\n\n{small.story()}\n\n" + "\n".join(small.violations),
        again=f"python -m proof.simulation {seed}",
    )


def smallest(outcome: Outcome) -> Outcome:
    """The same violation in the smallest world that shows it."""
    wanted = kinds(outcome)
    return simulate(shrunk(outcome.scenario, lambda smaller: _breaks(smaller, wanted)))


def kinds(outcome: Outcome) -> set[str]:
    """What was violated, whatever the names and numbers."""
    return {re.sub(r"\w*\d[\w.]*", "#", violation)[:40] for violation in outcome.violations}


def _breaks(scenario: Scenario, wanted: set[str]) -> bool:
    return bool(kinds(simulate(scenario, is_hasty=True)) & wanted)


def _tallied(outcome: Outcome) -> Tally:
    scenario = outcome.scenario
    failing = (scenario.seed,) if outcome.violations else ()
    return Tally(1, len(scenario.jobs), outcome.payloads, len(scenario.deeds), outcome.virtual_s, failing)


def _search(name: str) -> Planted:
    began = time.perf_counter()
    found = first_finding(name, range(SEEDS_FOR_A_BUG))
    how = "" if found is None else f"seed {found.scenario.seed}: {found.violations[0]}"
    seconds = time.perf_counter() - began
    return Planted("worlds", name, BUGS[name].stands_for, found is not None, how, seconds)
