"""Whether what was found done is still what a script asks for: its defaults, and the code it was run from.
It reads markers and stored parameters; the scheduler decides what a difference leads to.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tenuto.errors import DefaultChanged, TenutoError
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.work import TaskWork
from tenuto.tasks.base import caller, class_name
from tenuto.tasks.live import live_class
from tenuto.tasks.location import is_of_notebook, known_file, locate
from tenuto.tasks.serialization import PARAMS_FILE, loads
from tenuto.tasks.validity import ChangedValue, compared, defaults_digest
from tenuto.workspace.markers import Marker
from tenuto.workspace.ports import Files

_LARGEST_PARAMS = 4 << 20
_LARGEST_CODE = 32 << 20


class ChangedCode(NamedTuple):
    """Jobs of a run whose task's file is not what they were run from."""

    file: str
    reused: int
    ran: int

    def __str__(self) -> str:
        parts = []
        if self.reused:
            parts.append(
                f"{_jobs(self.reused)} reused, though {_near(self.file)} has changed since "
                f"(--rerun-changed runs such jobs again)"
            )
        if self.ran:
            parts.append(f"{_jobs(self.ran)} run from another version of {_near(self.file)} than it has now")
        return "; ".join(parts)


class Validity:
    """Judges results that are found done, for one experiment."""

    def __init__(self, files: Files, *, rerun_changed: bool = False) -> None:
        """`rerun_changed`: the scheduler runs jobs again whose code has changed, and their dependents."""
        self._files = files
        self._rerun_changed = rerun_changed
        self._judged: dict[tuple[type, str, str], tuple[ChangedValue, ...]] = {}
        """Which values differ, by class and by the digests of the defaults then and now: they tell all."""
        self._digests: dict[str, str | None] = {}

    def __call__(self, job: Job, marker: Marker) -> bool:
        """True if a job that was found done can be reused, False if it is to be run again.

        `DefaultChanged` if it was run with other values than the task has.
        """
        provenance = marker.provenance
        if isinstance(job.work, TaskWork):
            then, now = provenance.get("defaults"), defaults_digest(job.work.task)
            if then is not None and then != now:
                self._refuse_changed(job, job.work.task, then, now)
        if not self._rerun_changed:
            return True
        return not (
            self.changed_file(marker, job) or any(needed.origin.reruns for needed in job.dependencies)
        )

    def changed_file(self, marker: Marker | None, job: Job | None = None) -> str | None:
        """The file that a job was run from, if its content has changed since, or it is gone.

        `job`: as the script has it now; one of a notebook has the source of its cells in a file of its own.
        """
        provenance = marker.provenance if marker is not None else {}
        file, digest = provenance.get("file"), provenance.get("sha256")
        if not file or not digest:
            return None
        if job is not None and "IPython" in sys.modules and isinstance(job.work, TaskWork):
            cls = live_class(type(job.work.task))
            if is_of_notebook(cls) and locate(cls).file != file:
                return known_file(cls)
        if file not in self._digests:
            self._digests[file] = _digest(self._files, file)
        return file if self._digests[file] != digest else None

    def changed_code(self, jobs: Iterable[Job], reused: set[str]) -> Iterator[ChangedCode]:
        """The files that differ from what jobs were run from, looked at anew."""
        self._digests.clear()
        found: dict[str, Counter[bool]] = {}
        for job in jobs:
            file = self.changed_file(job.marker, job)
            if file is not None:
                found.setdefault(file, Counter())[job.key in reused] += 1
        for file, counted in sorted(found.items()):
            yield ChangedCode(file, counted[True], counted[False])

    def _refuse_changed(self, job: Job, task: Any, then: str, now: str) -> None:
        key = type(task), then, now
        if key not in self._judged:
            self._judged[key] = self._changed_values(job, task)
        changed = self._judged[key]
        if changed:
            raise DefaultChanged(
                f"{class_name(task)} {job.job_id[:8]} was done with another value, which was a default then: "
                f"{'; '.join(map(str, changed[:5]))}, at {caller()}. The old results stay those of the old "
                f"value if you write {changed[0].remedy()}; to run all anew, add a Constant to the class. "
                f"See docs/valid.md"
            )

    def _changed_values(self, job: Job, task: Any) -> tuple[ChangedValue, ...]:
        try:
            stored = loads(self._files.read(job.paths.params, _LARGEST_PARAMS), PARAMS_FILE)
        except (OSError, TenutoError):
            return ()  # its parameters are gone: nothing speaks against it
        return compared(task, stored, {}).changed


def _digest(files: Files, file: str) -> str | None:
    try:
        return hashlib.sha256(files.read(file, _LARGEST_CODE)).hexdigest()
    except (OSError, TenutoError, ValueError):
        return None


def _jobs(number: int) -> str:
    return "1 job was" if number == 1 else f"{number} jobs were"


def _near(path: str) -> str:
    near = os.path.relpath(path)
    return path if near.startswith("..") else near
