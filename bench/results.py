"""Owns what a benchmark run leaves in `results/`: raw JSON, a table and plots; and reads it again."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from bench import age
from bench.plot import svg
from bench.rows import Row
from bench.scale import Options
from bench.scratch import file_system
from bench.table import page

RESULTS = Path(__file__).with_name("results")
FORMAT = 1
PLOTS = {
    "W1": "Throughput: no-op jobs, two at a time",
    "W2": "Chain: each job needs the one before",
    "W3": "Nothing to do: the same jobs again",
}


@dataclass(frozen=True, slots=True)
class Result:
    """One run of the suite."""

    around: Mapping[str, Any]
    rows: tuple[Row, ...]
    left_out: tuple[str, ...] = ()

    @property
    def stem(self) -> str:
        """The name of its files: when it started, and how large it was."""
        began = str(self.around["started"]).replace(":", "").replace("-", "").split("+")[0]
        return f"{began}-{self.around['scale']}"


def circumstances(options: Options) -> dict[str, Any]:
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "scale": options.scale.value,
        "repetitions": options.repetitions,
        "python": platform.python_version(),
        "tenuto": metadata.version("tenuto"),
        "commit": age.commit(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)),
        "file_system": file_system(options.directory.absolute()),
        "load_before": round(os.getloadavg()[0], 2),
    }


def write(result: Result, directory: Path = RESULTS) -> Path:
    """Write everything; the path of the table."""
    directory.mkdir(exist_ok=True)
    raw = {
        "format": FORMAT,
        "circumstances": dict(result.around),
        "command": sys.argv[1:],
        "left_out": list(result.left_out),
        "rows": [row.as_json() for row in result.rows],
    }
    (directory / f"{result.stem}.json").write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    for workload, title in PLOTS.items():
        drawn = svg(result.rows, workload, title)
        if drawn is not None:
            (directory / f"{result.stem}-{workload}.svg").write_text(drawn, encoding="utf-8")
    table = directory / f"{result.stem}.md"
    table.write_text(page(result.rows, result.around, result.left_out), encoding="utf-8")
    return table


def read(path: Path) -> Result:
    found = json.loads(path.read_text(encoding="utf-8"))
    if found.get("format") != FORMAT:
        raise ValueError(f"{path} is not in format {FORMAT}: run the benchmark again")
    return Result(found["circumstances"], tuple(map(Row.from_json, found["rows"])), tuple(found["left_out"]))


def in_order(rows: Sequence[Row], workloads: Sequence[str]) -> list[Row]:
    """By workload; within one as they were measured, ours first."""
    return sorted(rows, key=lambda row: workloads.index(row.workload))
