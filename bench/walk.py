"""Owns the walk of one job through the code, beside its budgets: ``python -m bench.walk [--only NAMES]``.
Counts calls, files, changes of the file system, processes and threads; measures no time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.measure import ENVIRONMENT, Broken, reason
from bench.scratch import ROOT, clear, fresh
from bench.served import Client, served
from bench.table import markdown
from tests.architecture.counts import Counts, counts
from tests.parts.slurm import PrivateSlurm

DRIVERS = Path(__file__).with_name("drivers")
END_S = 120.0
FILES = {"experiment": 55, "upload": 75, "search": 70, "slurm": 70}
"""The most files of `src/tenuto` that a job may pass in the process of its caller or server."""
UPLOAD_THREADS = 6
SIZES: dict[str, tuple[str, float]] = {
    "files": ("files in `src/`", 400),
    "lines": ("lines in `src/`", 74_000),
    "lone_modules": ("modules with one importer, no seam", 30),
    "shared_class_names": ("class names with two meanings", 10),
    "shared_file_names": ("file names with two meanings", 15),
    "divided_classes": ("classes divided by inheritance", 0),
    "settings": ("settings", 85),
    "nameless_percent": ("sentences of comments without an actor, %", 3),
}
"""Field of `Counts` -> what it counts, and its budget."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a trace."""

    at_ns: int
    process: int
    thread: int
    kind: str
    what: str


@dataclass(frozen=True, slots=True)
class Walk:
    """What one job passed through, in all processes that took part."""

    name: str
    calls: int
    files: int
    changes: int
    processes: int
    threads: int
    main_files: int
    """Of the process that makes most calls: the caller's, or the server's."""
    main_threads: int
    most_files: int
    most_threads: int | None


def events_of(trace: Path) -> list[Event]:
    """All events of a trace, in their order."""
    found = []
    for file in trace.iterdir():
        for line in file.read_text().splitlines():
            at, thread, kind, what = line.split(" ", 3)
            found.append(Event(int(at), int(file.name), int(thread), kind, what))
    return sorted(found, key=lambda event: event.at_ns)


def walked(name: str, events: list[Event], begin_ns: int, end_ns: int) -> Walk:
    """What was passed between two instants."""
    seen = [event for event in events if begin_ns <= event.at_ns <= end_ns]
    calls = [event for event in seen if event.kind == "call"]
    if not calls:
        raise Broken("no call was seen: is the trace loaded?")
    processes = Counter(event.process for event in calls)
    main = [event for event in calls if event.process == max(processes, key=processes.__getitem__)]
    return Walk(
        name,
        len(calls),
        len({event.what.split()[0] for event in calls}),
        sum(event.kind == "change" for event in seen),
        len(processes),
        len({(event.process, event.thread) for event in calls}),
        len({event.what.split()[0] for event in main}),
        len({event.thread for event in main}),
        FILES[name],
        UPLOAD_THREADS if name == "upload" else None,
    )


def traced(trace: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of processes that leave a trace."""
    path = os.pathsep.join(filter(None, (str(DRIVERS / "walk"), ENVIRONMENT.get("PYTHONPATH"))))
    return {**ENVIRONMENT, "PYTHONPATH": path, "BENCH_WALK": str(trace), **(more or {})}


def driven(driver: str, place: Path, trace: Path, more: Mapping[str, str] | None = None) -> list[Event]:
    """The events of one of our drivers, run to its end."""
    command = [sys.executable, str(DRIVERS / "walk.py"), driver]
    done = subprocess.run(
        command,
        cwd=place,
        env=traced(trace, more),
        capture_output=True,
        text=True,
        timeout=END_S,
        check=False,
    )
    if done.returncode:
        raise Broken(reason(done.stderr, done.returncode))
    return events_of(trace)


def marks(events: list[Event], name: str) -> list[int]:
    return [event.at_ns for event in events if event.kind == "mark" and event.what == name]


def experiment(place: Path, trace: Path) -> Walk:
    """From the second `submit()` to the third: what the job left behind is swept meanwhile."""
    events = driven("experiment", place, trace)
    return walked("experiment", events, *marks(events, "submit")[1:3])


def search(place: Path, trace: Path) -> Walk:
    """From the payload of one candidate to that of the next: one turn of the search."""
    events = driven("search", place, trace)
    return walked("search", events, *marks(events, "payload")[1:3])


def slurm(place: Path, trace: Path) -> Walk:
    """As an experiment, on a private cluster; jobs of a pilot or a held allocation would pass less."""
    cluster = PrivateSlurm()
    try:
        events = driven("experiment", place, trace, {**cluster.environment, "TENUTO_LAUNCHER": "slurm"})
    finally:
        cluster.close()
    return walked("slurm", events, *marks(events, "submit")[1:3])


def upload(place: Path, trace: Path) -> Walk:
    """From the second upload to the end of its download, through a server with a node."""
    place.chmod(0o711)
    with served(place, "none", traced(trace)) as (port, _):
        client = Client(port)
        times = []
        for _ in range(2):
            times.append(time.monotonic_ns())
            job = client.upload()
            client.completed(job)
            client.ask("GET", f"/download/{job}")
        times.append(time.monotonic_ns())
        client.close()
    return walked("upload", events_of(trace), *times[1:])


WALKS: dict[str, Callable[[Path, Path], Walk]] = {
    "experiment": experiment,
    "upload": upload,
    "search": search,
    "slurm": slurm,
}


def walk(name: str, directory: Path) -> Walk | str:
    """One walk, or why there is none."""
    with fresh(directory) as place, fresh(directory) as trace:
        try:
            return WALKS[name](place, trace)
        except (Broken, RuntimeError, OSError, subprocess.SubprocessError) as problem:
            return f"{type(problem).__name__}: {problem}"


def budget(value: float, most: float | None) -> str:
    """A figure, and its budget behind it where it has one."""
    return f"{value:,}" if most is None else f"{value:,} of {most:,}"


def walks_table(found: Mapping[str, Walk | str]) -> str:
    header = ["Walk", "calls", "changes of files", "files", "threads"]
    header += ["processes", "files of all", "threads of all"]
    rows = []
    for name, one in found.items():
        if isinstance(one, str):
            rows.append([name, f"NOT WALKED: {one}", *[""] * (len(header) - 2)])
        else:
            files = budget(one.main_files, one.most_files)
            threads = budget(one.main_threads, one.most_threads)
            others = [str(one.processes), str(one.files), str(one.threads)]
            rows.append([name, f"{one.calls:,}", str(one.changes), files, threads, *others])
    return markdown(header, rows, header[1:])


def sizes_table(found: Counts) -> str:
    rows = [[words, f"{getattr(found, field):,}", f"{most:,}"] for field, (words, most) in SIZES.items()]
    return markdown(["Size", "today", "budget"], rows, ["today", "budget"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.walk", description=__doc__)
    parser.add_argument("--only", default=",".join(WALKS), help="walks, separated by commas")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--size", action="store_true", help="count files, names and settings; walk nothing")
    parser.add_argument("--directory", type=Path, default=ROOT / "work", help="where the jobs are run")
    given = parser.parse_args()
    if given.size:
        sizes = counts()
        print(json.dumps(asdict(sizes), indent=1) if given.json else sizes_table(sizes))
        return
    chosen = [name for name in given.only.split(",") if name]
    if unknown := set(chosen) - set(WALKS):
        parser.error(f"{', '.join(sorted(unknown))} is no walk; choose from {', '.join(WALKS)}")
    directory = given.directory.absolute()
    found = {name: walk(name, directory) for name in chosen}
    clear(directory)
    plain = {name: one if isinstance(one, str) else asdict(one) for name, one in found.items()}
    print(json.dumps(plain, indent=1) if given.json else walks_table(found))
    if any(isinstance(one, str) for one in found.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
