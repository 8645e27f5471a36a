"""Owns what the record of results costs: ``python -m bench.record [--jobs N] [--pairs N]``.
W1 and W3 with it and without it, in turn; without it, a copy of `src` neither writes nor compares the record.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from pathlib import Path

from bench.measure import ENVIRONMENT, REPOSITORY, Cost, tree
from bench.ours import DRIVERS
from bench.scratch import ROOT, fresh
from bench.table import markdown

CUTS = (
    (
        "jobs/validity.py",
        '        """What the result of an attempt that is about to begin will be made of."""\n',
        "        return {}\n",
    ),
    (
        "jobs/validity.py",
        '        """The check\'s answer for a job that was found done, or that ended in this process."""\n',
        "        return _VALID\n",
    ),
    (
        "jobs/validity.py",
        "    ) -> CheckedReuse | None:\n",
        "        return None\n",
    ),
    (
        "launchers/payload/python_task.py",
        '    """What the marker is to say of the process and of the code that it has loaded."""\n',
        '    return {"seed": str(seed)}\n',
    ),
)
"""File, a line of it, and what stands after that line where there is no record."""
MOST = 1.05


def copied(place: Path, *, with_record: bool) -> Path:
    """A copy of the sources."""
    source = place / ("with" if with_record else "without")
    shutil.copytree(REPOSITORY / "src", source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name, line, cut in () if with_record else CUTS:
        path = source / "tenuto" / name
        text = path.read_text()
        if text.count(line) != 1:
            raise SystemExit(f"{name} has no such line: {line.strip()}")
        path.write_text(text.replace(line, line + cut))
    return source


def run(source: Path, place: Path, name: str, *arguments: object) -> Cost:
    """What a driver takes with these sources: as it says, else the whole process."""
    argv = [sys.executable, str(DRIVERS / name), *map(str, arguments)]
    found = tree(argv, directory=place, timeout_s=600, environment={**ENVIRONMENT, "PYTHONPATH": str(source)})
    if name != "throughput.py":
        return found.cost
    said = found.report()
    return Cost(said["cpu_s"], said["wall_s"])


def main() -> None:
    """Prints medians and quotients, of CPU time and of the time that passed; 1 above the target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--pairs", type=int, default=7)
    given = parser.parse_args()
    rows: list[list[str]] = []
    worst = 0.0
    with fresh(ROOT) as place:
        sources = [copied(place, with_record=one) for one in (True, False)]
        for source in sources:
            (place / f"{source.name}-done").mkdir()
            run(source, place / f"{source.name}-done", "prepare.py", given.jobs)
        for case in ("W1", "W3"):
            took: list[tuple[Cost, ...]] = []
            for number in range(given.pairs + 1):
                pair: dict[Path, Cost] = {}
                for source in sources[:: 1 if number % 2 else -1]:
                    if case == "W3":
                        pair[source] = run(source, place / f"{source.name}-done", "again.py", given.jobs)
                    else:
                        with fresh(ROOT) as empty:
                            pair[source] = run(source, empty, "throughput.py", "warm", "noop", given.jobs)
                took += (
                    [tuple(pair[source] for source in sources)] if number else []
                )  # the first fills caches
            for what in ("wall_s", "cpu_s"):
                columns = zip(*[[getattr(one, what) for one in pair] for pair in took], strict=True)
                with_it, without = map(statistics.median, columns)
                worst = max(worst, with_it / without if what == "wall_s" else 0)
                rows.append(
                    [f"{case}, {what}", f"{with_it:.3f}", f"{without:.3f}", f"{with_it / without:.3f}"]
                )
    print(markdown([f"{given.jobs} jobs", "with", "without", "quotient"], rows))
    sys.exit(worst > MOST)


if __name__ == "__main__":
    main()
