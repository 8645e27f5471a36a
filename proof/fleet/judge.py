"""Owns the verdict over a fleet: nothing lost, nothing twice, nobody's result another's, nothing left over.
Asks no process; what users saw, the ledger, the rows and the directories say it.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

EXPECTED = {"good": ("Completed",), "bad": ("Failed",), "ended": ("Killed", "Completed")}


class FleetJob(NamedTuple):
    """A job as its user saw it last."""

    id: int
    user: str
    kind: str
    secret: str
    status: str = "Queued"
    message: str = ""
    result: bytes = b""


def judged(root: Path, jobs: Sequence[FleetJob], rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """What is wrong; ``rows``: (id, user, state, server) of all jobs in the database."""
    return [*_lost(jobs, rows), *_twice(root, jobs), *_wrong(jobs), *_leaks(root, rows)]


def _lost(jobs: Sequence[FleetJob], rows: Sequence[tuple[Any, ...]]) -> Iterator[str]:
    known = {row[0]: row for row in rows}
    for job in jobs:
        if job.id not in known:
            yield f"lost: job {job.id} was accepted and has no row"
        elif known[job.id][1] != job.user:
            yield f"wrong owner: job {job.id} of user {job.user} is {known[job.id][1]}'s"
        if job.status not in EXPECTED[job.kind]:
            yield f"lost: a {job.kind} job, {job.id}, is {job.status}: {job.message}"
    accepted = {job.id for job in jobs}
    if len(accepted) != len(jobs):
        yield "two uploads are one job"
    if more := sorted(set(known) - accepted):
        yield f"twice: jobs {more[:5]} were uploaded once, and have a second row"


def _twice(root: Path, jobs: Sequence[FleetJob]) -> Iterator[str]:
    ledger = root / "ledger"
    starts = Counter(ledger.read_text().split() if ledger.exists() else [])
    for job in jobs:
        count = starts.pop(f"{job.id}:{job.secret}", 0)
        if count != 1 and not (job.kind == "ended" and count == 0):
            yield f"twice: job {job.id} was started {count} times"
    if starts:
        yield f"wrong owner: programs ran as jobs that they are not: {dict(starts)}"


def _wrong(jobs: Sequence[FleetJob]) -> Iterator[str]:
    for job in jobs:
        if job.status != "Completed":
            continue
        try:
            with zipfile.ZipFile(io.BytesIO(job.result)) as made:
                said, secret = json.loads(made.read(".tenuto/job.json")), made.read("secret").decode()
        except (zipfile.BadZipFile, KeyError, OSError) as error:
            yield f"lost: the result of job {job.id} cannot be read: {error!r}"
            continue
        if (said["id"], said["user_id"], secret) != (job.id, job.user, job.secret):
            yield f"wrong owner: job {job.id} of user {job.user} got the result of job {said['id']}"


def _leaks(root: Path, rows: Sequence[tuple[Any, ...]]) -> Iterator[str]:
    data = root / "data"
    directories = list((data / "jobs").iterdir())
    if len(directories) > len(rows):
        yield f"leak: {len(directories)} directories of {len(rows)} jobs"
    for directory in directories:
        for left in directory.iterdir():
            if left.name != "result.zip":
                yield f"leak: {left.name} in the directory of an ended job"
    for node in sorted(root.glob("node*")):
        for left in (node / "node" / "jobs" / "payload").glob("*/*.part"):
            yield f"leak: {left.name} at {node.name}"
        if uploads := list((node / "node" / "uploads").iterdir()):
            yield f"leak: {len(uploads)} uploads at {node.name}"
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            where = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            continue
        if where.startswith(f"{root}/node") and "/jobs/payload/" in where:
            yield f"leak: a program still runs in {where}"
