"""Owns the proof by garbage: every reader, for as many executions or seconds as asked for, and the report.
Knows no reader; `targets` lists them.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from proof.fuzz.bugs import hunt
from proof.fuzz.engines import Fuzzed, by_atheris, guided, has_atheris, plain
from proof.fuzz.readers import targets
from proof.fuzz.targets import Bench
from proof.report import RESULTS, Case, Options, Report, Violation
from proof.spread import spread

EXECUTIONS = 1500
"""Of each reader, in `make test`."""
SECONDS = 60.0
"""For each reader, in `make prove`."""


def run(options: Options) -> Report:
    bench = Bench()
    try:
        reads = {target.name: target.reads for target in targets(bench)}
    finally:
        bench.close()
    outcomes = list(spread(partial(_timed, options=options), list(reads), options.workers))
    cases, violations = [], []
    for name, (fuzzed, seconds) in zip(reads, outcomes, strict=True):
        note = f"{fuzzed.reached:,} places reached" if fuzzed.reached else ""
        cases.append(Case(name, reads[name], fuzzed.executions, "executions", seconds, note))
        for number, finding in enumerate(fuzzed.findings):
            place = _kept(name, number, finding.data)
            details = f"{finding.data[:300]!r}\n{finding.details}"
            again = f'python -c \'from proof.fuzz.proving import show; show("{name}", "{place}")\''
            violations.append(Violation(name, finding.what, details, again))
    engine = outcomes[0][0].engine
    return Report(
        name="fuzz",
        title="Every reader of files meets garbage",
        cases=tuple(cases),
        violations=tuple(violations),
        planted=tuple(hunt(options.workers)) if options.planted else (),
        notes=(f"Engine: {engine}. A reader may answer or raise what it says it raises; nothing else.",),
    )


def show(name: str, file: str) -> None:
    """One finding again, with its traceback."""
    bench = Bench()
    try:
        target = next(target for target in targets(bench) if target.name == name)
        target.call(Path(file).read_bytes())
    finally:
        bench.close()


def _timed(name: str, options: Options) -> tuple[Fuzzed, float]:
    began = time.perf_counter()
    return _fuzzed(name, options), time.perf_counter() - began


def _fuzzed(name: str, options: Options) -> Fuzzed:
    if options.small and options.seconds is None:
        return plain(name, EXECUTIONS, options.first_seed)
    seconds = options.seconds or SECONDS
    engine = by_atheris if has_atheris() else guided
    return engine(name, seconds, options.first_seed)


def _kept(name: str, number: int, data: bytes) -> Path:
    place = RESULTS / "found" / f"{name}--{number}"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    return place
