"""A replica: the sampler of a search as its log makes it, in one process.
Writes nothing: it reads the rows, proposes the next number, and says what a tell gives.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tenuto.lifecycle.evolution import EvolutionStatus
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.search.archive import Archive, Verdict
from tenuto.search.candidates import Candidates
from tenuto.search.claimed_rows import SURROUNDINGS
from tenuto.search.kept_outcomes import OTHER_CODE, read_kept
from tenuto.search.outcome import Outcome, point
from tenuto.search.points import PRUNED
from tenuto.search.proposals import InFlight, Proposal, Sampler, archive_of, proposals, tell
from tenuto.search.rows import LogRow, Told
from tenuto.search.spaces import Untried
from tenuto.search.store import Store

MOST_TELL_ERRORS = 3
_SURROUNDINGS = (SURROUNDINGS, JobFailureStatus.REJECTED.name)


@dataclass(slots=True)
class Tally:
    """The outcomes told so far."""

    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    pruned: int = 0
    reused: int = 0
    older: int = 0
    """The outcomes that other code made."""
    since_better: int = 0
    last_failure: str | None = None
    surroundings: int = 0
    """The failures of the surroundings, not of candidates, that were told last, in a row."""


class Replica:
    """One search as this process knows it."""

    def __init__(
        self, store: Store, name: str, begin: Callable[[], Sampler], candidates: Candidates, seed: int
    ) -> None:
        self._store = store
        self.name = name
        self._begin = begin
        self._candidates = candidates
        self._seed = seed
        self._errors: dict[int, int] = {}
        self.rebuild()

    def rebuild(self) -> None:
        """Forgets everything; the next `read_on` reads the log from its beginning."""
        self.sampler = self._begin()
        self.scheduled = 0
        self.told = 0
        self.in_flight: dict[int, Proposal] = {}
        self.tally = Tally()
        self._untried = Untried(self._candidates.domain)
        self._applied: dict[int, Told] = {}
        self.is_read = False
        """True once the log was read; what others did since is noticed when a row is refused."""

    @property
    def archive(self) -> Archive | None:
        return archive_of(self.sampler)

    def read_on(self) -> None:
        """Reads the rows added and told since, also by other processes."""
        told, rows, tells = self._store.read_log(self.name, self.scheduled, self.told)
        for row in rows:
            self.scheduled = max(self.scheduled, row.number)
            if row.told is None:
                self._fly(row.number, self._candidates.decode(row))
        for row in tells:
            self._apply(row)
        self.told = told
        self.is_read = True
        self._applied.clear()

    def added(self, number: int, proposal: Proposal) -> None:
        """Takes note of the next candidate, which this process added itself."""
        self._fly(number, proposal)
        self.scheduled = number

    def proposals(self) -> Iterator[Proposal]:
        """Proposals of the next number, for as long as the search has each of them already."""
        number = self.scheduled + 1
        return proposals(self.sampler, self._untried, self._seed, number, self._flying())

    def _flying(self) -> list[InFlight]:
        return [InFlight(other, proposal) for other, proposal in sorted(self.in_flight.items())]

    def _fly(self, number: int, proposal: Proposal) -> None:
        self.in_flight[number] = proposal
        self._untried.note(proposal.values)

    def tell(self, row: LogRow) -> Told:
        """What telling a row gives; asked twice, the same, until `confirm`.

        Raises what the sampler raises, and forgets everything then: the sampler may be half changed. After
        three times the row is told as failed, with the error.
        """
        known = self._applied.get(row.number)
        if known is not None:
            return known
        try:
            verdict, cell = self._apply(row)
        except Exception as error:
            count = self._errors[row.number] = self._errors.get(row.number, 0) + 1
            self.rebuild()
            if count < MOST_TELL_ERRORS:
                raise
            message = f"the sampler could not take it in: {type(error).__name__}: {error}"
            return Told(row.id, row.number, Verdict.FAILED.value, None, row.cost or 0.0, None, message)
        outcome, archive = outcome_of(row), self.archive
        is_clipped = outcome is not None and archive is not None and archive.clips(point(outcome))
        told = Told(
            row.id, row.number, verdict.value, cell, row.cost or 0.0, row.objective, is_clipped=is_clipped
        )
        self._applied[row.number] = told
        return told

    def confirm(self, count: int) -> None:
        """The told outcomes are stored."""
        self.told += count
        self._applied.clear()

    @property
    def has_unconfirmed(self) -> bool:
        """True if the sampler was told something that is not known to be stored."""
        return bool(self._applied)

    def _apply(self, row: LogRow) -> tuple[Verdict, int | None]:
        proposal = self.in_flight.get(row.number) or self._candidates.decode(row)
        outcome = outcome_of(row)
        is_failed = outcome is None and row.failure != PRUNED and row.message is not None
        if is_failed and hasattr(self.sampler, "tell_failure"):
            self.sampler.tell_failure(proposal, row.message)
        if row.failure == PRUNED and row.outcome is not None and hasattr(self.sampler, "tell_pruned"):
            kept = json.loads(row.outcome)
            verdict, cell = self.sampler.tell_pruned(row.number, proposal, kept["objective"], kept["pruned"])
        else:
            verdict, cell = tell(self.sampler, row.number, proposal, outcome)
        if self.in_flight.pop(row.number, None) is None:
            self._untried.note(proposal.values)
        tally = self.tally
        if row.status is not EvolutionStatus.CANCELLED:
            tally.surroundings = tally.surroundings + 1 if row.failure in _SURROUNDINGS else 0
        if row.status is EvolutionStatus.SUCCEEDED:
            tally.since_better = 0 if verdict in (Verdict.NEW, Verdict.BETTER) else tally.since_better + 1
            tally.succeeded += 1
            tally.reused += row.reused
            tally.older += row.failure == OTHER_CODE
        elif row.failure == PRUNED:
            tally.pruned += 1
        elif row.status is EvolutionStatus.CANCELLED:
            tally.cancelled += 1
        else:
            tally.failed += 1
            tally.last_failure = row.message
        return verdict, cell


def outcome_of(row: LogRow) -> Outcome | None:
    """The outcome of a candidate that succeeded."""
    if row.status is not EvolutionStatus.SUCCEEDED or row.outcome is None:
        return None
    return read_kept(row.outcome)
