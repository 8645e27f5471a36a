"""Owns the verdict over a case: every job ended as it must, was started at most once, and left nothing over.
Asks no process: what counts is what answers, the ledger and the directories show.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from proof.service.case import Case

EXPECTED = {"good": "Completed", "bad": "Failed", "ended": "Killed"}


class Job(NamedTuple):
    """A job of a case, as its user saw it last."""

    id: int
    kind: str
    status: str = "Queued"
    message: str = ""
    result: bytes = b""


def judged(root: Path, case: Case, jobs: Sequence[Job]) -> list[str]:
    """What is wrong."""
    return [
        *_unstruck(root, case),
        *_ends(jobs),
        *_ledger(root / "ledger", jobs),
        *_leftovers(root / "server" / "data", jobs),
        *_processes(root),
    ]


def _unstruck(root: Path, case: Case) -> Iterator[str]:
    for point in case.points:
        if not (root / f"struck-{point}").exists():
            yield f"no process was killed at {point}"


def _ends(jobs: Sequence[Job]) -> Iterator[str]:
    for job in jobs:
        if job.status != EXPECTED[job.kind]:
            yield f"a job that should be {EXPECTED[job.kind]} is {job.status}: {job.message}"
        elif job.kind == "good":
            with zipfile.ZipFile(io.BytesIO(job.result)) as made:
                if made.testzip() is not None or made.getinfo("data").file_size != 200_000:
                    yield f"the result of job {job.id} is not whole"
    if len({job.id for job in jobs}) != len(jobs):
        yield "two uploads are one job"


def _ledger(ledger: Path, jobs: Sequence[Job]) -> Iterator[str]:
    lines = Counter(ledger.read_text().splitlines() if ledger.exists() else [])
    for job in jobs:
        starts, ends = lines.pop(f"start {job.id}", 0), lines.pop(f"end {job.id}", 0)
        if starts != 1 and not (job.kind == "ended" and starts == 0):
            yield f"job {job.id} was started {starts} times"
        if ends != (job.kind == "good"):
            yield f"job {job.id} ended {ends} times"
    if lines:
        yield f"programs ran that belong to no job: {dict(lines)}"


def _leftovers(data: Path, jobs: Sequence[Job]) -> Iterator[str]:
    directories = list((data / "jobs").iterdir())
    if len(directories) > len(jobs):
        yield f"{len(directories)} directories of {len(jobs)} jobs"
    for directory in directories:
        for left in directory.iterdir():
            if left.name != "result.zip":
                yield f"{left.name} is left in the directory of an ended job"


def _processes(root: Path) -> Iterator[str]:
    """Programs of payloads that still run below the case's directory."""
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            where = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            continue
        if where.startswith(f"{root}/") and "/jobs/payload/" in where:
            yield f"a program still runs in {where}"
