"""How a job of the heart ended, as the end of a candidate's row.
Reads the job's result; writes nothing.
"""

from __future__ import annotations

import os.path

from tenuto.errors import SerializationError, WorkspaceError
from tenuto.launchers.results import readable
from tenuto.lifecycle.evolution import EvolutionStatus
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.jobs import Job
from tenuto.search.claim_store import LOST
from tenuto.search.kept_outcomes import kept
from tenuto.search.outcome import Outcome, read_outcome
from tenuto.search.rows import Claimed, End
from tenuto.workspace.attempt_files import read_result
from tenuto.workspace.ports import Files

_MESSAGE = 4000
_REPEATED = (JobFailureStatus.LOST, JobFailureStatus.DELETED)


def is_answer(job: Job, row: Claimed) -> bool:
    """Whether the end that a job shows is news to the row, and not that of a try it knows already."""
    return job.state is JobState.DONE or job.attempt > row.job_attempt


def end_of(files: Files, job: Job, row: Claimed) -> End:
    """The end of a row whose job ended."""
    directory = os.path.join("jobs", job.task_id, job.job_id)
    if job.state is JobState.DONE:
        outcome = _outcome(files, job, row)
        status = EvolutionStatus.SUCCEEDED
        if outcome.failure is not None:
            status = EvolutionStatus.FAILED
            outcome = outcome._replace(objective=None)  # it counts nowhere, so no reader gets it
        return End(
            row.id,
            row.attempt,
            status,
            kept(outcome),
            outcome.objective,
            outcome.cost,
            None if outcome.failure is None else JobFailureStatus.FAILED.name,
            None if outcome.failure is None else outcome.failure[:_MESSAGE],
            job.attempt,
            directory,
        )
    reason = job.standing.reason or JobFailureStatus.FAILED
    status = EvolutionStatus.CANCELLED if reason is JobFailureStatus.CANCELLED else EvolutionStatus.FAILED
    failure = LOST if reason in _REPEATED else reason.name
    message = (job.standing.message or reason.meaning)[-_MESSAGE:]
    return End(
        row.id,
        row.attempt,
        status,
        failure=failure,
        message=message,
        job_attempt=job.attempt,
        directory=directory,
    )


def failed_end(row: Claimed, message: str) -> End:
    """The end of a row whose job could not be run."""
    failure = JobFailureStatus.REJECTED.name
    return End(
        row.id,
        row.attempt,
        EvolutionStatus.FAILED,
        failure=failure,
        message=message,
        job_attempt=row.job_attempt,
    )


def _outcome(files: Files, job: Job, row: Claimed) -> Outcome:
    if job.marker is None:
        return Outcome(failure="the job is done, and left no marker")
    try:
        returned = readable(read_result(files, job.paths, job.marker))
    except (OSError, WorkspaceError, SerializationError, ValueError) as error:
        return Outcome(failure=f"what the task returned cannot be read: {error}")
    definition = row.definition
    return read_outcome(returned, definition.get("measures") or (), definition.get("measure_count"))
