"""Why a job is where it is, and why no earlier job could be reused for it; in words.
Decides nothing: it reads what the directories tell.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from tenuto.errors import TenutoError
from tenuto.jobs.key import JobKey
from tenuto.jobs.nearest import MOST_EARLIER, JobComparison, Nearest, newest
from tenuto.jobs.view import JobDetail, JobsView
from tenuto.launchers.warm.remedies import remedy_of
from tenuto.lifecycle.states import JobState
from tenuto.workspace.claims import Claim, claimer

_LARGEST_CODE = 32 << 20


class JobExplanation(NamedTuple):
    """The answer to `why`."""

    detail: JobDetail
    because: tuple[str, ...]
    """Sentences on its state, the most important first."""
    nearest: Nearest | None
    reuse: str
    """A sentence on why it was run at all."""
    code: tuple[str, ...]
    """Sentences on code that differs from what was run."""
    next_steps: tuple[str, ...]


def explain(view: JobsView, detail: JobDetail) -> JobExplanation:
    """Why a job is in its state, as far as directories tell; a door adds what it knows."""
    nearest, reuse = _nearest(view, detail)
    return JobExplanation(
        detail,
        (*_because(detail), *_where(view, detail)),
        nearest,
        reuse,
        tuple(_code(view, detail, nearest)),
        tuple(_next_steps(detail)),
    )


def _because(detail: JobDetail) -> Iterator[str]:
    job = detail.job
    if job.alarm:
        yield job.alarm
    if job.state is JobState.ERROR and job.reason is not None:
        yield f"{job.reason.name}: {job.reason.meaning}"
    if job.message:
        yield job.message
    marker = detail.marker
    if marker is not None and marker.signal is not None:
        yield f"its process was ended by signal {marker.signal}"
    elif marker is not None and marker.exit_code:
        yield f"its process exited with code {marker.exit_code}"
    if marker is not None and marker.flags:
        yield f"noted by its runner: {', '.join(marker.flags)}"
    if marker is not None and "fresh" in marker.provenance:
        why = marker.provenance["fresh"]
        how = "from a spare" if "spare" in marker.provenance else "in a fresh interpreter"
        yield f"it started {how}, since its module {why}{remedy_of(why)} (docs/warm.md)"
    for dependency in detail.dependencies:
        if job.state is not JobState.DONE and dependency.state is not JobState.DONE:
            yield f"it depends on {dependency.job_key}, which is {dependency.state.name.lower()}"
    if job.state in (JobState.DONE, JobState.RUNNING) and not job.message:
        yield job.state.meaning
    if job.state is JobState.UNSCHEDULED and not detail.asked_by:
        yield "no run asks for it"
    if job.attempt > 1:
        yield f"this is attempt {job.attempt}"


def _where(view: JobsView, detail: JobDetail) -> Iterator[str]:
    """Under which id a cluster's own tools show the attempt: another job's, if that one's process ran it."""
    launch, job = detail.launch, detail.job
    if launch is None or not launch.external or launch.attempt != job.attempt:
        return
    made = claimer(view.machine, detail.paths, launch.nonce)
    if isinstance(made, Claim) and made.job is not None:
        verb = "runs" if job.state is JobState.RUNNING else "ran"
        yield f"job {made.job} of {launch.launcher} {verb} it, on {made.host}"


def _next_steps(detail: JobDetail) -> Iterator[str]:
    short = detail.job.name
    if detail.job.state is JobState.ERROR:
        stranded = [one for one in detail.dependencies if one.state is JobState.ERROR]
        if stranded:
            yield f"tenuto why {stranded[0].name}"
        elif detail.launch is not None:
            yield f"tenuto logs --err {short}"
            yield f"tenuto retry {short}"
    elif detail.job.state is JobState.RUNNING:
        yield f"tenuto logs -f {short}"
    elif detail.job.state is JobState.UNSCHEDULED:
        yield "run the experiment again"


# Reuse


def _nearest(view: JobsView, detail: JobDetail) -> tuple[Nearest | None, str]:
    own = detail.stored
    if own.problem is not None:
        return None, f"its parameters are not known: {own.problem}"
    began = detail.launch.requested if detail.launch else None
    if began is None and detail.marker is not None:
        began = detail.marker.starttime

    def was_there(key: JobKey) -> bool:
        sight = view.look(key)
        ended = sight.endtime
        return sight.state is JobState.DONE and (began is None or (ended is not None and ended <= began))

    files, key = view.machine.files, detail.job.job_key
    latest = began.timestamp() if began is not None else inf
    earlier = newest(files, view.layout, key.task_id, done_by=latest)[: MOST_EARLIER + 1]
    best = JobComparison(files, view.layout).nearest(key, earlier, was_there)
    if best is None:
        return None, "no other job of this task was done before it, so there was nothing to reuse"
    if not best.changed:
        return best, (
            f"the nearest done before, {best.key}, stores the same parameters: what differs is not stored, "
            f"such as a constant or the identity's version"
        )
    return best, f"the nearest done before it, {best.key}, differs in"


# Code


def _code(view: JobsView, detail: JobDetail, nearest: Nearest | None) -> Iterator[str]:
    marker = detail.marker
    own = marker.provenance if marker else {}
    file, digest = own.get("file"), own.get("sha256")
    if file and digest:
        current = _digest(view, file)
        if current is None:
            yield f"{file}, which it was run from, is not there any more"
        elif current != digest:
            reused = "; an identity counts parameters, not code, so the result is reused all the same"
            yield f"{file} has changed since it ran{reused if detail.job.state is JobState.DONE else ''}"
    marker = view.look(nearest.key).marker if nearest else None
    other = marker.provenance if marker else {}
    if nearest and digest and other.get("sha256") not in (None, digest):
        yield f"{nearest.key} was run from another version of {other.get('file', 'its file')}"


def _digest(view: JobsView, file: str) -> str | None:
    if not file.startswith("/"):
        return None
    try:
        return hashlib.sha256(view.machine.files.read(file, _LARGEST_CODE)).hexdigest()
    except (OSError, TenutoError, ValueError):
        return None
