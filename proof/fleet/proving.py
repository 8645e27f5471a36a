"""Owns what is played how long, in a process of its own, and the report on it.
Strikes nothing and judges nothing; `stage` and `judge` do.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from proof.report import Case, Options, Planted, Report, Violation
from proof.service.bugs import BUGS as KNOWN
from proof.spread import spread

MINUTES, SECONDS_IN_TESTS, SECONDS_TO_FIND = 10.0, 12.0, 40.0
MARGIN_S = 300.0
BUGS = ("no take-over", "run again", "no key")
"""Of `proof.service.bugs`, those that random strikes must give away."""
_REPOSITORY = Path(__file__).parents[2]
_MOST_SHOWN = 20
NOTE = """Two servers share PostgreSQL and `data`, three nodes run the jobs. Struck were servers, nodes
and the database: killed, frozen for up to 20 s, asked to stop. Judged were: each upload that was answered
201 ended as it should (lost), was started once (twice), gave its own user its own secret (wrong owner), and
kept within the quotas; no directory, part of a file or program is left (leaks)."""


def run(options: Options) -> Report:
    seconds = (options.minutes or MINUTES) * 60
    seconds = SECONDS_IN_TESTS if options.small else seconds
    began = time.perf_counter()
    outcome = play(options.first_seed, seconds)
    struck = ", ".join(f"{count} {what}" for what, count in sorted(outcome["struck"].items()))
    tried = f"two servers, three nodes, PostgreSQL; {struck}"
    case = Case("fleet", tried, outcome["jobs"], "jobs", time.perf_counter() - began)
    again = f"python -m proof.fleet {options.first_seed} {seconds:g}"
    problems = outcome["problems"][:_MOST_SHOWN]
    bugs: list[Planted] = []
    if options.planted and not options.small:
        bugs += spread(partial(plant, seed=options.first_seed), list(BUGS), 1)
    return Report(
        name="fleet",
        title="Two servers and three nodes under random strikes",
        cases=(case,),
        violations=tuple(Violation("fleet", problem, outcome["root"], again) for problem in problems),
        planted=tuple(bugs),
        notes=(NOTE,),
    )


def plant(name: str, seed: int) -> Planted:
    """A short play with a bug in every process: do the judges say so?"""
    began = time.perf_counter()
    problems = play(seed, SECONDS_TO_FIND, name)["problems"]
    how = problems[0][:120] if problems else ""
    stands_for = KNOWN[name].stands_for
    return Planted("fleet", name, stands_for, bool(problems), how, time.perf_counter() - began)


def play(seed: int, seconds: float, bug: str = "") -> dict[str, Any]:
    """One play, in a process of its own, which forks."""
    command = [sys.executable, "-m", "proof.fleet", str(seed), str(seconds), bug]
    done = subprocess.run(
        command,
        cwd=_REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=2 * seconds + MARGIN_S,
    )
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome
