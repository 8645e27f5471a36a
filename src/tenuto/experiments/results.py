"""The results of jobs as rows, which pandas and Polars take as they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tenuto.lifecycle.states import JobState
from tenuto.scheduler.jobs import Job
from tenuto.workspace.job_directory import read_result
from tenuto.workspace.ports import Files


def result_rows(files: Files, jobs: Iterable[Job]) -> list[dict[str, Any]]:
    """One row for each finished job: task, id, state, its tags, and what it returned."""
    rows = []
    for job in jobs:
        if job.state.finished():
            result = None
            if job.state is JobState.DONE and job.marker is not None:
                result = read_result(files, job.paths, job.marker)
            rows.append(
                {
                    "task": job.task_id,
                    "job": job.job_id,
                    "state": job.state.name,
                    **job.tags,
                    "result": result,
                }
            )
    return rows
