"""Owns the proof by killing: has the cases played in a few processes at once, and reports.
Knows no step and no verdict; `cases` and `judge` do.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from proof import theatres
from proof.matrix.bugs import BUGS
from proof.matrix.cases import KINDS, sampled
from proof.matrix.kinds import STRIKERS, Fields
from proof.report import Case, Options, Planted, Report, Violation
from proof.spread import spread

THEATRE = "proof.matrix.theatre"
SMALL = 300
"""How many cases there are in the sizes of `make test`."""
NOTE = """Each case was played with real processes and SIGKILL. Judged were: the last scheduler sees the job
done (or failed, or cancelled, as it is to end), no scheduler is stuck or fails, no two payloads at once, none
more often than runners died and none after its job was cancelled, every record readable, no lock, unit of a
token, process or temporary file left; and the next job gets the units."""


def run(options: Options) -> Report:
    began = time.perf_counter()
    cases, violations = [], []
    sample = sampled(SMALL) if options.small else {}
    for name, kind in KINDS.items():
        started = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="tenuto-matrix-") as root:
            fields = sample[name] if options.small else kind.all()
            results = play(fields, Path(root), options.workers)
        fell = sum(len(result["struck"]) == len(strikes(result)) for result in results)
        seconds = time.perf_counter() - started
        note = f"all blows fell in {fell:,}"
        cases.append(Case(name, kind.title, len(results), "cases", seconds, note))
        violations += [_violation(name, result) for result in results if result["problems"]]
    return Report(
        name="matrix",
        title="Real processes are killed before each of their operations",
        cases=tuple(cases),
        violations=tuple(violations),
        planted=tuple(spread(plant, list(BUGS), options.workers)) if options.planted else (),
        notes=(NOTE,),
        seconds=time.perf_counter() - began,
    )


def play(cases: Sequence[Fields], root: Path, count: int, *flags: str) -> list[dict[str, Any]]:
    """Plays the cases in so many processes; one result for each."""
    return theatres.play(THEATRE, cases, root, count, *flags)


def traced(case: Fields, root: Path) -> Callable[[str], list[str]]:
    """The operations of each process of one case.

    Those with which a runner records events of its process are left out: it does so only once a job has run
    for a second, as any job may on a busy machine.
    """
    process = theatres.started(THEATRE, root, "--trace", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    out, _ = process.communicate(json.dumps([case]))
    result = json.loads(out)
    if result["problems"]:
        raise RuntimeError(json.dumps(result, indent=1))
    directory = Path(result["directory"])

    def steps(who: str) -> list[str]:
        traced = (directory / f"trace-{who}").read_text().splitlines()
        if who != "runner-parent":
            return traced
        return [step for step in traced if not step.startswith("mkdir ") and " event-" not in step]

    return steps


def plant(name: str) -> Planted:
    """Plays the cases that must give a bug away, with the bug in every scheduler."""
    bug = BUGS[name]
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="tenuto-matrix-") as root:
        results = play(bug.cases, Path(root), 1, "--planted", name)
    problems = [problem for result in results for problem in result["problems"]]
    how = problems[0].partition(":")[0] if problems else ""
    return Planted(bug.kind, name, bug.stands_for, bool(problems), how, time.perf_counter() - began)


def strikes(result: dict[str, Any]) -> set[str]:
    """Who was to be struck."""
    return {who for who in STRIKERS if result["case"][who] is not None}


def _violation(kind: str, result: dict[str, Any]) -> Violation:
    fields = {name: value for name, value in result["case"].items() if value}
    details = {name: result[name] for name in ("case", "schedulers", "struck", "problems")}
    return Violation(
        kind,
        "; ".join(result["problems"])[:300],
        json.dumps(details, indent=1),
        f"mkdir /tmp/again; echo '{json.dumps([fields])}' | python -m proof.matrix.theatre /tmp/again",
    )
