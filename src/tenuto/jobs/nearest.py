"""The earlier job of a task that differs least from another, and in what: one answer for `plan` and `why`.
Reads stored parameters as plain JSON: no class is looked up, and no code that a workspace names is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from tenuto.jobs.directories import is_real_directory
from tenuto.jobs.key import JobKey
from tenuto.jobs.parameters import Changed, Stored, changed, read_stored, stored_in
from tenuto.scheduler.jobs import Job
from tenuto.tasks.base import brief
from tenuto.workspace.layout import Layout, is_job_id
from tenuto.workspace.ports import Files

MOST_EARLIER = 200
"""So many earlier jobs of a task are read, the newest, however many there are."""
MOST_COMPARISONS = 20_000
MOST_TIMED = 10_000
"""Of so many jobs of a task it is asked which are the newest; of more, some."""
_DEEPEST = 8


class Nearest(NamedTuple):
    """An earlier job, and the parameters in which another differs from it."""

    key: JobKey
    changed: tuple[Changed, ...]

    def __str__(self) -> str:
        if not self.changed:
            return f"{self.key.job_id[:12]} stores the same parameters"
        first, *others = self.changed
        more = f" and {len(others)} more" if others else ""
        new, old = brief(first.here), brief(first.there)
        return f"{first.path or 'the task'} is {new}, was {old} in {self.key.job_id[:12]}{more}"


class JobComparison:
    """Compares jobs of one workspace by their stored parameters, each read once."""

    def __init__(self, files: Files, layout: Layout, planned: Iterable[Job] = ()) -> None:
        """`planned`: jobs that may not be stored yet; their parameters are their submission's."""
        self._files = files
        self._layout = layout
        self._planned = {JobKey(job.task_id, job.job_id): job for job in planned}
        self._read: dict[JobKey, Stored] = {}

    def stored(self, key: JobKey) -> Stored:
        """The parameters of a job: as it was planned, or else as its directory has them."""
        if key not in self._read:
            job = self._planned.get(key)
            self._read[key] = (
                read_stored(self._files, self._layout.job(*key))
                if job is None
                else stored_in(job.work.params(job.layout, job.paths))
            )
        return self._read[key]

    def nearest(
        self,
        key: JobKey,
        earlier: Iterable[JobKey],
        counts: Callable[[JobKey], bool] = lambda _: True,
    ) -> Nearest | None:
        """Of some earlier jobs that `counts` admits, the first with the fewest differences."""
        own = self.stored(key)
        best: Nearest | None = None
        for other in earlier:
            stored = self.stored(other)
            if other == key or stored.problem is not None or not counts(other):
                continue
            difference = tuple(changed(own, stored))
            if best is None or len(difference) < len(best.changed):
                best = Nearest(other, difference)
                if len(difference) <= 1:
                    break
        return best and best._replace(changed=tuple(self._expanded(own, self.stored(best.key))))

    def _expanded(self, here: Stored, there: Stored, depth: int = 0) -> list[Changed]:
        """The differences; where other jobs are used, what differs in their parameters."""
        found: list[Changed] = []
        for one in changed(here, there):
            ours, theirs = here.upstream.get(one.path), there.upstream.get(one.path)
            if ours is None or theirs is None or ours.task_id != theirs.task_id or depth >= _DEEPEST:
                found.append(one)
                continue
            inner = self._expanded(self.stored(ours), self.stored(theirs), depth + 1)
            found += [Changed(f"{one.path}.{part.path}", part.here, part.there) for part in inner] or [one]
        return found


def nearest_earlier(files: Files, jobs: Sequence[Job]) -> dict[str, Nearest]:
    """For each planned job that has an earlier one of the same task: by the job's key.

    Only the newest earlier jobs are asked, the fewer the more jobs there are.
    """
    each = max(1, min(MOST_EARLIER, MOST_COMPARISONS // max(len(jobs), 1)))
    planned = {job.key for job in jobs}
    comparisons: dict[str, JobComparison] = {}
    earlier: dict[str, list[JobKey]] = {}
    found: dict[str, Nearest] = {}
    for job in jobs:
        layout, folder = job.layout, job.layout.task(job.task_id)
        if layout.root not in comparisons:
            here = (one for one in jobs if one.layout.root == layout.root)
            comparisons[layout.root] = JobComparison(files, layout, here)
        if folder not in earlier:
            stored = newest(files, layout, job.task_id)
            earlier[folder] = [key for key in stored if layout.job(*key).directory not in planned][:each]
        near = comparisons[layout.root].nearest(JobKey(job.task_id, job.job_id), earlier[folder])
        if near is not None:
            found[job.key] = near
    return found


def newest(files: Files, layout: Layout, task_id: str, done_by: float | None = None) -> list[JobKey]:
    """Returns the stored jobs of a task, the newest first; `done_by`: jobs that ended later come last.

    Looks at times of files only, which a copy of a workspace need not have kept.
    """
    folder = layout.task(task_id)
    try:
        names = files.list(folder) if is_real_directory(files, folder) else []
    except OSError:
        return []
    timed: list[tuple[bool, float, str]] = []
    for name in islice(filter(is_job_id, names), MOST_TIMED):
        paths = layout.job(task_id, name)
        found = files.stat(paths.directory if done_by is None else paths.done)
        if found is not None:
            time = found.changed / 1e9
            timed.append((done_by is None or time <= done_by, time, name))
    return [JobKey(task_id, name) for _, _, name in sorted(timed, reverse=True)]
