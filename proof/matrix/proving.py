"""Owns the proof by killing: has the cases played in a few processes at once, and reports.
Knows no step and no verdict; `cases` and `judge` do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from proof.matrix.bugs import BUGS
from proof.matrix.cases import KINDS, STRIKERS, Fields, sampled
from proof.report import Case, Options, Planted, Report, Violation

ROOT = Path(__file__).parents[2]
SMALL = 260
"""How many cases there are in the sizes of `make test`."""
NOTE = """Each case was played with real processes and SIGKILL. Judged were: the last scheduler sees the job
done, no scheduler is stuck or fails, no two payloads at once and none more often than runners died, every
record readable, no lock, unit of a token, process or temporary file left; and the next job gets the units."""


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
        planted=tuple(map(plant, BUGS)) if options.planted else (),
        notes=(NOTE,),
        seconds=time.perf_counter() - began,
    )


def play(cases: Sequence[Fields], root: Path, theatres: int, *flags: str) -> list[dict[str, Any]]:
    """Plays the cases in so many processes; one result for each."""
    running = []
    for number in range(theatres):
        directory = root / f"theatre-{number}"
        directory.mkdir()
        (directory / "cases").write_text(json.dumps(cases[number::theatres]))
        with (directory / "cases").open() as given, (directory / "results").open("w") as results:
            running.append((directory, _theatre(directory, *flags, stdin=given, stdout=results)))
    for _, process in running:
        if process.wait() != 0:
            raise RuntimeError(f"a theatre ended with exit code {process.returncode}; see above")
    return [
        json.loads(line)
        for directory, _ in running
        for line in (directory / "results").read_text().splitlines()
    ]


def traced(case: Fields, root: Path) -> Callable[[str], list[str]]:
    """The operations of each process of one case.

    Those with which a runner records events of its process are left out: it does so only once a job has run
    for a second, as any job may on a busy machine.
    """
    process = _theatre(root, "--trace", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
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


def _theatre(directory: Path, *flags: str, stdin: Any, stdout: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "proof.matrix.theatre", str(directory), *flags]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(command, stdin=stdin, stdout=stdout, text=True, env=environment)


def _violation(kind: str, result: dict[str, Any]) -> Violation:
    fields = {name: value for name, value in result["case"].items() if value}
    details = {name: result[name] for name in ("case", "schedulers", "struck", "problems")}
    return Violation(
        kind,
        "; ".join(result["problems"])[:300],
        json.dumps(details, indent=1),
        f"mkdir /tmp/again; echo '{json.dumps([fields])}' | python -m proof.matrix.theatre /tmp/again",
    )
