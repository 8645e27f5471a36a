"""Jobs in a notebook: where one stands as a small table, and many as a list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenuto.lifecycle.states import JobState
from tenuto.tasks.html import Html, dot, table

if TYPE_CHECKING:
    from tenuto.scheduler.jobs import Job

_MOST_JOBS = 20
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
    rows: list[tuple[object, object]] = [("state", state_html(job))]
    if standing.message:
        rows.append(("why", standing.message))
    rows += [("tags", _tags(job))] if job.tags else []
    if standing.starttime is not None and standing.endtime is not None:
        rows.append(("took", f"{(standing.endtime - standing.starttime).total_seconds():.1f} s"))
    if job.attempt > 1:
        rows.append(("attempt", job.attempt))
    if job.marker is not None and job.marker.reason is None and job.marker.result is not None:
        rows.append(("result", job.marker.result))
    rows.append(("directory", job.path))
    return str(table(f"{job.task_id} {job.job_id[:12]}", rows))


def jobs_html(title: str, jobs: Sequence[Job]) -> str:
    """Jobs as a table: how many are in which state, failures first, and not too many of them."""
    counts = Counter(job.state for job in jobs)
    said = ", ".join(f"{counts[state]} {state.name.lower()}" for state in JobState if counts[state])
    order = {JobState.ERROR: 0, JobState.RUNNING: 1, JobState.SCHEDULED: 1}
    shown = sorted(jobs, key=lambda job: order.get(job.state, 2))[:_MOST_JOBS]
    rows: list[tuple[object, ...]] = [
        (state_html(job), job.task_id, job.job_id[:12], _tags(job), job.standing.message or "")
        for job in shown
    ]
    if len(jobs) > len(shown):
        rows.append(("", f"and {len(jobs) - len(shown)} more", "", "", ""))
    head = ("state", "task", "job", "tags", "") if rows else ()
    return str(table(f"{title}: {said or 'no jobs'}", rows, head))


def state_html(job: Job) -> Html:
    """Where a job stands, in a word."""
    reason = f" ({job.failure_status.name})" if job.failure_status else ""
    return dot(_COLOURS.get(job.state, _GREY), f"{job.state.name}{reason}")


def _tags(job: Job) -> str:
    return ", ".join(f"{name}={value}" for name, value in job.tag_texts.items())
