"""Why a job is where it is, and why no earlier job could be reused for it; in words.
Decides nothing: it reads what the directories tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from tenuto.jobs.key import JobKey
from tenuto.jobs.nearest import MOST_EARLIER, JobComparison, Nearest, newest
from tenuto.jobs.validity import MadeFrom, MadeOf, gone_outputs, source_of
from tenuto.jobs.view import JobsView, StoredDetail
from tenuto.launchers.instructions import Instructions
from tenuto.launchers.requirements import size_text, time_text
from tenuto.launchers.warm.fork_advice import remedy_of
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.tasks.code import file_digest
from tenuto.workspace.claims import Claim, claimer
from tenuto.workspace.layout import is_job_id


class JobExplanation(NamedTuple):
    """The answer to `why`."""

    detail: StoredDetail
    because: tuple[str, ...]
    """Sentences on its state, the most important first."""
    nearest: Nearest | None
    reuse: str
    """A sentence on why it was run at all."""
    code: tuple[str, ...]
    """Sentences on code that differs from the code that was run."""
    next_steps: tuple[str, ...]


def explain(view: JobsView, detail: StoredDetail) -> JobExplanation:
    """Why a job is in its state, as far as directories tell; a door adds its own sentences."""
    nearest, reuse = _nearest(view, detail)
    return JobExplanation(
        detail,
        (*_because(detail), *_where(view, detail)),
        nearest,
        reuse,
        tuple(_code(view, detail, nearest)),
        tuple(_next_steps(detail)),
    )


def _because(detail: StoredDetail) -> Iterator[str]:
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
        yield f"it started {how}, since its module {why}{remedy_of(why)} (docs/performance.md)"
    launch = detail.launch
    if launch is not None and launch.aside and job.state is not JobState.DONE:
        yield f"what it had before it was run again is kept in {detail.paths.aside}"
    for dependency in detail.dependencies:
        if job.state is not JobState.DONE and dependency.state is not JobState.DONE:
            yield f"it depends on {dependency.job_key}, which is {dependency.state.name.lower()}"
    if job.state in (JobState.DONE, JobState.RUNNING) and not job.message:
        yield job.state.meaning
    if job.state is JobState.UNSCHEDULED and not detail.asked_by:
        yield "no run asks for it"
    story = _story(detail)
    if story:
        yield "; ".join(story)
    elif job.attempt > 1:
        yield f"this is attempt {job.attempt}"


def _story(detail: StoredDetail) -> list[str]:
    """How the attempts before this one ended, and its allowance; empty for the first."""
    launch, job = detail.launch, detail.job
    if launch is None or not launch.earlier or launch.attempt != job.attempt:
        return []
    told = []
    for one in launch.earlier:
        how = {
            JobFailureStatus.MEMORY: f"out of memory at {size_text(one.memory_bytes)}"
            if one.memory_bytes
            else "",
            JobFailureStatus.TIMEOUT: f"out of time after {time_text(one.walltime_s)}"
            if one.walltime_s
            else "",
        }.get(one.reason)
        told.append(f"attempt {one.attempt}: {how or one.reason.meaning}")
    last = launch.earlier[-1]
    try:
        limits = Instructions.of(launch).limits
    except (ValueError, TypeError, KeyError):
        return told
    now = (
        [size_text(limits.memory_bytes)]
        if limits.memory_bytes and limits.memory_bytes != last.memory_bytes
        else []
    )
    now += (
        [time_text(limits.walltime_s)] if limits.walltime_s and limits.walltime_s != last.walltime_s else []
    )
    grown = f"with {' and '.join(now)}, " if now else ""
    return [*told, f"attempt {launch.attempt}: {grown}{job.state.name.lower()}"]


def _where(view: JobsView, detail: StoredDetail) -> Iterator[str]:
    """Under which id a cluster's own tools show the attempt: another job's, if that one's process ran it."""
    launch, job = detail.launch, detail.job
    if launch is None or not launch.external or launch.attempt != job.attempt:
        return
    made = claimer(view.machine, detail.paths, launch.nonce)
    if isinstance(made, Claim) and made.job is not None:
        verb = "runs" if job.state is JobState.RUNNING else "ran"
        yield f"job {made.job} of {launch.launcher} {verb} it, on {made.host}"
    elif made is None and job.state is JobState.SCHEDULED:
        waiting = view.inquiry.clusters.job(detail.paths, launch)
        if waiting is not None:
            yield f"job {waiting} of {launch.launcher} is to run it"


def _next_steps(detail: StoredDetail) -> Iterator[str]:
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


def _nearest(view: JobsView, detail: StoredDetail) -> tuple[Nearest | None, str]:
    own = detail.stored
    if own.problem is not None:
        return None, f"its parameters are not known: {own.problem}"
    began = detail.launch.requested if detail.launch else None
    if began is None and detail.marker is not None:
        began = detail.marker.starttime

    def was_there(key: JobKey) -> bool:
        reading = view.look(key)
        ended = reading.endtime
        return reading.state is JobState.DONE and (began is None or (ended is not None and ended <= began))

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


def _code(view: JobsView, detail: StoredDetail, nearest: Nearest | None) -> Iterator[str]:
    own = MadeOf.of(detail.record, dict)
    reused = "; an identity counts parameters, not code, so the result is reused all the same"
    for file, digest in own.files.items():
        current = file_digest(file) if file.startswith("/") else digest
        if not current:
            yield f"{file}, which it was run from, is not there any more"
        elif current != digest:
            yield f"{file} has changed since it ran{reused if detail.job.state is JobState.DONE else ''}"
    for key, source in own.sources.items():
        now = _source_now(view, key)
        if source is not None and now is not None and not source.is_same(now):
            yield f"{key[:-52] if len(key) > 70 else key} was made again since it ran"
    if detail.job.state is JobState.DONE:
        paths = view.layout.job(*detail.job.job_key)
        for name in gone_outputs(view.machine.files, paths, detail.marker, detail.record):
            yield f"{name}, which it made, is gone, or has another size"
    marker = view.look(nearest.key).marker if nearest else None
    other = marker.record.get("code") if marker else None
    if nearest and own.code and other not in (None, own.code):
        yield f"{nearest.key} was run from another version of the code"


def _source_now(view: JobsView, key: str) -> MadeFrom | None:
    """A job that another was made from, as it is now; None without a job that is done."""
    task_id, _, job_id = key.rpartition("/")
    if ":" in key or not is_job_id(job_id):
        return None
    marker = view.look(JobKey(task_id, job_id)).marker
    if marker is None or marker.reason is not None:
        return None
    return source_of(key, marker)
