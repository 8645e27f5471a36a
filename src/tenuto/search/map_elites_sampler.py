"""The seed's sampler of jobs: asks the replica for the next candidate and adds it to the search.
Any number of these, in any processes, work on one search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tenuto.errors import CapReached, SearchError
from tenuto.lifecycle.evolution import EvolutionStatus
from tenuto.search.candidates import Candidates
from tenuto.search.kept_outcomes import judge
from tenuto.search.proposals import Proposal
from tenuto.search.replica import Replica
from tenuto.search.rows import Added, Caps, NewCandidate, Refusal
from tenuto.search.store import Store

_MOST_RACES = 100


@dataclass(frozen=True, slots=True)
class ScheduledJob:
    """A candidate that was added to the search."""

    job_id: str
    number: int
    values: Any
    parent: int | None
    inspirations: tuple[int, ...]
    reused: bool


class MapElitesSampler:
    """Makes jobs of a search from the proposals of any sampler."""

    def __init__(
        self,
        store: Store,
        replica: Replica,
        candidates: Candidates,
        *,
        caps: Caps,
        maximize: bool = True,
        default_priority: int = 0,
        window: int | None = None,
    ) -> None:
        """`window`: of a reproducible search, how many candidates are in flight, exactly."""
        self._store = store
        self.replica = replica
        self._candidates = candidates
        self.caps = caps
        self._default_priority = default_priority
        self.maximize = maximize
        self.window = window
        self.refusal: Refusal | None = None
        """Why the last call added nothing, where it was not the sampler that had nothing."""
        self.is_exhausted = False
        """True while the sampler, as far as the search has come, has nothing to try."""

    def schedule_job(self, *, experiment_id: str, priority: int | None = None) -> ScheduledJob | None:
        """Adds the next candidate; None if the sampler has none, or `refusal` says why not."""
        replica = self.replica
        if not replica.is_read:
            replica.read_on()
        for _ in range(_MOST_RACES):
            if self.window is not None and replica.told < replica.scheduled + 1 - self.window:
                self.refusal = Refusal.UNFINISHED
                return None
            added = self._first_added(experiment_id, priority)
            if added is not None or self.refusal is not Refusal.MOVED:
                self.is_exhausted = added is None and self.refusal is None
                return added
            replica.read_on()
        return None

    def _first_added(self, name: str, priority: int | None) -> ScheduledJob | None:
        """Adds the first proposal that the search has not; None if there is none, or `refusal` forbids it."""
        self.refusal = None
        for proposal in self.replica.proposals():
            result = self._add(name, proposal, priority)
            if isinstance(result, Added):
                self.replica.added(result.number, proposal)
                return _scheduled(result, proposal)
            if result is not Refusal.DUPLICATE:
                self.refusal = result
                return None
        return None

    def _add(self, name: str, proposal: Proposal, priority: int | None) -> Added | Refusal:
        replica = self.replica
        given = self._default_priority if priority is None else priority
        new = self._candidates.make(proposal, replica.scheduled + 1, replica.told, given)
        return self._store.add(name, new, self.caps)

    def enqueue(self, name: str, values: Any, priority: int = 0, *, skip_if_exists: bool = False) -> int:
        """Adds a candidate of the caller's choice, beyond the cap on unfinished ones; its number."""
        self.replica.read_on()
        new = self._candidates.make(self._candidates.given(values), 0, self.replica.told, priority)
        return add_given(self._store, name, new, self.caps, skip_if_exists)[0]

    def add(self, name: str, values: Any, outcome: Any, *, skip_if_exists: bool = False) -> int:
        """Adds a candidate whose outcome is known; its number."""
        self.replica.read_on()
        new = self._candidates.make(self._candidates.given(values), 0, self.replica.told, 0)
        search = self._store.search(name)
        new = with_outcome(new, outcome, search.definition if search is not None else {})
        return add_given(self._store, name, new, self.caps, skip_if_exists)[0]


def with_outcome(new: NewCandidate, outcome: Any, definition: Mapping[str, Any]) -> NewCandidate:
    """A candidate with the outcome that it has; `SearchError` for one that the search cannot use."""
    found = judge(outcome, definition)
    if found.status is not EvolutionStatus.SUCCEEDED:
        raise SearchError(f"the outcome cannot be used: {found.message}")
    return replace(new, outcome=found.outcome, objective=found.objective)


def add_given(
    store: Store, name: str, new: NewCandidate, caps: Caps, skip_if_exists: bool = False
) -> tuple[int, bool]:
    """Adds what a person gave; its number, and whether it is new.

    `skip_if_exists`: the number of the candidate that has these values already, whatever the caps are.
    """
    known = store.number_of(name, new) if skip_if_exists else None
    if known is not None:
        return known, False
    result = store.add(name, new, caps, is_ordered=False)
    if isinstance(result, Added):
        return result.number, True
    known = store.number_of(name, new) if skip_if_exists and result is Refusal.DUPLICATE else None
    if known is not None:  # another process added it meanwhile
        return known, False
    raise refused(name, result, caps)


def refused(name: str, refusal: Refusal, caps: Caps) -> SearchError:
    """Why what a person gave was not added, in words."""
    if refusal is Refusal.TOTAL:
        return CapReached(f"{name} has all {caps.max_total} candidates it may have: raise max_total_jobs")
    if refusal is Refusal.DUPLICATE:
        return SearchError(f"{name} has a candidate with these values already: give skip_if_exists=True")
    if refusal is Refusal.STATE:
        return SearchError(f"{name} has ended, or is ending: run it again, with larger bounds, to open it")
    return SearchError(f"{name}: {refusal.value}")


def _scheduled(added: Added, proposal: Proposal) -> ScheduledJob:
    return ScheduledJob(
        added.id, added.number, proposal.values, proposal.parent, proposal.inspirations, added.reused
    )
