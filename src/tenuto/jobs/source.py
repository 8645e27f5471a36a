"""How a door shows its jobs to a monitor: the values that pass, and the protocol of a source.
Pure and light: no files, no door, nothing of the monitor.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum, unique
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from tenuto.lifecycle.events import Event
from tenuto.lifecycle.owner_names import Door, OwnerName
from tenuto.lifecycle.states import JobFailureStatus, JobState, TransientMode

CHUNK_ROWS = 500
"""How many rows `Source.rows` gives at most at a time."""

_EMPTY: Mapping[str, Any] = MappingProxyType({})


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
    door_state: str = ""
    """The state in the door's own word, where the door has one."""
    reason: JobFailureStatus | None = None
    message: str | None = None
    attempt: int = 0
    tags: Mapping[str, str] = _EMPTY
    depends_on: tuple[str, ...] = ()
    """The ids of the jobs that the job waits for."""
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
        """How long the job expects to go on."""
        return None if self.eta_at is None else max((self.eta_at - now).total_seconds(), 0.0)


class ServiceRow(NamedTuple):
    """A service beside the jobs of a group."""

    id: str
    state: str
    url: str | None = None
    description: str = ""
    message: str | None = None


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


class RowId(NamedTuple):
    """Which row."""

    group: str
    key: str


class Moment(NamedTuple):
    """A change of state in the past of a group."""

    at: datetime
    key: str
    state: JobState
    attempt: int = 0
    reason: JobFailureStatus | None = None


class Changes(NamedTuple):
    """News of a source. `events` are hints to look: what `rows` says is so."""

    rows: Sequence[Row] = ()
    gone: Sequence[RowId] = ()
    groups: Sequence[Group] = ()
    events: Sequence[Event] = ()

    def __bool__(self) -> bool:
        return bool(self.rows or self.gone or self.groups or self.events)


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
    tags: Mapping[str, str] = _EMPTY
    values: Mapping[str, Any] = _EMPTY


class Panels(NamedTuple):
    """What a door shows besides jobs, as plain JSON values; None where the door has no such thing."""

    tokens: Sequence[Mapping[str, Any]] | None = None
    services: Sequence[Mapping[str, Any]] | None = None
    queue: Mapping[str, Any] | None = None
    nodes: Sequence[Mapping[str, Any]] | None = None
    archives: Sequence[Mapping[str, Any]] | None = None
    care: Mapping[str, Any] | None = None


@unique
class Action(Enum):
    """What a person can do to jobs, or to a group."""

    KILL = "kill"
    RETRY = "retry"
    CLEAN = "clean"
    PAUSE = "pause"
    RESUME = "resume"


class Target(NamedTuple):
    """A job as a person saw it: nothing is done to another attempt. Of a group, `attempt` is 0."""

    key: str
    attempt: int = 0


@unique
class ActedAs(Enum):
    """What became of an action on one target."""

    ASKED = "asked"
    RETRIED = "retried"
    DELETED = "deleted"
    WOULD_KILL = "would_kill"
    WOULD_RETRY = "would_retry"
    WOULD_DELETE = "would_delete"
    STALE = "stale"
    NOT_RUNNING = "not_running"
    STARTING = "starting"
    ELSEWHERE = "elsewhere"
    IN_USE = "in_use"
    GONE = "gone"
    REFUSED = "refused"


class Acted(NamedTuple):
    """One target, and what became of it."""

    key: str
    outcome: ActedAs
    detail: str = ""
    attempt: int = 0


class Log(Protocol):
    """What one attempt of a job printed."""

    attempt: int

    def size(self) -> int: ...

    def read(self, offset: int, limit: int) -> bytes: ...

    def ended(self) -> bool:
        """True once nothing more is written."""
        ...


class Feed(Protocol):
    """What happens from now on; for one thread."""

    def read(self, groups: Collection[str], limit: int) -> Changes:
        """News of these groups; never blocks."""
        ...

    def fileno(self) -> int | None:
        """Readable when there may be news; None: to be asked every half second."""
        ...

    def close(self) -> None: ...


class Source(Protocol):
    """One door, to be looked at from any thread. Only `act` changes anything."""

    door: Door

    def groups(self) -> Sequence[Group]:
        """Newest first; looks at no job."""
        ...

    def rows(self, group: str) -> Iterator[Sequence[Row]]:
        """The jobs of a group as they are now, `CHUNK_ROWS` at most at a time, in order of submission."""
        ...

    def feed(self) -> Feed:
        """To be opened before `rows` is read, so that nothing is missed between the two."""
        ...

    def detail(self, key: str) -> Detail: ...

    def parameters(self, key: str) -> Mapping[str, Any]:
        """The parameters of a job and what it returned, for a filter that names one; empty where none are."""
        ...

    def why(self, key: str) -> Why: ...

    def log(self, key: str, stream: str, earlier: int) -> Log:
        """`stream`: ``out`` or ``err``. `earlier`: how many attempts back."""
        ...

    def moments(self, group: str) -> Iterator[Moment]:
        """Oldest first."""
        ...

    def results(self, group: str) -> Iterator[Result]: ...

    def panels(self, only: str | None = None, at: datetime | None = None) -> Panels:
        """What the door shows besides jobs. `only`: the one field asked for; the others may be left out.

        `at`: the instant of which an archive tells what was being evaluated; all else is as it is now.
        """
        ...

    def act(
        self, action: Action, targets: Sequence[Target], *, dry_run: bool, by: str
    ) -> Sequence[Acted]: ...
