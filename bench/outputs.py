"""Owns what the end of a job costs that leaves files: ``python -m bench.outputs [DIRECTORY]``.
Measures one job's end alone: what a task left is kept, and its marker written; no scheduler, no processes.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime

from tenuto.lifecycle.states import JobState, StateRecord
from tenuto.workspace.attempt_files import finish, preserve, write_params
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine
from tenuto.workspace.markers import Durability, Marker
from tenuto.workspace.records import StatusRecord

REPETITIONS = 7
CASES = {
    "nothing": (0, 0),
    "1 file of 4 KB": (1, 4 << 10),
    "100 files of 4 KB": (100, 4 << 10),
    "1,000 files of 4 KB": (1_000, 4 << 10),
    "1 file of 256 MB": (1, 256 << 20),
}


def ends(root: str, count: int, size: int, durability: Durability) -> Iterator[float]:
    """The seconds that each of several ends takes."""
    files = this_machine().files
    status = StatusRecord("ab", "a.Task", StateRecord(JobState.DONE, endtime=datetime.now(UTC)), 1)
    for number in range(REPETITIONS):
        paths = Layout(root).job("a.Task", f"job{number}")
        files.make_directory(paths.private)
        write_params(files, paths, b"{}")
        for each in range(count):
            files.write(f"{paths.directory}/{each}", bytes(size))
        began = time.perf_counter()
        marker = preserve(files, paths, Marker(1, "nonce"), None, durability)
        finish(files, paths, marker, status, durability)
        yield time.perf_counter() - began
        shutil.rmtree(paths.directory)


def main(directory: str | None) -> None:
    print("| What the task left | `marker`, ms | `none`, ms |\n|---|--:|--:|")
    for case, (count, size) in CASES.items():
        root = tempfile.mkdtemp(prefix="tenuto-outputs-", dir=directory)
        try:
            figures = [
                f"{1000 * min(ends(root, count, size, durability)):.2f}"
                for durability in (Durability.MARKER, Durability.NONE)
            ]
        finally:
            shutil.rmtree(root)
        print(f"| {case} | {' | '.join(figures)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
