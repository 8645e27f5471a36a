"""Why a job is where it is: what its directory tells, and what its runs add.
Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from tenuto.experiments.job_past import named_events
from tenuto.experiments.token_view import holders_text
from tenuto.experiments.view import WorkspaceView
from tenuto.jobs.key import JobKey
from tenuto.jobs.nearest import Nearest
from tenuto.jobs.view import JobDetail
from tenuto.jobs.why import Why, explain
from tenuto.lifecycle.events import JobStateChangedEvent
from tenuto.lifecycle.states import JobState
from tenuto.scheduler.pauses import PAUSED


def explain_job(view: WorkspaceView, key: JobKey) -> Why:
    """Why a job is in its state."""
    why = explain(view, view.detail(key))
    return why._replace(
        because=(*why.because, *_tokens(view, why.detail), *_pause(view, why.detail)),
        code=(*why.code, *_commits(view, why.detail, why.nearest)),
    )


def _tokens(view: WorkspaceView, detail: JobDetail) -> Iterator[str]:
    """Who has the tokens that it waits for."""
    if detail.job.state is not JobState.WAITING or not detail.asked_by:
        return
    lines = view.lines(view.run(detail.asked_by[0]))
    line = next((line for line in lines if line.job_id == detail.job.job_id), None)
    if line is not None and line.tokens and (held := holders_text(view.machine, line)):
        yield held


def _pause(view: WorkspaceView, detail: JobDetail) -> Iterator[str]:
    """What the machine is short of, if that is why no job of the run is started at present."""
    if detail.job.state not in (JobState.WAITING, JobState.READY) or not detail.asked_by:
        return
    paused: str | None = None
    words = (PAUSED.encode(), JobState.RUNNING.name.encode())
    for event in named_events(view, view.run(detail.asked_by[0]), words):
        if isinstance(event, JobStateChangedEvent):
            is_refusal = event.message is not None and PAUSED in event.message
            paused = event.message if is_refusal else None if event.state is JobState.RUNNING else paused
    if paused is not None:
        yield f"the starts of its run are paused: one {paused}"


def _commits(view: WorkspaceView, detail: JobDetail, nearest: Nearest | None) -> Iterator[str]:
    """The commits that differ from those of the nearest job."""
    if nearest is None or not detail.asked_by:
        return
    theirs = view.runs_of(nearest.key)
    if theirs and theirs[0].name != detail.asked_by[0]:
        before, after = view.commits(theirs[0]), view.commits(view.run(detail.asked_by[0]))
        for path in after:
            if before.get(path) not in (None, after[path]):
                yield f"{path} was at commit {before[path]} then, and at {after[path]} for this one"
