"""What a person should know of a run at its end, though no job failed.
It looks at markers that were read; nothing depends on it.
"""

from __future__ import annotations

from tenuto.experiments.run import Run
from tenuto.jobs.former import FormerJobs
from tenuto.jobs.validity import Validity
from tenuto.scheduler.jobs import Job
from tenuto.workspace.flags import RESULT_NOT_KEPT


def notes_of(run: Run, validity: Validity, former: FormerJobs) -> list[str]:
    """Sentences on code that changed, on results that could not be kept, and on tasks that were renamed."""
    jobs = list(run.jobs.values())
    notes = [str(changed) for changed in validity.changed_code(jobs, run.reused)]
    lost = [job for job in jobs if job.marker is not None and RESULT_NOT_KEPT in job.marker.flags]
    if lost:
        returned = "1 job returned" if len(lost) == 1 else f"{len(lost)} jobs returned"
        notes.append(f"{returned} what could not be kept: {lost[0].task_id}: {_message(lost[0])}")
    unmeasured = run.unmeasured() if any(job.carbon_plan is not None for job in jobs) else 0
    if unmeasured and run.carbon() is not None:
        they = "it was" if unmeasured == 1 else "they were"
        notes.append(f"energy: {unmeasured} of the jobs ended before {they} measured (carbon.after_s)")
    if former.found:
        one = next(iter(former.found))
        are = "1 job is" if len(former.found) == 1 else f"{len(former.found)} jobs are"
        notes.append(
            f"{are} kept under a former name, such as {one.task_id}; "
            f"`tenuto clean --renamed -w {run.layout.root}` moves them"
        )
    return notes


def _message(job: Job) -> str:
    return (job.marker.message if job.marker is not None else None) or "see its log"
