"""What a person should know of a run at its end, though no job failed.
It looks at markers that were read; nothing depends on it.
"""

from __future__ import annotations

from tenuto.experiments.run import Run
from tenuto.jobs.validity import Validity
from tenuto.scheduler.jobs import Job
from tenuto.workspace.flags import RESULT_NOT_KEPT


def notes_of(run: Run, validity: Validity) -> list[str]:
    """Sentences on code that changed, and on results that could not be kept."""
    jobs = list(run.jobs.values())
    notes = [str(changed) for changed in validity.changed_code(jobs, run.reused)]
    lost = [job for job in jobs if job.marker is not None and RESULT_NOT_KEPT in job.marker.flags]
    if lost:
        returned = "1 job returned" if len(lost) == 1 else f"{len(lost)} jobs returned"
        notes.append(f"{returned} what could not be kept: {lost[0].task_id}: {_message(lost[0])}")
    return notes


def _message(job: Job) -> str:
    return (job.marker.message if job.marker is not None else None) or "see its log"
