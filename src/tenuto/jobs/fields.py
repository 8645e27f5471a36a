"""The fields of a job that a filter may ask for, and that a list is sorted by."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tenuto.jobs.view import JobView

FIELDS = (
    "state task id reason message experiment run attempt submitted started ended duration progress".split()
)
"""What a filter may ask of any job; besides, its tags and its parameters."""


def own_fields(job: JobView, now: datetime) -> dict[str, Any]:
    """The fields that every job has."""
    return {
        "state": job.state,
        "task": job.task_id,
        "id": job.job_id,
        "reason": job.reason,
        "message": job.message,
        "experiment": job.experiment_id,
        "run": job.run_id,
        "attempt": job.attempt,
        "submitted": job.submittime,
        "started": job.starttime,
        "ended": job.endtime,
        "duration": job.duration_s(now),
        "progress": job.progress.fraction if job.progress else None,
    }
