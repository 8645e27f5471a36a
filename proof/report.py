"""Owns what a proof takes and gives: the options, its cases, its findings, and the report that shows them.
Runs nothing.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import age

RESULTS = Path(__file__).with_name("results")


@dataclass(frozen=True, slots=True)
class Options:
    """What the person who runs the proofs chose. Each proof reads what concerns it."""

    small: bool = False
    """The sizes of `make test`: seconds instead of minutes."""
    seeds: int | None = None
    """How many seeds the simulation runs; None: as many as fits the size."""
    first_seed: int = 0
    """Where the seeds begin, so that a release can try others than the last one did."""
    minutes: float | None = None
    """How long the soak runs; None: as long as fits the size."""
    seconds: float | None = None
    """How long the fuzzer works on each reader; None: as long as fits the size."""
    workers: int = 1
    """How many processes a proof may use."""
    planted: bool = True
    """Also check that each planted bug is found; without it, a proof only looks for real ones."""


@dataclass(frozen=True, slots=True)
class Case:
    """One line of a proof's table: one model, one scenario, one reader, one group of seeds."""

    name: str
    tried: str
    """What was done, in words a sceptic can check: "every crash of two schedulers and a runner"."""
    count: int
    unit: str
    """What `count` counts: states, cases, executions, seeds, jobs."""
    seconds: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken."""

    case: str
    what: str
    """The promise, and what happened instead; one line."""
    details: str = ""
    """The trace that leads there, ready to be read."""
    again: str = ""
    """The command that shows it once more."""


@dataclass(frozen=True, slots=True)
class Planted:
    """A bug put in on purpose: a proof that does not find it proves nothing about such bugs."""

    case: str
    name: str
    stands_for: str
    """The mistake in the code that it imitates."""
    found: bool
    how: str = ""
    """What gave it away: the promise broken, after how many steps, seeds or executions."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """What one proof tried and found."""

    name: str
    title: str
    cases: tuple[Case, ...]
    violations: tuple[Violation, ...] = ()
    planted: tuple[Planted, ...] = ()
    notes: tuple[str, ...] = ()
    """Figures and limits that belong to the result: what was not tried, and why."""
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        return bool(self.cases) and not self.violations and all(bug.found for bug in self.planted)


Proof = Callable[[Options], Report]
"""The `run` of a proof's module."""


def totals(cases: Iterable[Case]) -> dict[str, int]:
    """How much was tried in all, by unit."""
    sums: dict[str, int] = {}
    for case in cases:
        sums[case.unit] = sums.get(case.unit, 0) + case.count
    return sums


def circumstances(options: Options, commit: str | None = None) -> dict[str, object]:
    """`commit`: of this tree, where git does not know it."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "tenuto": importlib.metadata.version("tenuto"),
        "commit": commit or age.commit(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)),
        "options": asdict(options),
    }


def text(report: Report) -> str:
    """The report of one proof, for a terminal and for a page alike."""
    sums = ", ".join(f"{count:,} {unit}" for unit, count in totals(report.cases).items())
    caught = sum(bug.found for bug in report.planted)
    lines = [
        f"## {report.title}",
        "",
        (
            f"{'HOLDS' if report.good else 'FAILS'}: {sums or 'nothing was tried'}; "
            f"{len(report.violations)} violations; "
            f"planted bugs found: {caught} of {len(report.planted)}; {report.seconds:.1f} s"
        ),
        "",
        "| Case | Tried | Count | Seconds | Note |",
        "|---|---|--:|--:|---|",
        *(
            _row(case.name, case.tried, f"{case.count:,} {case.unit}", f"{case.seconds:.1f}", case.note)
            for case in report.cases
        ),
    ]
    if report.planted:
        lines += ["", "| Planted bug | In | Stands for | Found | By |", "|---|---|---|---|---|"]
        lines += [
            _row(bug.name, bug.case, bug.stands_for, "yes" if bug.found else "NO", bug.how)
            for bug in report.planted
        ]
    lines += [line for note in report.notes for line in ("", note)]
    for violation in report.violations:
        lines += ["", f"VIOLATION in {violation.case}: {violation.what}"]
        lines += [f"    {line}" for line in violation.details.splitlines()]
        if violation.again:
            lines.append(f"    again: {violation.again}")
    return "\n".join(lines) + "\n"


def summary(reports: Sequence[Report]) -> str:
    """One line a proof, and the last word."""
    lines = ["| Proof | Tried | Violations | Planted bugs found | Seconds | |", "|---|---|--:|--:|--:|---|"]
    for report in reports:
        sums = ", ".join(f"{count:,} {unit}" for unit, count in totals(report.cases).items())
        caught = f"{sum(bug.found for bug in report.planted)} of {len(report.planted)}"
        last = "holds" if report.good else "FAILS"
        lines.append(
            _row(report.name, sums, str(len(report.violations)), caught, f"{report.seconds:.1f}", last)
        )
    return "\n".join(lines) + "\n"


def write(
    reports: Sequence[Report],
    around: dict[str, object],
    directory: Path | None = None,
    command: Sequence[str] | None = None,
) -> Path:
    """Write the text and the raw numbers; the path of the text. `command`: the words after the program's."""
    directory = directory or RESULTS
    directory.mkdir(parents=True, exist_ok=True)
    stem = str(around["started"]).replace(":", "").replace("-", "").split("+")[0]
    raw = {
        "circumstances": around,
        "command": sys.argv[1:] if command is None else list(command),
        "reports": [asdict(report) for report in reports],
    }
    (directory / f"{stem}.json").write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    page = directory / f"{stem}.md"
    page.write_text("\n".join([summary(reports), *map(text, reports)]), encoding="utf-8")
    return page


def joined(results: Sequence[Path], order: Sequence[str], directory: Path | None = None) -> Path:
    """Write one result of several that were taken of one commit on one kind of machine; the path of its text.

    `order`: of the proofs. Raises `ValueError` if the results differ, or two have the same proof.
    """
    parts = [json.loads(path.read_text(encoding="utf-8")) for path in results]
    arounds = [part["circumstances"] for part in parts]
    for what in ("commit", "python", "system", "cores"):
        if len(found := {str(around[what]) for around in arounds}) > 1:
            raise ValueError(f"the results differ in {what}: {', '.join(sorted(found))}")
    reports = {fields["name"]: read(fields) for part in parts for fields in part["reports"]}
    if len(reports) < sum(len(part["reports"]) for part in parts):
        raise ValueError("two results have the same proof")
    sorted_reports = [reports[name] for name in order if name in reports]
    around = min(arounds, key=lambda around: str(around["started"]))
    return write(sorted_reports, around, directory, [word for part in parts for word in part["command"]])


def read(fields: dict[str, Any]) -> Report:
    """A report, of what `write` made of it."""
    return Report(
        **{
            **fields,
            "cases": tuple(Case(**case) for case in fields["cases"]),
            "violations": tuple(Violation(**violation) for violation in fields["violations"]),
            "planted": tuple(Planted(**bug) for bug in fields["planted"]),
            "notes": tuple(fields["notes"]),
        }
    )


def _row(*cells: str) -> str:
    return "| " + " | ".join(" ".join(cell.replace("|", "/").split()) for cell in cells) + " |"
