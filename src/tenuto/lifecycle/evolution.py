"""The statuses of an evolution job, the states of a search, which may follow which, and why a search ended.
Holds no row: the store of a search applies these tables in SQL.
"""

from collections.abc import Mapping
from enum import Enum, unique
from types import MappingProxyType


@unique
class EvolutionStatus(Enum):
    """What a candidate's row is doing. Rows carry the value."""

    PENDING = "PENDING"
    """Made; waits to be sent."""
    QUEUED = "QUEUED"
    """Sent; a worker may claim it."""
    RUNNING = "RUNNING"
    """Claimed by a worker, whose lease it holds."""
    SUCCEEDED = "SUCCEEDED"
    """Evaluated, or known from before."""
    FAILED = "FAILED"
    """It could not be evaluated."""
    CANCELLED = "CANCELLED"
    """A person, or the end of the search, did not want it."""

    def finished(self) -> bool:
        """True in a status that only a person's retry leaves."""
        return self in _FINISHED

    def unfinished(self) -> bool:
        """True while the candidate counts as in flight."""
        return self not in _FINISHED


_FINISHED = frozenset({EvolutionStatus.SUCCEEDED, EvolutionStatus.FAILED, EvolutionStatus.CANCELLED})


@unique
class SearchState(Enum):
    """What a search is doing."""

    RUNNING = "RUNNING"
    """Candidates are made, sent and evaluated."""
    PAUSED = "PAUSED"
    """No candidate is made or claimed; running ones continue."""
    DRAINING = "DRAINING"
    """It ends: running candidates are waited for and told."""
    ENDED = "ENDED"
    """Nothing is in flight, and everything was told."""


@unique
class SearchEnd(Enum):
    """Why a search ended."""

    TOTAL = "all candidates it may have were evaluated"
    TIME = "its time is over"
    COST = "its budget is spent"
    TARGET = "the target was reached"
    STALL = "no cell was filled or improved for a while"
    FAILING = "none of the first candidates could be evaluated"
    EXHAUSTED = "the sampler has nothing more to try"
    STOPPED = "a person stopped it"


def _statuses() -> Mapping[EvolutionStatus, Mapping[EvolutionStatus, str]]:
    S = EvolutionStatus
    again = {S.PENDING: "retried by a person"}
    rows: dict[EvolutionStatus, dict[EvolutionStatus, str]] = {
        S.PENDING: {S.QUEUED: "dispatched", S.CANCELLED: "a person, or the end of the search"},
        S.QUEUED: {
            S.RUNNING: "claimed by a worker",
            S.PENDING: "could not be sent",
            S.CANCELLED: "a person, or the end of the search",
        },
        S.RUNNING: {
            S.SUCCEEDED: "evaluated",
            S.FAILED: "could not be evaluated, or lost too often",
            S.PENDING: "its lease is gone, its job was lost, or its worker gave it back",
            S.CANCELLED: "a person",
        },
        S.SUCCEEDED: {},
        S.FAILED: again,
        S.CANCELLED: again,
    }
    return MappingProxyType({status: MappingProxyType(row) for status, row in rows.items()})


EVOLUTION_TRANSITIONS: Mapping[EvolutionStatus, Mapping[EvolutionStatus, str]] = _statuses()
"""status -> {legal next status: what brings it about}."""

SEARCH_TRANSITIONS: Mapping[SearchState, frozenset[SearchState]] = MappingProxyType(
    {
        SearchState.RUNNING: frozenset({SearchState.PAUSED, SearchState.DRAINING, SearchState.ENDED}),
        SearchState.PAUSED: frozenset({SearchState.RUNNING, SearchState.DRAINING, SearchState.ENDED}),
        SearchState.DRAINING: frozenset({SearchState.RUNNING, SearchState.ENDED}),
        SearchState.ENDED: frozenset({SearchState.RUNNING}),  # opened again, with larger caps
    }
)
