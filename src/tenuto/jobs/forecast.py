"""How long work will take, from how long it took: past durations, and a schedule of what is to be done.
It reads markers and guesses; nothing depends on it being right.
"""

from __future__ import annotations

import heapq
import statistics
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tenuto.errors import WorkspaceError
from tenuto.workspace.layout import Layout
from tenuto.workspace.markers import Marker, read_markers
from tenuto.workspace.ports import Files

SAMPLE = 100
"""How many earlier jobs of a task are asked. Job ids are hashes, so the first of a list are a fair sample."""


class Durations:
    """How long the jobs of each task took in a workspace: the median of those that ended well."""

    def __init__(self, files: Files, layout: Layout) -> None:
        self._files = files
        self._layout = layout
        self._known: dict[str, float | None] = {}

    def expected(self, task_id: str) -> float | None:
        """Seconds that a job of this task takes; None if none has ended well yet."""
        if task_id not in self._known:
            found = list(self._found(task_id))
            self._known[task_id] = statistics.median(found) if found else None
        return self._known[task_id]

    def _found(self, task_id: str) -> Iterable[float]:
        try:
            job_ids = self._files.list(self._layout.task(task_id))[:SAMPLE]
        except (OSError, WorkspaceError):
            return
        for job_id in job_ids:
            try:
                marker = read_markers(self._files, self._layout.job(task_id, job_id)).done
            except (OSError, WorkspaceError):
                continue  # a stray file, or a job that is being removed
            if isinstance(marker, Marker) and marker.starttime and marker.endtime:
                yield max((marker.endtime - marker.starttime).total_seconds(), 0.0)


class ForecastJob(NamedTuple):
    """A job to be done."""

    key: str
    duration_s: float
    needs: tuple[str, ...] = ()
    launcher: str = ""


def makespan(steps: Iterable[ForecastJob], slots: Mapping[str, int]) -> float:
    """How long the steps take together: each launcher starts what is ready, first come, first served.

    What a step needs and is not among the steps is taken to be done.
    """
    by_key = {step.key: step for step in steps}
    missing = {key: sum(need in by_key for need in set(step.needs)) for key, step in by_key.items()}
    followers: dict[str, list[str]] = {}
    for key, step in by_key.items():
        for need in set(step.needs) & by_key.keys():
            followers.setdefault(need, []).append(key)
    ready: dict[str, deque[str]] = {}
    free = dict(slots)
    running: list[tuple[float, str]] = []
    now = 0.0

    def offer(key: str) -> None:
        ready.setdefault(by_key[key].launcher, deque()).append(key)

    for key, count in missing.items():
        if not count:
            offer(key)
    while True:
        for launcher, queue in ready.items():
            while queue and free.setdefault(launcher, 1) > 0:
                key = queue.popleft()
                free[launcher] -= 1
                heapq.heappush(running, (now + by_key[key].duration_s, key))
        if not running:
            return now
        now, ended = heapq.heappop(running)
        free[by_key[ended].launcher] += 1
        for follower in followers.get(ended, ()):
            missing[follower] -= 1
            if not missing[follower]:
                offer(follower)


class Running(NamedTuple):
    """A job that runs."""

    task: str
    elapsed_s: float
    left_s: float | None = None
    """What it says itself, if it says anything."""


def remaining_s(
    unstarted: Mapping[str, int],
    running: Sequence[Running],
    expected: Mapping[str, float | None],
    slots: int,
) -> float | None:
    """How long jobs will still take: those that wait, by task, and those that run; None if nothing is known.

    The expected time of the jobs that wait, and the rest of those that run, divided by the slots; but no less
    than the longest of those that run.
    """
    known = dict(expected)
    for one in running:
        if known.get(one.task) is None and one.left_s is not None:
            known[one.task] = one.elapsed_s + one.left_s
    seconds = [each for each in known.values() if each is not None]
    if not seconds:
        return None
    usual = statistics.fmean(seconds)  # for tasks of which no job has ever ended

    def each(task: str) -> float:
        found = known.get(task)
        return usual if found is None else found

    to_go = [
        max(each(one.task) - one.elapsed_s, 0.0) if one.left_s is None else one.left_s for one in running
    ]
    work = sum(to_go) + sum(number * each(task) for task, number in unstarted.items())
    return max([work / max(slots, 1), *to_go])
