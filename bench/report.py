"""Owns what a benchmark run leaves: rows, the circumstances, a Markdown table and the raw JSON."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.measure import Summary

RESULTS = Path(__file__).with_name("results")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: a case of a workload, at one size, for one system."""

    workload: str
    case: str
    system: str
    size: int
    cost: Summary | None = None
    target: str = ""
    target_s: float | None = None  # CPU seconds for the whole size
    note: str = ""


def circumstances(quick: bool, repetitions: int) -> dict[str, object]:
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "repetitions": repetitions,
        "python": platform.python_version(),
        "tenuto": importlib.metadata.version("tenuto"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)),
        "load_before": os.getloadavg()[0],
    }


def time_text(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def markdown(rows: list[Row], around: dict[str, object]) -> str:
    lines = [f"- {name.replace('_', ' ')}: {_plain(value)}" for name, value in around.items()]
    lines += [
        "",
        "| Workload | Case | System | Size | CPU | Wall | CPU each | Spread | Target | Met | Note |",
        "|---|---|---|--:|--:|--:|--:|--:|---|---|---|",
        *(_line(row) for row in rows),
    ]
    return "\n".join(lines) + "\n"


def _plain(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _line(row: Row) -> str:
    cells = [row.workload, row.case, row.system, f"{row.size:,}"]
    if row.cost is None:
        cells += ["–"] * 4
    else:
        cost = row.cost
        each = time_text(cost.cpu_s / row.size)
        cells += [time_text(cost.cpu_s), time_text(cost.wall_s), each, f"{cost.spread:.0%}"]
    met = (
        "" if row.target_s is None or row.cost is None else "yes" if row.cost.cpu_s <= row.target_s else "NO"
    )
    return "| " + " | ".join([*cells, row.target, met, row.note]) + " |"


def write(rows: list[Row], around: dict[str, object]) -> Path:
    """Write the table and the raw numbers; the path of the table."""
    RESULTS.mkdir(exist_ok=True)
    stem = str(around["started"]).replace(":", "").replace("-", "").split("+")[0]
    raw = {"circumstances": around, "command": sys.argv[1:], "rows": [asdict(row) for row in rows]}
    (RESULTS / f"{stem}.json").write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    table = RESULTS / f"{stem}.md"
    table.write_text(markdown(rows, around), encoding="utf-8")
    return table
