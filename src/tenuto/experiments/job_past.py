"""The facts about one job besides its row: its attempts, its events, its result, the commands for it.
Reads only; of a long journal only the lines that name the job are decoded.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from typing import Any

from tenuto.errors import TenutoError
from tenuto.experiments.run_record import run_of
from tenuto.experiments.runs import RunView
from tenuto.experiments.workspace_view import WorkspaceView, tokens_of
from tenuto.jobs.key import JobKey
from tenuto.jobs.nearest import Nearest
from tenuto.jobs.result_table import result_of
from tenuto.jobs.row import iso, row_key
from tenuto.jobs.view import StoredDetail
from tenuto.jobs.why import JobExplanation, explain
from tenuto.lifecycle.events import (
    CarbonMetricsData,
    Event,
    JobEvent,
    JobStateChangedEvent,
    ProcessStartedEvent,
    to_record,
)
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobState
from tenuto.scheduler.shell import PAUSED
from tenuto.workspace.carbon import plain_metrics, total
from tenuto.workspace.jobslist import JobLine
from tenuto.workspace.journal import naming
from tenuto.workspace.ports import Machine
from tenuto.workspace.records import LaunchRecord, PidRecord

MOST_EVENTS = 200
MOST_RUNS = 5
"""How many runs that asked for a job are searched for its past."""


def named_events(view: WorkspaceView, run: RunView, words: Collection[bytes]) -> Iterator[Event]:
    """The events of a run whose lines hold one of these words, in order."""
    paths = view.layout.run(run.experiment_id, run.run_id)
    place = view.layout.experiment_journal(run.experiment_id)
    entries = naming(view.machine.files, place, words, archive=paths.events)
    yield from (entry.event for entry in entries if run_of(entry.writer) in (run.run_id, None))


def events_of_jobs(view: WorkspaceView, run: RunView, words: Collection[bytes]) -> Iterator[Event]:
    """The same, and what became of its jobs when a person ran them again."""
    told: set[str] = set()
    for event in named_events(view, run, words):
        if isinstance(event, JobEvent):
            told.add(event.job_id)
        yield event
    yield from retry_events(view, words, told)


def retry_events(view: WorkspaceView, words: Collection[bytes], job_ids: Container[str]) -> Iterator[Event]:
    """The events of jobs that a person ran again whose lines hold one of these words, in order."""
    for entry in naming(view.machine.files, view.layout.retry_journal, words):
        if isinstance(entry.event, JobEvent) and entry.event.job_id in job_ids:
            yield entry.event


def job_detail(view: WorkspaceView, detail: StoredDetail) -> dict[str, Any]:
    """The fields of a job that a list does not have."""
    key = detail.job.job_key
    events = _events(view, detail)
    used = _used(detail)
    return {
        "directory": detail.paths.directory,
        "parameters": dict(detail.stored.parameters),
        "upstream": {path: row_key(Door.EXPERIMENTS, *one) for path, one in detail.stored.upstream.items()},
        "dependencies": list(detail.dependencies),
        "dependents": list(detail.dependents),
        "runs": list(detail.asked_by),
        "attempts": _attempts(detail, events),
        "most_attempts": 1 + detail.max_retries if detail.max_retries else None,
        "events": [to_record(event) for event in events[-MOST_EVENTS:]],
        "result": result_of(view.machine.files, detail.paths, detail.job),
        "earlier_logs": detail.earlier_logs,
        "provenance": dict(detail.record),
        "carbon": plain_metrics(used) if used is not None else None,
        "commands": [
            f"tenuto logs -f {key.job_id[:8]}",
            f"tenuto why {key.job_id[:8]}",
            *([f"tenuto retry {key.job_id[:8]}"] if detail.job.state is JobState.ERROR else []),
            _again(view, detail),
        ],
    }


def _again(view: WorkspaceView, detail: StoredDetail) -> str:
    """The Python that submits the task of a job again, with its stored parameters."""
    directory = detail.paths.directory
    name = detail.job.experiment or "again"
    return (
        "from tenuto import experiment, from_task_dir\n"
        f"with experiment({view.layout.root!r}, {name!r}):\n"
        f"    from_task_dir({directory!r}).submit()"
    )


def _events(view: WorkspaceView, detail: StoredDetail) -> list[Event]:
    """The events of a job, of the runs that asked for it and of its own journal, oldest first."""
    key = detail.job.job_key
    found: dict[str, Event] = {}
    word = (key.job_id.encode(),)
    try:
        for run in view.runs_of(key)[:MOST_RUNS]:
            for event in named_events(view, run, word):
                if isinstance(event, JobEvent) and event.job_id == key.job_id:
                    found.setdefault(repr(event), event)
        for event in retry_events(view, word, {key.job_id}):
            found.setdefault(repr(event), event)
        for entry in naming(view.machine.files, view.layout.job_journal(*key), word):
            found.setdefault(repr(entry.event), entry.event)
    except (OSError, TenutoError):
        pass  # a journal that is being moved tells less
    return sorted(found.values(), key=lambda event: event.timestamp)


def _attempts(detail: StoredDetail, events: Collection[Event]) -> list[dict[str, Any]]:
    """Every attempt that is known, oldest first; the current one as the directory shows it."""
    found: dict[int, dict[str, Any]] = {}
    for event in events:
        if isinstance(event, JobStateChangedEvent) and event.attempt and _has_begun(event):
            one = found.setdefault(event.attempt, _attempt(event.attempt))
            one["started"] = iso(event.starttime) or one["started"]
            one["state"] = event.state.name.lower()
            if event.state.finished():
                one.update(
                    ended=iso(event.endtime),
                    reason=event.reason.name.lower() if event.reason else None,
                    message=event.message,
                    exit_code=event.exit_code,
                )
        elif isinstance(event, ProcessStartedEvent):
            one = found.setdefault(event.attempt, _attempt(event.attempt))
            one.update(host=event.host, pid=event.pid, launcher=event.launcher)
    job = detail.job
    if job.attempt:
        one = found.setdefault(job.attempt, _attempt(job.attempt))
        one.update(
            started=iso(job.started) or one["started"],
            ended=iso(job.ended),
            state=job.state.name.lower(),
            reason=job.reason.name.lower() if job.reason else None,
            message=job.message,
        )
        _add_evidence(one, detail)
    return [found[number] for number in sorted(found)]


def _has_begun(event: JobStateChangedEvent) -> bool:
    return event.state is JobState.RUNNING or event.state.finished()


def _add_evidence(one: dict[str, Any], detail: StoredDetail) -> None:
    marker, evidence = detail.marker, detail.evidence
    if marker is not None and marker.attempt == one["attempt"]:
        one.update(exit_code=marker.exit_code, signal=marker.signal, usage=dict(marker.usage))
    if evidence is None:
        return
    if isinstance(evidence.pid, PidRecord) and evidence.pid.attempt == one["attempt"]:
        one.update(host=evidence.pid.identity.host, pid=evidence.pid.identity.pid)
    if isinstance(evidence.launch, LaunchRecord) and evidence.launch.attempt == one["attempt"]:
        one["launcher"] = evidence.launch.launcher
        one["host"] = one["host"] or evidence.launch.host


def _attempt(number: int) -> dict[str, Any]:
    empty: dict[str, Any] = dict.fromkeys(
        "started ended reason message exit_code signal host pid launcher".split()
    )
    return {"attempt": number, "state": JobState.RUNNING.name.lower(), **empty, "usage": {}}


def _used(detail: StoredDetail) -> CarbonMetricsData | None:
    measured: Mapping[int, Any] = detail.carbon
    return total(one.metrics for one in measured.values() if one.metrics is not None)


def explain_job(view: WorkspaceView, key: JobKey) -> JobExplanation:
    """Why a job is in its state."""
    why = explain(view, view.detail(key))
    return why._replace(
        because=(*why.because, *_tokens(view, why.detail), *_pause(view, why.detail)),
        code=(*why.code, *_commits(view, why.detail, why.nearest)),
    )


def _tokens(view: WorkspaceView, detail: StoredDetail) -> Iterator[str]:
    """The processes that hold the tokens which the job waits for."""
    if detail.job.state is not JobState.WAITING or not detail.asked_by:
        return
    lines = view.lines(view.run(detail.asked_by[0]))
    line = next((line for line in lines if line.job_id == detail.job.id), None)
    if line is not None and line.tokens and (held := holders_text(view.machine, line)):
        yield held


def _pause(view: WorkspaceView, detail: StoredDetail) -> Iterator[str]:
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


def _commits(view: WorkspaceView, detail: StoredDetail, nearest: Nearest | None) -> Iterator[str]:
    """The commits that differ from the nearest job's."""
    if nearest is None or not detail.asked_by:
        return
    theirs = view.runs_of(nearest.key)
    if theirs and theirs[0].name != detail.asked_by[0]:
        before, after = view.commits(theirs[0]), view.commits(view.run(detail.asked_by[0]))
        for path in after:
            if before.get(path) not in (None, after[path]):
                yield f"{path} was at commit {before[path]} then, and at {after[path]} for this one"


def holders_text(machine: Machine, line: JobLine) -> str | None:
    """The processes that hold the tokens which a job waits for, in words. Slow."""
    files = tokens_of(machine, line)
    try:
        pids = {
            token: files.holders(token)
            for token, amount in sorted(line.tokens.items())
            if files.state(token).free_count < amount
        }
    except (OSError, TenutoError):
        return None
    return "; ".join(f"token {token} is held by {_processes(held)}" for token, held in pids.items()) or None


def _processes(pids: Sequence[int]) -> str:
    if not pids:
        return "processes of another user"
    return f"process{'es' if len(pids) > 1 else ''} {', '.join(map(str, pids))}"
