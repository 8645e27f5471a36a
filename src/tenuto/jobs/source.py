"""How a door shows its jobs: the protocol of a source, and the values that pass besides rows.
Pure and light: no files, no door, no display.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum, unique
from typing import Any, NamedTuple, Protocol

from tenuto.jobs.row import Detail, Group, Result, Row, RowId, Why
from tenuto.lifecycle.events import Event
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.workspace.points import Points

CHUNK_ROWS = 500
"""How many rows `Source.rows` gives at most at a time."""


def newest_first(rows: Iterable[Row]) -> list[Row]:
    """Rows by when they were asked for; a row that no group lists counts by its start."""

    def age(row: Row) -> float:
        known = row.submitted or row.started or row.ended
        return -known.timestamp() if known is not None else 0.0

    last_first = [*rows]
    last_first.reverse()
    return sorted(last_first, key=age)


def newest_listed(source: Source, most: int) -> tuple[list[Row], int]:
    """Of the jobs that a source lists the newest, `most` at most, and how many there are in all."""
    rows = newest_first(row for chunk in source.listed() for row in chunk)
    return rows[:most], len(rows)


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


class Panels(NamedTuple):
    """What a door shows besides jobs, as plain JSON values; None where the door has no such thing."""

    tokens: Sequence[Mapping[str, Any]] | None = None
    services: Sequence[Mapping[str, Any]] | None = None
    queue: Mapping[str, Any] | None = None
    nodes: Sequence[Mapping[str, Any]] | None = None
    archives: Sequence[Mapping[str, Any]] | None = None
    cleanup: Mapping[str, Any] | None = None


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
    """What became of an action on one job, or on a group."""

    ASKED = "asked"
    RETRIED = "retried"
    DELETED = "deleted"
    MOVED = "moved"
    PACKED = "packed"
    UNPACKED = "unpacked"
    WOULD_KILL = "would_kill"
    WOULD_RETRY = "would_retry"
    WOULD_DELETE = "would_delete"
    WOULD_MOVE = "would_move"
    WOULD_PACK = "would_pack"
    WOULD_UNPACK = "would_unpack"
    STALE = "stale"
    NOT_RUNNING = "not_running"
    STARTING = "starting"
    ELSEWHERE = "elsewhere"
    IN_USE = "in_use"
    GONE = "gone"
    REFUSED = "refused"

    @property
    def acts(self) -> bool:
        """Whether something was done, or would be."""
        is_done = self in (ActedAs.ASKED, ActedAs.RETRIED, ActedAs.DELETED, ActedAs.MOVED)
        return is_done or self in (ActedAs.PACKED, ActedAs.UNPACKED) or self.value.startswith("would_")

    @property
    def words(self) -> str:
        """The outcome for people."""
        return _WORDS.get(self, self.value.replace("_", " "))


_WORDS = {
    ActedAs.ASKED: "asked to stop",
    ActedAs.RETRIED: "run again",
    ActedAs.WOULD_KILL: "would be killed",
    ActedAs.WOULD_RETRY: "would be run again",
    ActedAs.WOULD_DELETE: "would be deleted",
    ActedAs.WOULD_MOVE: "would be moved",
    ActedAs.WOULD_PACK: "would be packed",
    ActedAs.WOULD_UNPACK: "would be unpacked",
    ActedAs.STALE: "another attempt by now",
    ActedAs.STARTING: "is being started",
    ActedAs.ELSEWHERE: "runs on another machine",
    ActedAs.GONE: "gone already",
}


class Acted(NamedTuple):
    """One target, and what became of it."""

    key: str
    outcome: ActedAs
    detail: str = ""
    attempt: int = 0


class Driver(NamedTuple):
    """The process that starts the jobs of a group."""

    is_at_work: bool | None = None
    """None where it is not known."""
    take_up: str = ""
    """The command that starts it again."""
    has_payloads: bool | None = None
    """Whether jobs run without it; None: as their rows say."""


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

    def group(self, group: str) -> Group | None:
        """One group, by its key; None if there is none."""
        ...

    def driver(self, group: str) -> Driver:
        """The process that starts the waiting jobs of a group."""
        ...

    def stamp(self, group: str) -> object:
        """What differs once something of a group may have changed; cheap. None: it is not known so."""
        ...

    def listen(self, wake: Callable[[], None]) -> Callable[[], None] | None:
        """Calls `wake`, from any thread, when something may have changed; returns how to stop that.

        None: the door tells by the descriptor of its feed, or by `stamp`.
        """
        ...

    def rows(self, group: str) -> Iterator[Sequence[Row]]:
        """The jobs of a group as they are now, `CHUNK_ROWS` at most at a time, in order of submission."""
        ...

    def counts(self, group: str) -> Mapping[JobState, int]:
        """How many jobs of a group are in which state; looks at as little as it can."""
        ...

    def about(self, group: str) -> Mapping[str, Any]:
        """What only this door knows of a group, as plain JSON values."""
        ...

    def listed(self) -> Iterator[Sequence[Row]]:
        """The jobs of the groups that a person means without naming one, each once: the newest groups."""
        ...

    def every(self) -> Iterator[Sequence[Row]]:
        """All jobs of the door that something is left of, each once."""
        ...

    def find(self, name: str) -> Sequence[str]:
        """The keys of the jobs that a person calls so; none where the door has no such job."""
        ...

    def feed(self) -> Feed:
        """To be opened before `rows` is read, so that nothing is missed between the two."""
        ...

    def detail(self, key: str) -> Detail: ...

    def parameters(self, key: str) -> Mapping[str, Any]:
        """The parameters and the result of a job, for a filter that names one; empty where none are."""
        ...

    def why(self, key: str) -> Why: ...

    def log(self, key: str, stream: str, earlier: int) -> Log:
        """`stream`: ``out`` or ``err``. `earlier`: how many attempts back."""
        ...

    def metrics(self, key: str) -> Points:
        """The points that a job logged, by name; none where it logged none, or where they are gone."""
        ...

    def metrics_stamp(self, key: str) -> object:
        """What differs from the last answer if there may be new points; None: there are none."""
        ...

    def moments(self, group: str) -> Iterator[Moment]:
        """Oldest first."""
        ...

    def results(self, group: str) -> Iterator[Result]: ...

    def panels(self, only: str | None = None) -> Panels:
        """What the door shows besides jobs. `only`: the one field asked for; the others may be left out."""
        ...

    def act(
        self, action: Action, targets: Sequence[Target], *, dry_run: bool, by: str
    ) -> Sequence[Acted]: ...
