"""How a job of the heart ended, as the end of a candidate's row.
Reads the job's result; writes nothing.
"""

from __future__ import annotations

import os.path
from typing import Any

from tenuto.errors import SerializationError, WorkspaceError
from tenuto.launchers.results import decoded, readable
from tenuto.lifecycle.evolution import EvolutionStatus
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.jobs import Job
from tenuto.search.claim_store import LOST
from tenuto.search.kept_outcomes import judge
from tenuto.search.outcome import Outcome, plain
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
        found = judge(_returned(files, job), row.definition)
        return End(row.id, row.attempt, *found, job.attempt, directory)
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


def _returned(files: Files, job: Job) -> Any:
    """What the task of a job that is done returned; a failure if that cannot be read."""
    if job.marker is None:
        return Outcome(failure="the job is done, and left no marker")
    try:
        raw = read_result(files, job.paths, job.marker)
        return readable(_with_measures(raw, job.paths.directory))
    except (OSError, WorkspaceError, SerializationError, ValueError) as error:
        return Outcome(failure=f"what the task returned cannot be read: {error}")


def _with_measures(raw: Any, directory: str) -> Any:
    """What a task returned, with measures that were an array of numpy, which lies in a file, as a list."""
    fields = raw.get("$namedtuple", [None, raw])[1] if isinstance(raw, dict) else None
    measures = fields.get("measures") if isinstance(fields, dict) else None
    if isinstance(measures, dict) and measures.get("$file", {}).get("codec") == "numpy":
        fields["measures"] = plain(decoded(measures, directory))  # type: ignore[index]
    return raw
