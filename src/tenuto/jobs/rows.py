"""Rows of jobs: from a job of this process, and from events; as a table in a notebook.
Pure: no row looks at a directory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tenuto.jobs.row import Row, row_key
from tenuto.launchers.results import readable
from tenuto.lifecycle.events import (
    Event,
    JobExplainedEvent,
    JobProgressEvent,
    JobStateChangedEvent,
    JobSubmittedEvent,
)
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobState
from tenuto.scheduler.jobs import Job, state_html
from tenuto.tasks.html import table
from tenuto.tasks.tags import tag_words


def identity_row(job: Job, group: str = "") -> Row:
    """A job of an experiment of this process without where it stands: events tell that."""
    return Row(
        key=row_key(Door.EXPERIMENTS, job.task_id, job.job_id),
        group=group,
        door=Door.EXPERIMENTS,
        task=job.task_id,
        id=job.job_id,
        tags=job.tags,
        depends_on=job.linked,
        transient=job.transient,
    )


def row_of(job: Job) -> Row:
    """A job of an experiment of this process as it stands."""
    record, is_done = job.state_record, job.state is JobState.DONE
    return identity_row(job)._replace(
        state=record.state,
        reason=record.reason,
        message=record.message,
        attempt=job.attempt,
        submitted=record.submittime,
        started=record.starttime,
        ended=record.endtime,
        result=readable(job.marker.result) if is_done and job.marker is not None else None,
        has_large_result=is_done and job.marker is not None and job.marker.result_stored,
    )


def after_event(row: Row, event: Event) -> Row:
    """The row after an event of its job; an event that is older than the row changes nothing."""
    if isinstance(event, JobSubmittedEvent):
        return row._replace(tags=event.tags, depends_on=event.depends_on, transient=event.transient)
    if isinstance(event, JobStateChangedEvent | JobExplainedEvent) and _is_past(row, event):
        return row
    if isinstance(event, JobStateChangedEvent):
        row = row if event.state is JobState.RUNNING else without_progress(row)
        return row._replace(
            state=event.state,
            reason=event.reason,
            message=event.message,
            attempt=event.attempt,
            submitted=event.submittime,
            started=event.starttime,
            ended=event.endtime,
        )
    if isinstance(event, JobExplainedEvent) and event.state is row.state:
        return row._replace(message=event.message)
    if isinstance(event, JobProgressEvent) and event.attempt == row.attempt and not event.level:
        fraction = min(max(event.progress, 0.0), 1.0)
        return row._replace(progress=fraction, progress_desc=event.desc)
    return row


def _is_past(row: Row, event: JobStateChangedEvent | JobExplainedEvent) -> bool:
    """True of an attempt before the row's. Only a job whose directory was removed counts from 1 again."""
    known = max((one for one in (row.submitted, row.started, row.ended) if one is not None), default=None)
    return event.attempt < row.attempt and known is not None and event.timestamp <= known


def without_progress(row: Row) -> Row:
    """A row that says nothing of how far its job is."""
    if row.progress is None and row.eta_at is None and row.progress_desc is None:
        return row
    return row._replace(progress=None, progress_desc=None, eta_at=None)


# -- a table of jobs in a notebook -----------------------------------------------------------------------


_MOST_JOBS = 20


def jobs_html(title: str, rows: Sequence[Row]) -> str:
    """Rows as a table: how many are in which state, failures first, and not too many of them."""
    counts = Counter(row.state for row in rows)
    said = ", ".join(f"{counts[state]} {state.name.lower()}" for state in JobState if counts[state])
    order = {JobState.ERROR: 0, JobState.RUNNING: 1, JobState.SCHEDULED: 1}
    shown = sorted(rows, key=lambda row: order.get(row.state, 2))[:_MOST_JOBS]
    lines: list[tuple[object, ...]] = [
        (state_html(row.state, row.reason), row.task, row.id[:12], tag_words(row.tags), row.message or "")
        for row in shown
    ]
    if len(rows) > len(shown):
        lines.append(("", f"and {len(rows) - len(shown)} more", "", "", ""))
    head = ("state", "task", "job", "tags", "") if lines else ()
    return str(table(f"{title}: {said or 'no jobs'}", lines, head))
