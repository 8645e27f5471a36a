"""Owns where the CPU time of a no-op job goes: ``python -m bench.profile [warm|spawn] [noop|command]``.
By process of its tree and by what that did; the start of the experiment is left out. Needs Linux's `perf`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.measure import ENVIRONMENT, REPOSITORY
from bench.scratch import ROOT, fresh
from bench.table import markdown

HERTZ = 4000
FEW, MANY = 100, 500
"""Two runs; what the larger one took more is what jobs cost."""
ROLES = ("scheduler", "parent", "supervisor", "task's process")
"""By how often a process is away from the scheduler, by forks."""
KINDS = ("page faults", "fork", "exec", "exit", "files, sockets, waits", "Python and C")

_FORK = re.compile(r"PERF_RECORD_FORK\((\d+):\d+\):\((\d+):\d+\)")
_SAMPLE = re.compile(r"(\d+)/\d+\s+(cpu-clock|page-faults)")
_FRAME = re.compile(r"\s+[0-9a-f]+ (\w+)")
_CALL = re.compile(r"__(?:x64|arm64|se|do)_sys_(\w+)")
_CALLS = {"clone": "fork", "clone3": "fork", "fork": "fork", "vfork": "fork", "execve": "exec"}
_CALLS |= {"exit": "exit", "exit_group": "exit"}


def kind_of(frames: Iterable[str]) -> str:
    """What a process was at, by the functions on its stack."""
    frames = list(frames)
    if "asm_exc_page_fault" in frames:
        return "page faults"
    if "do_exit" in frames:
        return "exit"
    for frame in frames:
        if call := _CALL.fullmatch(frame):
            return _CALLS.get(call[1], "files, sockets, waits")
    return "files, sockets, waits" if "do_syscall_64" in frames else "Python and C"


def samples(script: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Of what `perf script` prints: how deep in the tree of processes each sample was taken, and its kind."""
    parents: dict[str, str] = {}
    pid, kind, frames = "", "", list[str]()

    def taken() -> Iterator[tuple[int, str]]:
        if pid:
            above, depth = pid, 0
            while above in parents:
                above, depth = parents[above], depth + 1
            yield depth, "count" if kind == "page-faults" else kind_of(frames)

    for line in script:
        if frame := _FRAME.match(line):
            frames.append(frame[1])
            continue
        if fork := _FORK.search(line):
            child, parent = fork.groups()
            if child != parent:  # else it is a thread
                parents.setdefault(child, parent)
        if sample := _SAMPLE.search(line):
            yield from taken()
            pid, kind, frames = sample[1], sample[2], []
    yield from taken()


def profiled(launcher: str, kind: str, jobs: int, directory: Path) -> dict[int, Counter[str]]:
    """How many samples of each kind there were, by depth."""
    drivers = REPOSITORY / "bench" / "drivers"
    environment = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(drivers)])}
    run = [sys.executable, str(drivers / "throughput.py"), launcher, kind, str(jobs)]
    found: dict[int, Counter[str]] = defaultdict(Counter)
    with fresh(directory) as place:
        data = str(place / "perf.data")
        for events in (["-g", "-e", "cpu-clock", "-F", str(HERTZ)], ["-e", "page-faults", "-c", "1"]):
            work = place / events[-1]
            work.mkdir()
            record = ["perf", "record", "-q", *events, "-o", data, "--", *run]
            subprocess.run(record, cwd=work, env=environment, check=True, stdout=subprocess.DEVNULL)
            show = ["perf", "script", "-i", data, "--show-task-events", "-F", "pid,tid,event,ip,sym"]
            shown = subprocess.run(show, check=True, text=True, capture_output=True, errors="replace")
            for depth, what in samples(shown.stdout.splitlines()):
                found[depth][what] += 1
    return found


def table(few: dict[int, Counter[str]], many: dict[int, Counter[str]]) -> str:
    """Milliseconds of CPU time a job."""
    header = ["Process", *KINDS, "all", "page faults, number"]
    rows = []
    for depth, role in enumerate(ROLES):
        each = {kind: (many[depth][kind] - few[depth][kind]) / (MANY - FEW) for kind in (*KINDS, "count")}
        times = [each[kind] / HERTZ * 1000 for kind in KINDS]
        shown = [f"{round(time, 2) + 0.0:.2f}" for time in (*times, sum(times))]  # no -0.00
        rows.append([role, *shown, f"{each['count']:.0f}"])
    sums = [sum(float(row[column]) for row in rows) for column in range(1, len(header))]
    rows.append(["all", *(f"{total:.2f}" for total in sums[:-1]), f"{sums[-1]:.0f}"])
    return markdown(header, rows, header[1:])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument("launcher", nargs="?", default="warm", choices=["warm", "spawn"])
    parser.add_argument("kind", nargs="?", default="noop", choices=["noop", "command"])
    parser.add_argument("--directory", type=Path, default=ROOT / "work", help="where the jobs are run")
    given = parser.parse_args()
    if shutil.which("perf") is None:
        sys.exit("perf is not installed: on Debian it is in the package linux-perf")
    runs = [profiled(given.launcher, given.kind, jobs, given.directory.absolute()) for jobs in (FEW, MANY)]
    print("Milliseconds of CPU time for one job, and pages that were copied or mapped for it:\n")
    print(table(*runs))


if __name__ == "__main__":
    main()
