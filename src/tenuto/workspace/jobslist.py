"""`jobs.jsonl` and the links of a run: which jobs it asked for.
A submission counts as accepted once its line is synced, which happens in groups, within 100 ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from tenuto.clock import Clock
from tenuto.lifecycle.states import TransientMode
from tenuto.workspace.layout import JobPaths, RunPaths
from tenuto.workspace.ports import Files

GROUP_SYNC_S = 0.1


class JobLine(NamedTuple):
    """One job of a run, as it was submitted."""

    job_id: str
    task_id: str
    submittime: datetime
    tags: Mapping[str, str] = {}
    depends_on: tuple[str, ...] = ()
    transient: TransientMode = TransientMode.NONE
    max_retries: int = 0


class JobsList:
    """The writer of one run's `jobs.jsonl`. Whoever appends calls `sync_if_due` (or `sync`) in time."""

    def __init__(self, files: Files, path: str, clock: Clock) -> None:
        raise NotImplementedError

    def append(self, line: JobLine) -> None:
        raise NotImplementedError

    @property
    def sync_due(self) -> float | None:
        """The monotonic time by which to call `sync`; None if everything is synced."""
        raise NotImplementedError

    def sync_if_due(self) -> bool:
        raise NotImplementedError

    def sync(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Sync what is left and close."""
        raise NotImplementedError


class JobsRead(NamedTuple):
    jobs: list[JobLine]
    bad_lines: int


def read_jobs(files: Files, path: str) -> JobsRead:
    """Every job listed, each once (the last line of a job counts); empty if there is no file."""
    raise NotImplementedError


def link_job(files: Files, run: RunPaths, task_id: str, job_id: str, paths: JobPaths) -> None:
    """Make the run's link to the job's directory, relative, so that a workspace can move."""
    raise NotImplementedError
