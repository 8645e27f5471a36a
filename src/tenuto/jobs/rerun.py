"""The filter of `--rerun`: which jobs that a script submits are run again, though they were done.
It reads parameters of jobs where the filter names one; the check decides what follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tenuto.jobs.parameters import read_stored
from tenuto.jobs.query import FIELDS, read_question
from tenuto.lifecycle.states import JobState
from tenuto.scheduler.jobs import Job
from tenuto.workspace.markers import Marker
from tenuto.workspace.ports import Files


class RerunFilter:
    """Tells which jobs a person wants to be run again; knows whether there was one."""

    def __init__(self, files: Files, filter: str) -> None:
        """`filter`: as of `tenuto jobs`; `FilterError` points at the character that cannot be read."""
        self._files = files
        self._tree = read_question(filter)
        self.filter = filter
        self.matched = 0

    def __call__(self, job: Job, marker: Marker | None) -> bool:
        """True for a job that the filter names; `marker`: of one that is done."""
        found = self._tree is None or self._tree.matches(_JobFields(self._files, job, marker))
        self.matched += found
        return found

    def note(self, jobs: Iterable[Job]) -> str | None:
        """What to say at the end of a run of these jobs: that the filter names none of them."""
        if self.matched or any(self(job, job.marker) for job in jobs):
            return None
        return f"--rerun {self.filter!r}: no job that was submitted is of that kind"


class _JobFields(Mapping[str, Any]):
    """What a filter may ask of a job that is submitted: fields, then tags, then parameters."""

    def __init__(self, files: Files, job: Job, marker: Marker | None) -> None:
        self._files, self._job = files, job
        began, ended = (marker.starttime, marker.endtime) if marker is not None else (None, None)
        self._known: dict[str, Any] = {
            "state": JobState.ERROR if marker is None else JobState.DONE,
            "task": job.task_id,
            "id": job.job_id,
            "name": job.job_id[:12],
            "key": f"{job.task_id}/{job.job_id}",
            "kind": "experiment",
            "attempt": marker.attempt if marker is not None else job.attempt,
            "message": marker.message if marker is not None else None,
            "started": began,
            "ended": ended,
            "duration": (ended - began).total_seconds() if began and ended else None,
        }
        self._known |= {name: value for name, value in job.tags.items() if name not in FIELDS}
        self._parameters: Mapping[str, Any] | None = None

    def __getitem__(self, name: str) -> Any:
        if name in self._known:
            return self._known[name]
        if self._parameters is None:
            self._parameters = read_stored(self._files, self._job.paths).parameters
        return self._parameters[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)
