"""The rows of a search as values: what the stores take and give.
Knows no SQL.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, unique
from typing import Any, NamedTuple

from tenuto.errors import SearchError
from tenuto.lifecycle.evolution import EvolutionStatus, SearchEnd, SearchState


@dataclass(frozen=True, slots=True)
class Caps:
    """How many candidates a search may have; None: any number."""

    max_unfinished: int | None = None
    max_total: int | None = None


@dataclass(frozen=True, slots=True)
class SearchRow:
    """A stored search."""

    id: str
    definition: dict[str, Any]
    state: SearchState
    reason: SearchEnd | None
    message: str | None
    seed: int
    scheduled: int
    told: int
    changed: int
    cost: float
    active_ms: int
    active_at: int | None
    best_number: int | None
    best_objective: float | None
    created_at: int
    ended_at: int | None
    clipped: int = 0


@dataclass(frozen=True, slots=True)
class CandidateCounts:
    """How many candidates of a search are in each status, and the due rows."""

    pending: int = 0
    queued: int = 0
    running: int = 0
    to_tell: int = 0

    @property
    def unfinished(self) -> int:
        return self.pending + self.queued + self.running


@dataclass(frozen=True, slots=True)
class SearchView:
    """A search and its counts, read at one moment; `now` is the database's."""

    search: SearchRow
    counts: CandidateCounts
    now: int


@dataclass(frozen=True, slots=True)
class NewCandidate:
    """A candidate to be added; its id was chosen before, so that it is added once."""

    id: str
    number: int
    asked_after: int
    task_id: str
    job_id: str
    params: str
    proposal: str
    island: int = 0
    parent: int | None = None
    priority: int = 0
    outcome: str | None = None
    """Of a candidate that is added with its outcome, which is not evaluated then."""
    objective: float | None = None


def check_priority(priority: int) -> None:
    """Raises `SearchError` for a priority that no database keeps."""
    if not -(1 << 31) <= priority < 1 << 31:
        raise SearchError(f"priority={priority}: it is a whole number of 32 bits, such as 0, 10 or -5")


@unique
class Refusal(Enum):
    """Why a candidate was not added."""

    TOTAL = "the search has all candidates it may have"
    UNFINISHED = "as many are in flight as may be"
    MOVED = "the search went on meanwhile"
    DUPLICATE = "the search has this candidate already"
    STATE = "the search takes no candidates now"


@dataclass(frozen=True, slots=True)
class Added:
    """A candidate that was added."""

    id: str
    number: int
    reused: bool


@dataclass(frozen=True, slots=True)
class Sent:
    """A row that was promoted to QUEUED, in the order of dispatch."""

    id: str
    number: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """A row that a worker runs; `attempt` fences its writes."""

    id: str
    search_id: str
    number: int
    attempt: int
    priority: int
    task_id: str
    job_id: str
    job_attempt: int
    deaths: int
    params: str
    definition: dict[str, Any] = field(repr=False, hash=False)

    @property
    def key(self) -> tuple[str, int]:
        return (self.id, self.attempt)


@dataclass(frozen=True, slots=True)
class End:
    """How a claimed row ended."""

    id: str
    attempt: int
    status: EvolutionStatus
    outcome: str | None = None
    objective: float | None = None
    cost: float = 0.0
    failure: str | None = None
    message: str | None = None
    job_attempt: int = 0
    directory: str | None = None
    reused: bool = False


class LogRow(NamedTuple):
    """A candidate as a replica reads it; a tuple, since a restart makes one of each row that there is."""

    number: int
    status: EvolutionStatus
    proposal: str
    island: int
    parent: int | None
    outcome: str | None
    told: int | None
    reused: bool
    message: str | None
    failure: str | None
    id: str = ""
    """This and what follows: only of a row that is to be told."""
    cost: float | None = None
    objective: float | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What telling one row gave."""

    id: str
    number: int
    verdict: str
    cell: int | None
    cost: float
    objective: float | None
    message: str | None = None
    """Why the sampler could not take it in, if so; the row is then FAILED."""
    is_clipped: bool = False
    """Its measures lie outside of the archive's ranges."""
