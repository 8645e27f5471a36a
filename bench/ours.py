"""Owns running one of Tenuto's own drivers beside the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.measure import Broken, Cost, Measured, beside_reference, driver
from bench.rows import OURS, Row, Target, missing, timed
from bench.scale import Options
from bench.scratch import fresh

DRIVERS = Path(__file__).with_name("drivers")


def run(options: Options, name: str, *arguments: object, place: Path | None = None) -> dict[str, Any]:
    """One run, in a fresh directory unless one is given."""
    if place is not None:
        return driver(DRIVERS / name, *arguments, directory=place)
    with fresh(options.directory) as empty:
        return driver(DRIVERS / name, *arguments, directory=empty)


def measured(options: Options, name: str, *arguments: object) -> tuple[Measured, list[dict[str, Any]]]:
    """Repetitions of a driver that reports `wall_s` and `cpu_s`, and all it reported."""
    reports: list[dict[str, Any]] = []

    def once() -> Cost:
        reports.append(run(options, name, *arguments))
        return Cost(reports[-1]["cpu_s"], reports[-1]["wall_s"])

    return beside_reference(options.repetitions, options.references, once), reports


def row(
    options: Options,
    workload: str,
    case: str,
    size: int,
    name: str,
    *arguments: object,
    target: Target | None = None,
    estimate_s: float = 0.0,
    smallest: bool = False,
) -> Row | None:
    """The row of a driver; None if there is no time for it."""
    estimate_s *= options.repetitions
    if not options.budget.affords(workload, case, size, estimate_s, smallest=smallest):
        return None
    try:
        found, _ = measured(options, name, *arguments)
    except Broken as broken:
        return missing(workload, case, OURS, size, f"failed: {broken}")
    return timed(workload, case, OURS, size, found, target)
