"""What is new about a job: the earlier job of its task that differs least, and in what.
It reads stored parameters; a job whose parameters cannot be read any more is passed over.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tenuto.errors import TenutoError
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.work import TaskWork
from tenuto.tasks.explain import Difference, explain
from tenuto.tasks.saving import from_task_dir

MOST_EARLIER = 200
MOST_COMPARISONS = 20_000
_CLASS = "it is a "
_KIND = re.compile(r"(.*) \((\w+)\)", re.DOTALL)


class Nearest(NamedTuple):
    """An earlier job, and all that a new one has otherwise."""

    job_id: str
    differences: tuple[Difference, ...]

    def __str__(self) -> str:
        first, *others = self.differences
        more = f" and {len(others)} more" if others else ""
        return f"{_worded(first)} in {self.job_id[:12]}{more}"


def nearest_earlier(jobs: Sequence[Job]) -> dict[str, Nearest]:
    """For each job that has an earlier one of the same task: by the job's key.

    Only the newest earlier jobs are asked, the fewer the more jobs there are.
    """
    each = max(1, min(MOST_EARLIER, MOST_COMPARISONS // max(len(jobs), 1)))
    planned = {job.key for job in jobs}
    earlier: dict[str, list[tuple[str, Any]]] = {}
    found: dict[str, Nearest] = {}
    for job in jobs:
        folder = job.layout.task(job.task_id)
        if folder not in earlier:
            earlier[folder] = list(_stored(folder, planned, each))
        if isinstance(job.work, TaskWork):
            near = _nearest(job.work.task, earlier[folder])
            if near is not None:
                found[job.key] = near
    return found


def _nearest(task: Any, earlier: Iterable[tuple[str, Any]]) -> Nearest | None:
    best: Nearest | None = None
    for job_id, other in earlier:
        differences = explain(task, other).differences
        if differences and (best is None or len(differences) < len(best.differences)):
            best = Nearest(job_id, differences)
            if len(differences) == 1:
                break
    return best


def _stored(folder: str, planned: set[str], most: int) -> Iterable[tuple[str, Any]]:
    """The tasks of the newest jobs that lie in a folder."""
    try:
        with os.scandir(folder) as entries:
            jobs = [
                (entry.stat().st_mtime, entry.name)
                for entry in entries
                if entry.is_dir() and entry.path not in planned
            ]
    except OSError:
        return
    for _, job_id in sorted(jobs, reverse=True)[:most]:
        try:
            yield job_id, from_task_dir(f"{folder}/{job_id}")
        except (TenutoError, OSError):
            continue  # its class is gone, or it is being removed


def _worded(difference: Difference) -> str:
    """``lr is 0.1, was 0.01``: with the types only where they differ."""
    new, old = difference.first, difference.second
    if new.startswith(_CLASS) and old.startswith(_CLASS):  # a parameter that takes several classes
        new, old = (f"a {one.removeprefix(_CLASS)}" for one in (new, old))
    ours, theirs = _KIND.fullmatch(new), _KIND.fullmatch(old)
    if ours and theirs and ours[2] == theirs[2]:
        new, old = ours[1], theirs[1]
    return f"{difference.path or 'the task'} is {new}, was {old}"
