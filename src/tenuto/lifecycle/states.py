"""The states of a job, which may follow which, and why a job failed.
Holds no job and reads no clock: `transition` is a function of values and `now`.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from enum import Enum, IntEnum, unique
from types import MappingProxyType
from typing import TypeVar

from tenuto.errors import IllegalTransition
from tenuto.light import NamedTuple


@unique
class ProcessState(Enum):
    """What a runner says of its payload, in the journal of the job."""

    STOPPING = "stopping"
    """It was asked to end."""
    ENDED = "ended"


@unique
class JobState(IntEnum):
    """What a job is doing. The numbers are part of the file format."""

    UNSCHEDULED = 0
    WAITING = 1
    READY = 2
    SCHEDULED = 3
    RUNNING = 4
    DONE = 5
    ERROR = 6

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return format(self.name, spec)

    @property
    def meaning(self) -> str:
        return _STATE_MEANINGS[self]

    def finished(self) -> bool:
        """True in a final state, which only an explicit resubmission leaves."""
        return self >= JobState.DONE

    def running(self) -> bool:
        """True while a process of the job may exist."""
        return self in (JobState.SCHEDULED, JobState.RUNNING)

    def unfinished(self) -> bool:
        """True while an owner waits for the job to end."""
        return JobState.WAITING <= self <= JobState.RUNNING


_STATE_MEANINGS: Mapping[JobState, str] = {
    JobState.UNSCHEDULED: "known, but not asked to run",
    JobState.WAITING: "submitted; waits for the jobs or tokens it depends on",
    JobState.READY: "everything it depends on is done",
    JobState.SCHEDULED: "handed to a launcher; intent is recorded, the process is not yet confirmed",
    JobState.RUNNING: "its runner is alive",
    JobState.DONE: "ended well",
    JobState.ERROR: "ended badly; the failure status says why",
}


@unique
class JobFailureStatus(Enum):
    """Why a job is in ERROR. Files carry the name."""

    DEPENDENCY = "a job it depends on failed"
    FAILED = "its code raised, or exited with a code other than 0"
    MEMORY = "it used more memory than allowed"
    TIMEOUT = "it ran longer than allowed"
    DELETED = "a person deleted its data"
    CANCELLED = "a person stopped it"
    LOST = "its runner vanished without leaving a marker"
    REJECTED = "a launcher refused it"

    @property
    def meaning(self) -> str:
        return self.value


@unique
class TransientMode(IntEnum):
    """Whether a job runs for its own sake, and whether its directory is kept."""

    NONE = 0
    TRANSIENT = 1
    REMOVE = 2

    @property
    def meaning(self) -> str:
        return _TRANSIENT_MEANINGS[self]

    def merge(self, other: "TransientMode") -> "TransientMode":
        """The more conservative of two requests for one job: rather run than not, rather keep than not."""
        return min(self, other)


_TRANSIENT_MEANINGS: Mapping[TransientMode, str] = {
    TransientMode.NONE: "always runs",
    TransientMode.TRANSIENT: "runs only if a needed job depends on it; its directory stays",
    TransientMode.REMOVE: "like TRANSIENT, and its directory is removed after a clean end of the experiment",
}


def _table() -> Mapping[JobState, Mapping[JobState, str]]:
    S = JobState
    again = {S.WAITING: "explicitly resubmitted"}
    rows: dict[JobState, dict[JobState, str]] = {
        S.UNSCHEDULED: {
            S.WAITING: "submitted",
            S.RUNNING: "adopted",
            S.DONE: "found on disk",
            S.ERROR: "found on disk",
        },
        S.WAITING: {
            S.READY: "dependencies done",
            S.ERROR: "a dependency failed, or cancelled",
            S.UNSCHEDULED: "transient, no longer needed",
        },
        S.READY: {
            S.SCHEDULED: "locks and tokens taken",
            S.WAITING: "tokens busy",
            S.ERROR: "cancelled, or cannot be prepared",
        },
        S.SCHEDULED: {
            S.RUNNING: "runner confirmed",
            S.DONE: "too short to be seen running",
            S.ERROR: "too short to be seen running, or refused",
            S.WAITING: "retry",
        },
        S.RUNNING: {
            S.DONE: "marker .done",
            S.ERROR: "marker .failed, or lost",
            S.WAITING: "retry",
        },
        S.DONE: again,
        S.ERROR: again,
    }
    return MappingProxyType({state: MappingProxyType(row) for state, row in rows.items()})


TRANSITIONS: Mapping[JobState, Mapping[JobState, str]] = _table()
"""state -> {legal next state: what brings it about}."""


S = TypeVar("S", bound=Enum)


def check_move(table: Mapping[S, Collection[S]], state: S, to: S) -> None:
    """Raises `IllegalTransition` if a table of states forbids the move."""
    if to not in table[state]:
        noun = _NOUNS[type(state).__name__]
        legal = ", ".join(map(_word, table[state])) or "nothing"
        raise IllegalTransition(
            f"{noun} cannot go from {_word(state)} to {_word(to)}; from there it can go to: {legal}"
        )


def origins(table: Mapping[S, Collection[S]], to: S) -> tuple[S, ...]:
    """The states from which a table lets a row come into this one."""
    return tuple(state for state, row in table.items() if to in row)


def _word(state: Enum) -> str:
    return state.value if isinstance(state.value, str) else state.name


_NOUNS: Mapping[str, str] = {
    "JobState": "a job",
    "ServiceState": "a service job",
    "PayloadState": "a payload",
    "EvolutionStatus": "a candidate",
    "SearchState": "a search",
}


class StateRecord(NamedTuple):
    """Where a job stands: its state, why, and since when."""

    state: JobState = JobState.UNSCHEDULED
    reason: JobFailureStatus | None = None
    message: str | None = None
    submittime: datetime | None = None
    starttime: datetime | None = None
    endtime: datetime | None = None


def transition(
    record: StateRecord,
    to: JobState,
    now: datetime,
    reason: JobFailureStatus | None = None,
    message: str | None = None,
) -> StateRecord:
    """The record after the move, with its times stamped; `IllegalTransition` if the table forbids it.

    ERROR always carries a reason (FAILED if none is given); no other state does.
    """
    check_move(TRANSITIONS, record.state, to)
    if to is JobState.ERROR:
        reason = reason or JobFailureStatus.FAILED
    elif reason is not None:
        raise IllegalTransition(f"only ERROR carries a reason, {to.name} was given {reason.name}")
    _, _, _, submitted, started, ended = record
    if to is JobState.WAITING:
        submitted, started, ended = now, None, None
    elif to is JobState.RUNNING:
        started = now
    elif to.finished():
        ended = now
    return StateRecord(to, reason, message, submitted, started, ended)
