"""Owns the figures of docs/performance.md and docs/clusters.md, from the newest kept results that have them.
`python -m bench.docs` draws both, and with the path of a result what that one has. Measures nothing.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from bench import age
from bench.results import RESULTS, Result, read
from bench.rows import FLOOR, OURS, Row
from bench.scratch import ROOT
from bench.table import NONE, columns, markdown, number_text, time_text, value_text, verdict
from docs.generate import refreshed

PAGE = ROOT.parent / "docs" / "performance.md"
SLURM_PAGE = ROOT.parent / "docs" / "clusters.md"
WORKLOADS = {PAGE: "W1", SLURM_PAGE: "W12"}
"""Page -> a workload that a result has if the page can be drawn from it."""
PART = "figures"
TIMED = ("; from the first submission", "; whole process")
"""How the notes on peers end that say what was timed; bench/README.md says it of all."""
NAMED = re.compile(r"\(\.\./bench/results/(?P<name>[\w-]+\.json)\)")
COMPARED = {"W1": "A no-op job", "W2": "A job of a chain", "W3": "A job done before"}
"""Workload -> the column of what one job costs."""
JOINED = {
    "chain, warm": "no-op task, warm",
    "chain, spawn": "no-op task, spawn",
    "all done before": "no-op task, warm",
}
"""Case of ours -> the case of W1 in whose line it is."""
SHOWN = {
    "W4": ("jobs waiting", "jobs run, warm"),
    "W5": ("import",),
    "W6": ("sleeping, warm: scheduler",),
    "W10": ("adopt (10,000",),
}
"""Workload -> how the cases begin that a user meets; all others are in the page of all rows."""


def kept(results: Path = RESULTS) -> list[Path]:
    """The results that git knows, oldest first."""
    said = subprocess.run(
        ["git", "ls-files", "--", str(results)], cwd=results, capture_output=True, text=True, check=False
    )
    return sorted(results / Path(line).name for line in said.stdout.splitlines() if line.endswith(".json"))


def newest(workload: str) -> Path | None:
    """The last kept result with rows of a workload."""
    found = [path for path in kept() if any(row.workload == workload for row in read(path).rows)]
    return found[-1] if found else None


def named(page: str) -> Path | None:
    """The result that a page was drawn from."""
    found = NAMED.search(page)
    return RESULTS / found["name"] if found else None


def largest(rows: Iterable[Row]) -> list[Row]:
    """Of each system and case the row with the most jobs."""
    found: dict[tuple[str, str], Row] = {}
    for row in rows:
        before = found.get((row.system, row.case))
        if before is None or row.size >= before.size:
            found[row.system, row.case] = row
    return list(found.values())


def compared(rows: Iterable[Row]) -> str:
    """A line for each system, and for each case of ours, at the largest size; the cheapest first."""
    found: dict[str, dict[str, Row]] = {}
    for row in largest(row for row in rows if row.workload in COMPARED):
        name = f"**{OURS}: {JOINED.get(row.case, row.case)}**" if row.system == OURS else row.system
        found.setdefault(name, {})[row.workload] = row
    lines = []
    for name, of in found.items():
        ratio = of["W1"].x_wall if "W1" in of else None
        costs = [_each_text(of.get(workload)) for workload in COMPARED]
        first = next(of[workload] for workload in COMPARED if workload in of)
        note = first.note
        for ending in TIMED:
            note = note.removesuffix(ending)
        lines.append((ratio or math.inf, [number_text(ratio), name, f"{first.size:,}", *costs, note]))
    header = ["x ref", "System", "Jobs", *COMPARED.values(), "Note"]
    cells = [line for _, line in sorted(lines, key=lambda line: line[0])]
    return markdown(header, cells, ("x ref", "Jobs", *COMPARED.values()))


def _each_text(row: Row | None) -> str:
    return NONE if row is None or row.each is None else time_text(row.each)


def judged(rows: Iterable[Row]) -> str:
    """How many targets are hit, and other figures that a user meets."""
    aimed = largest(row for row in rows if row.target)
    shown = [row for row in aimed if row.case.startswith(SHOWN.get(row.workload, ()))]
    told = [f"{value_text(row)} for {row.case}{f' at {row.size:,}' if row.size > 1 else ''}" for row in shown]
    return f"{verdict(aimed)} Of the rest: {'; '.join(told)}." if told else verdict(aimed)


def warning(result: Result) -> str:
    """What keeps the figures from meaning much; empty if nothing does."""
    why = []
    if result.around["scale"] not in {"full", "large"}:
        why.append(f"of a run at the sizes of `{result.around['scale']}`")
    if result.around["load_before"] > result.around["cores"] / 4:
        why.append(f"of a busy machine (load {result.around['load_before']:.1f} before the run)")
    return (
        f"**These are figures {' and '.join(why)}: they show that the suite works, no more.**" if why else ""
    )


def around(result: Result) -> str:
    """Of the tables: the machine, the interpreter, and the shape of the script."""
    told = [
        f"{name.replace('_', ' ')} {result.around[name]}"
        for name in ("system", "cores", "ref")
        if name in result.around
    ]
    about = "".join(f"{one}; " for one in told)
    return (
        f"Python {result.around['python']}; {about}tasks in a module of their own, but for "
        "the README's script, which has task and experiment in one file. Of each case the largest size."
    )


def figures(result: Result) -> str:
    """The part of the page that is drawn."""
    stem, rows = result.stem, result.rows
    parts = [
        age.sentence(result.around, age.MEASURED),
        f"From [{stem}.json](../bench/results/{stem}.json) ([all rows](../bench/results/{stem}.md)).",
        warning(result),
        around(result),
    ]
    if any(row.system not in {OURS, FLOOR} for row in rows):
        parts += ["### Beside others", compared(rows)]
    parts += ["### Against the targets", judged(rows)]
    return "\n\n".join(part for part in parts if part)


def slurm_figures(result: Result) -> str:
    """The part of the page on Slurm that is drawn."""
    rows = [row for row in result.rows if row.workload == "W12"]
    parts = [
        age.sentence(result.around, age.MEASURED),
        f"From [{result.stem}.json](../bench/results/{result.stem}.json).",
        warning(result),
        around(result),
        columns(rows, "Workload", "System", "One job", "x ref, wall", "x ref, CPU", "Spread"),
    ]
    return "\n\n".join(part for part in parts if part)


def fresh(page: str, result: Result, draw: Callable[[Result], str] = figures) -> str:
    """The page with the figures of a result."""
    return refreshed(page, {PART: draw(result)})


def main() -> None:
    chosen = Path(sys.argv[1]) if sys.argv[1:] else None
    for page, workload in WORKLOADS.items():
        path = chosen or newest(workload)
        if path is None or not any(row.workload == workload for row in read(path).rows):
            print(
                f"{page.name} is left: no {workload} is kept (git add -f bench/results/NAME*)",
                file=sys.stderr,
            )
            continue
        raw = json.loads(path.read_text(encoding="utf-8"))
        raw["circumstances"] = age.noted(raw["circumstances"], age.MEASURED)
        path.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
        draw = slurm_figures if page == SLURM_PAGE else figures
        page.write_text(fresh(page.read_text(encoding="utf-8"), read(path), draw), encoding="utf-8")
        print(f"{page.name} shows {path.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
