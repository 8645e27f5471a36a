"""One job as every door shows it and every view reads it: the row, the group that it belongs to, its detail.
Pure: no row looks at a directory or a database. Its plain form is the JSON of the command line and of HTTP.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple, TypedDict

from tenuto.jobs.key import JobKey
from tenuto.lifecycle.owner_names import Door, OwnerName
from tenuto.lifecycle.states import JobFailureStatus, JobState, TransientMode

SHOWN_DIGITS = 8
"""How much of the id of an experiment's job people are shown."""

_EMPTY: Mapping[str, Any] = MappingProxyType({})


def shown_name(job_id: str) -> str:
    """A job for people and commands: the beginning of its id, ``NAME#N`` or ``SERVICE#N``."""
    return job_id if "#" in job_id else job_id[:SHOWN_DIGITS]


def row_key(door: Door, task: str, job_id: str) -> str:
    """The key of a row: ``experiments:my.Train/1f3a``; one string for every row of the job."""
    return sys.intern(f"{door.value}:{task}/{job_id}")


def group_key(owner: OwnerName) -> str:
    """The key of a group: ``experiments:NAME/RUN``, ``service:NAME``, ``search:NAME``."""
    return str(owner).replace("/", ":", 1)


class Row(NamedTuple):
    """One job in one group."""

    key: str
    """Of the job: ``DOOR:TASK/ID``. The same job in two groups has two rows."""
    group: str
    """``DOOR:NAME`` or ``DOOR:NAME/RUN``."""
    door: Door
    task: str
    id: str
    state: JobState = JobState.UNSCHEDULED
    status: str = ""
    """The state in the door's own word, where the door has one."""
    reason: JobFailureStatus | None = None
    message: str | None = None
    attempt: int = 0
    tags: Mapping[str, Any] = _EMPTY
    depends_on: tuple[str, ...] = ()
    """The ids of the jobs that the job waits for, and of those whose outputs it uses."""
    transient: TransientMode = TransientMode.NONE
    owner: str = ""
    """The person or owner that asked for the job."""
    where: str = ""
    """The machine or node that runs the job."""
    submitted: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None
    progress: float | None = None
    """From 0 to 1, of a job that runs and says so."""
    progress_desc: str | None = None
    eta_at: datetime | None = None
    """When the job expects to end."""
    energy_kwh: float | None = None
    alarm: str | None = None
    """Something that a person should look at."""
    tokens: Mapping[str, int] = _EMPTY
    """The units of tokens that each attempt of the job holds."""
    result: Any = None
    """What the job gave, as plain JSON; None also for a result too large for a list."""
    has_large_result: bool = False
    """True if the result lies in a file of its own."""

    @property
    def name(self) -> str:
        """The job for people and commands."""
        return shown_name(self.id)

    @property
    def job_key(self) -> JobKey:
        """Where the directory of a job of an experiment lies."""
        return JobKey(self.task, self.id)

    @property
    def experiment(self) -> str | None:
        """The experiment that the group is a run of."""
        return _run_of(self.group)[0]

    @property
    def run(self) -> str | None:
        """The run that the group is."""
        return _run_of(self.group)[1]

    @property
    def reused(self) -> bool:
        """True if the job was done before it was asked for."""
        if self.state is not JobState.DONE:
            return False
        if self.submitted is None:
            return self.started is None
        return self.ended is not None and self.ended <= self.submitted

    def elapsed_s(self, now: datetime) -> float | None:
        """How long the job ran, or has been running."""
        end = self.ended or (now if self.state.running() else None)
        if self.started is None or end is None:
            return None
        return max((end - self.started).total_seconds(), 0.0)

    def left_s(self, now: datetime) -> float | None:
        """How long the job expects to continue."""
        return None if self.eta_at is None else max((self.eta_at - now).total_seconds(), 0.0)


class ServiceRow(NamedTuple):
    """A service beside the jobs of a group."""

    id: str
    state: str
    url: str | None = None
    description: str = ""
    message: str | None = None


JOBS_FAILED = "jobs failed"
"""What a run says that ended as failed for its jobs alone, which may be retried since."""


class Group(NamedTuple):
    """A run of an experiment, a service, or a search."""

    group: str
    door: Door
    name: str
    run: str = ""
    state: str = ""
    """In the door's own word."""
    live: bool = False
    """True while the owner of the group is at work."""
    started: datetime | None = None
    ended: datetime | None = None
    host: str = ""
    pid: int = 0
    total: int | None = None
    """How many jobs the group has, if that is known before they are looked at."""
    message: str | None = None
    tags: tuple[str, ...] = ()
    services: tuple[ServiceRow, ...] = ()
    reused: int | None = None
    """How many jobs were taken from before; this and the next are known when a group has ended."""
    failed: int | None = None
    carbon: Mapping[str, Any] | None = None
    """What the jobs used, as plain JSON values."""
    take_up: str | None = None
    """The command that takes the group up again, if its driver is gone."""
    less: tuple[str, ...] = ()
    """The results of which it declares that smaller ones are better."""


class RowId(NamedTuple):
    """Which row."""

    group: str
    key: str


class Detail(NamedTuple):
    """Everything about one job, as plain JSON values under the names of the HTTP interface."""

    row: Row
    fields: Mapping[str, Any] = _EMPTY


class Why(NamedTuple):
    """Why a job is where it is, in sentences."""

    because: tuple[str, ...] = ()
    reuse: str = ""
    nearest: Mapping[str, Any] | None = None
    code: tuple[str, ...] = ()
    next: tuple[str, ...] = ()


class Result(NamedTuple):
    """What one job gave."""

    key: str
    task: str
    state: JobState
    tags: Mapping[str, Any] = _EMPTY
    values: Mapping[str, Any] = _EMPTY


# Plain


class PlainRow(TypedDict):
    """A job as JSON: an item of ``tenuto jobs --json`` and of ``GET /api/jobs``."""

    id: str
    """Whole; commands take it as it is."""
    name: str
    kind: str
    key: str
    group: str
    task: str
    state: str
    status: str
    reason: str | None
    message: str | None
    experiment: str | None
    run: str | None
    attempt: int
    tags: dict[str, Any]
    depends_on: list[str]
    transient: str
    owner: str
    where: str
    submitted: str | None
    started: str | None
    ended: str | None
    duration_s: float | None
    progress: float | None
    progress_desc: str | None
    eta_s: float | None
    energy_kwh: float | None
    alarm: str | None
    result: Any


class PlainService(TypedDict):
    """A service beside the jobs of a group."""

    id: str
    state: str
    url: str | None
    description: str
    message: str | None


class PlainGroup(TypedDict):
    """A run of an experiment, a service or a search."""

    group: str
    kind: str
    name: str
    experiment: str | None
    run: str | None
    state: str
    live: bool
    started: str | None
    ended: str | None
    host: str | None
    pid: int | None
    jobs: int | None
    reused: int | None
    failed: int | None
    message: str | None
    carbon: dict[str, Any] | None
    tags: list[str]
    counts: dict[str, int]
    total: int
    known: int
    eta_s: float | None
    take_up: str | None
    """The command that takes the group up again: its driver is gone, and jobs are left."""
    services: list[PlainService]


def plain_row(row: Row, now: datetime) -> PlainRow:
    """A row as JSON; `now`: the instant that durations are measured at."""
    return {
        "id": row.id,
        "name": row.name,
        "kind": row.door.kind,
        "key": row.key,
        "group": row.group,
        "task": row.task,
        "state": row.state.name.lower(),
        "status": row.status,
        "reason": row.reason.name.lower() if row.reason else None,
        "message": row.message,
        "experiment": row.experiment,
        "run": row.run,
        "attempt": row.attempt,
        "tags": dict(row.tags),
        "depends_on": list(row.depends_on),
        "transient": row.transient.name.lower(),
        "owner": row.owner,
        "where": row.where,
        "submitted": iso(row.submitted),
        "started": iso(row.started),
        "ended": iso(row.ended),
        "duration_s": row.elapsed_s(now),
        "progress": row.progress,
        "progress_desc": row.progress_desc,
        "eta_s": row.left_s(now),
        "energy_kwh": row.energy_kwh,
        "alarm": row.alarm,
        "result": row.result,
    }


def plain_group(
    group: Group, counts: Mapping[JobState, int], known: int, eta_s: float | None, *, is_loaded: bool
) -> PlainGroup:
    """A group; the counts of an unread group are its own record's."""
    total = known if is_loaded else group.total or 0
    counted = {state.name.lower(): counts.get(state, 0) for state in JobState}
    failed = group.failed
    if is_loaded:
        failed = counts.get(JobState.ERROR, 0) if failed is None else failed
    elif group.total:
        counted["done"], counted["error"] = group.total - (failed or 0), failed or 0
    is_run = group.door is Door.EXPERIMENTS
    return {
        "group": group.group,
        "kind": group.door.kind,
        "name": group.name,
        "experiment": group.name if is_run else None,
        "run": group.run or None,
        "state": group.state,
        "live": group.live and group.take_up is None,
        "started": iso(group.started),
        "ended": iso(group.ended),
        "host": group.host or None,
        "pid": group.pid or None,
        "jobs": group.total,
        "reused": group.reused,
        "failed": failed,
        "message": group.message,
        "carbon": dict(group.carbon) if group.carbon else None,
        "tags": list(group.tags),
        "counts": counted,
        "total": max(total, group.total or 0),
        "known": known,
        "eta_s": eta_s,
        "take_up": group.take_up if not is_loaded or _is_left(counts) else None,
        "services": [
            {
                "id": one.id,
                "state": one.state,
                "url": one.url,
                "description": one.description,
                "message": one.message,
            }
            for one in group.services
        ],
    }


def _is_left(counts: Mapping[JobState, int]) -> bool:
    """Whether jobs have not ended, or were never begun."""
    return any(number for state, number in counts.items() if not state.finished())


def iso(instant: datetime | None) -> str | None:
    """An instant as ISO 8601."""
    return None if instant is None else instant.isoformat()


def _run_of(group: str) -> tuple[str | None, str | None]:
    """The experiment and the run in the key of a group; None of other doors."""
    door, _, name = group.partition(":")
    if door != Door.EXPERIMENTS.value or not name:
        return None, None
    experiment, between, run = name.rpartition("/")
    return (experiment, run) if between else (name, None)
