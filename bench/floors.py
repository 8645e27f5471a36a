"""Owns the floors: what the parts of a job cost without any system around them, on this machine."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.measure import Broken, Cost, beside_reference, driver, pairs
from bench.ours import DRIVERS
from bench.rows import FLOOR, Row, missing, timed
from bench.scale import Options, Sizes
from bench.scratch import fresh
from bench.workload import Workload

PROCESSES = Sizes((3, 6), (8, 16), (200, 1_000))
FILES = Sizes((5, 10), (100, 400), (1_000, 10_000))
PROGRAMS = {
    "python -c pass (ref)": [sys.executable, "-c", "pass"],
    "python -I -S -c pass": [sys.executable, "-I", "-S", "-c", "pass"],
    "python -c 'import tenuto'": [sys.executable, "-c", "import tenuto"],
    "/bin/true": ["/bin/true"],
}
SMALL = b"x" * 200


def own(options: Options) -> Iterator[Row]:
    for case, argv in PROGRAMS.items():
        yield from _rows(options, case, PROCESSES, lambda _place, count, argv=argv: spawned(argv, count))
    yield from _rows(options, "fork", PROCESSES, forked)
    for case, once in IN_FILES.items():
        yield from _rows(options, case, FILES, lambda place, count, once=once: in_files(once, place, count))


def _rows(options: Options, case: str, sizes: Sizes, run: Callable[[Path, int], Cost]) -> Iterator[Row]:
    for size in sizes.at(options.scale):
        estimate_s = 0.01 * options.repetitions * options.references
        if not options.budget.affords("floor", case, size, estimate_s, smallest=True):
            continue
        try:
            with fresh(options.directory) as place:
                found = beside_reference(
                    options.repetitions, options.references, lambda place=place, size=size: run(place, size)
                )
        except (Broken, OSError) as problem:
            yield missing("floor", case, FLOOR, size, f"failed: {problem}")
            continue
        yield timed("floor", case, FLOOR, size, found)


def spawned(argv: list[str], count: int) -> Cost:
    each = pairs(argv, count)
    return Cost(each.cpu_s * count, each.wall_s * count)


def forked(place: Path, count: int) -> Cost:
    """In a fresh process: a fork costs more, the more memory its parent has."""
    report = driver(DRIVERS / "forks.py", count, directory=place)
    return Cost(report["cpu_s"], report["wall_s"])


def in_files(once: Callable[[str, int], None], place: Path, count: int) -> Cost:
    base = f"{place}/{time.monotonic_ns()}"  # another one for each repetition: never made again
    os.mkdir(base)
    with open(f"{base}/marker", "wb") as marker:
        marker.write(SMALL)
    used, began = time.process_time(), time.perf_counter()
    for number in range(count):
        once(base, number)
    return Cost(time.process_time() - used, time.perf_counter() - began)


def stat_marker(base: str, _number: int) -> None:
    os.stat(f"{base}/marker")


def read_marker(base: str, _number: int) -> None:
    with open(f"{base}/marker", "rb") as file:
        file.read()


def directory_and_files(base: str, number: int) -> None:
    os.mkdir(f"{base}/{number}")
    for name in "abcdef":
        _write(f"{base}/{number}/{name}")


def durable_marker(base: str, number: int) -> None:
    """Temporary file, sync, rename, sync of the directory."""
    fd = os.open(f"{base}/tmp", os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, SMALL)
    os.fsync(fd)
    os.close(fd)
    os.rename(f"{base}/tmp", f"{base}/done-{number}")
    fd = os.open(base, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def renamed_file(base: str, number: int) -> None:
    _write(f"{base}/tmp")
    os.rename(f"{base}/tmp", f"{base}/done-{number}")


def link(base: str, number: int) -> None:
    os.symlink("../marker", f"{base}/link-{number}")


def _write(path: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, SMALL)
    os.close(fd)


IN_FILES: dict[str, Callable[[str, int], None]] = {
    "stat of a marker": stat_marker,
    "reading a marker": read_marker,
    "mkdir + six files": directory_and_files,
    "file + rename": renamed_file,
    "file + fsync + rename + fsync of directory": durable_marker,
    "symlink": link,
}

WORKLOAD = Workload("floor", "floors: the parts of a job, bare", own)
