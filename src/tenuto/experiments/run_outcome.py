"""The outcome of a run: its last state, why, and what a person should know though no job failed.
Reads no files: markers were read before.
"""

from __future__ import annotations

from tenuto.errors import FailedExperiment, GracefulExperimentExit
from tenuto.experiments.interrupts import EXIT_INTERRUPTED
from tenuto.experiments.reporter import failure_text, printable
from tenuto.experiments.run import Run
from tenuto.experiments.run_record import RunState
from tenuto.jobs.former import FormerJobs
from tenuto.jobs.reuse import Validity
from tenuto.jobs.text import counted
from tenuto.scheduler.jobs import Job
from tenuto.workspace.flags import RESULT_NOT_KEPT


def is_leaving(error: BaseException) -> bool:
    """Whether an experiment, or one inside it, was left on purpose."""
    interrupted = isinstance(error, SystemExit) and error.code == EXIT_INTERRUPTED
    return interrupted or isinstance(error, GracefulExperimentExit)


def outcome(run: Run, error: BaseException | None, *, fails_fast: bool) -> tuple[RunState, str | None]:
    """The last state of a run, and why it is not `DONE`; `error`: what ended the block of the script."""
    if error is not None:
        state = RunState.INTERRUPTED if is_leaving(error) else RunState.FAILED
        return state, f"{type(error).__name__}: {error}"
    if run.unfinishedJobs:
        left = f"{counted(run.unfinishedJobs, 'job')} not started"
        if run.failedJobs and fails_fast:
            return RunState.FAILED, f"stopped at the first failure; {left}"
        return RunState.INTERRUPTED, left
    message = "jobs failed" if run.failedJobs else run.counts.problem
    return RunState.FAILED if message else RunState.DONE, message or None


def raise_failure(run: Run) -> None:
    """Raise `FailedExperiment` if a job failed, or not all of the run could be recorded."""
    if run.failedJobs:
        raise FailedExperiment(failure_text(run))
    if run.counts.problem is not None:
        raise FailedExperiment(f"all jobs are done, but {printable(run.counts.problem)}")


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
