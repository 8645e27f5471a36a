"""A job in a notebook: where it stands, as a small table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenuto.launchers.results import readable
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.tasks.html import Html, dot, table
from tenuto.tasks.tags import tag_words

if TYPE_CHECKING:
    from tenuto.scheduler.jobs import Job

_COLOURS = {
    JobState.DONE: "#2f9e58",
    JobState.ERROR: "#d6453d",
    JobState.RUNNING: "#3b82d6",
    JobState.SCHEDULED: "#3b82d6",
}
_GREY = "#8a8a8a"


def job_html(job: Job) -> str:
    """A job as a small table."""
    standing = job.standing
    rows: list[tuple[object, object]] = [("state", state_html(standing.state, standing.reason))]
    if standing.message:
        rows.append(("why", standing.message))
    if job.tags:
        rows.append(("tags", tag_words(job.tags)))
    if standing.starttime is not None and standing.endtime is not None:
        rows.append(("took", f"{(standing.endtime - standing.starttime).total_seconds():.1f} s"))
    if job.attempt > 1:
        rows.append(("attempt", job.attempt))
    if job.marker is not None and job.marker.reason is None and job.marker.result is not None:
        rows.append(("result", readable(job.marker.result)))
    rows.append(("directory", job.path))
    return str(table(f"{job.task_id} {job.job_id[:12]}", rows))


def state_html(state: JobState, reason: JobFailureStatus | None) -> Html:
    """Where a job stands, in a word."""
    return dot(_COLOURS.get(state, _GREY), f"{state.name} ({reason.name})" if reason else state.name)
