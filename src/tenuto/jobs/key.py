"""The name of a job within its workspace."""

from __future__ import annotations

from typing import NamedTuple


class JobKey(NamedTuple):
    """Which job: its task and its identity."""

    task_id: str
    job_id: str

    def __str__(self) -> str:
        return f"{self.task_id} {self.job_id[:12]}"
