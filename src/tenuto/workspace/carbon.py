"""`carbon.json`: what the attempts of a job used, as far as it was measured, and sums of it.
Written by the job's runner, under its lock; losing it loses nothing but the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from tenuto.errors import WorkspaceError
from tenuto.lifecycle.events import CarbonMetricsData
from tenuto.workspace.json_bytes import from_json, to_json
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.ports import Files

_LIMIT = 1 << 20
_FAR_TOO_MUCH = 1e15


class Measured(NamedTuple):
    """What one attempt used."""

    until: datetime
    """When it was measured last."""
    metrics: CarbonMetricsData | None = None
    problem: str | None = None
    """Why there is nothing, or no more."""


def metrics_of(fields: Any) -> CarbonMetricsData:
    """Measurements from plain values. Raises `ValueError`, `TypeError` or `KeyError` for anything else."""
    if not isinstance(fields, dict):
        raise TypeError(fields)
    numbers = {name: _number(fields.get(name, 0.0)) for name in _POWERS}
    totals = {name: _number(fields[name]) for name in _TOTALS}
    region = fields.get("region")
    return CarbonMetricsData(**totals, **numbers, region=region if isinstance(region, str) else None)


_TOTALS = ("co2_kg", "energy_kwh", "duration_s")
_POWERS = ("cpu_power_w", "gpu_power_w", "ram_power_w")


def _number(value: Any) -> float:
    number = float(value)
    if not 0 <= number <= _FAR_TOO_MUCH:
        raise ValueError(value)
    return number


def read_carbon(files: Files, paths: JobPaths) -> dict[int, Measured]:
    """attempt -> its use; empty if nothing was measured, or nothing that can be read."""
    try:
        content = from_json(files.read(paths.carbon, _LIMIT))
        return {int(attempt): _measured(fields) for attempt, fields in content["attempts"].items()}
    except (OSError, WorkspaceError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def write_carbon(files: Files, paths: JobPaths, attempts: Mapping[int, Measured]) -> None:
    """Replace the known values."""
    content = {
        str(attempt): {
            "until": one.until.isoformat(),
            "problem": one.problem,
            "metrics": plain_metrics(one.metrics) if one.metrics else None,
        }
        for attempt, one in attempts.items()
    }
    files.replace(paths.carbon, to_json({"attempts": content}), durable=False)


def plain_metrics(metrics: CarbonMetricsData) -> dict[str, Any]:
    """Measurements as plain values."""
    return {name: getattr(metrics, name) for name in type(metrics).fields}


def total(measured: Iterable[CarbonMetricsData]) -> CarbonMetricsData | None:
    """The sum; None of nothing. A sum has no power, and a region only if all have the same."""
    found = list(measured)
    if not found:
        return None
    regions = {one.region for one in found}
    return CarbonMetricsData(
        co2_kg=sum(one.co2_kg for one in found),
        energy_kwh=sum(one.energy_kwh for one in found),
        duration_s=sum(one.duration_s for one in found),
        region=regions.pop() if len(regions) == 1 else None,
    )


def job_total(files: Files, paths: JobPaths, since: datetime | None = None) -> CarbonMetricsData | None:
    """The use of a job in all its attempts, or in attempts that went on after `since`."""
    return total(
        one.metrics
        for one in read_carbon(files, paths).values()
        if one.metrics is not None and (since is None or one.until >= since)
    )


def _measured(fields: Mapping[str, Any]) -> Measured:
    until = datetime.fromisoformat(fields["until"])
    if until.tzinfo is None:
        raise ValueError(fields["until"])
    metrics, problem = fields.get("metrics"), fields.get("problem")
    return Measured(
        until,
        metrics_of(metrics) if metrics is not None else None,
        problem if isinstance(problem, str) else None,
    )
