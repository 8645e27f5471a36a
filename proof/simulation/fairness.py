"""Owns the verdict on the order in which tokens are given out: how often a request was overtaken, in truth.
It counts for itself, from the locks that are taken; of what schedulers write it believes only the tickets.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from proof.simulation.scenario import JobPlan
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.token_files import TokenPlace

MOST_OVERTAKINGS = 10
"""Of a request for one token; one that is short of two may lose units of the one while the other is busy."""


class _Ticket(NamedTuple):
    number: int
    scheduler: int
    needs: tuple[tuple[str, int], ...]
    is_parked: bool


class Fairness:
    """Follows the queue of tokens, and says when a job was overtaken once too often."""

    def __init__(
        self,
        jobs: Mapping[str, JobPlan],
        paths: Mapping[str, JobPaths],
        place: TokenPlace,
        capacities: Mapping[str, int],
        read: Callable[[str], bytes | None],
        locked: Callable[[str], frozenset[int]],
    ) -> None:
        """`read` and `locked` look at a file, and at the bytes of it that are locked, unnoticed."""
        self._needs = {name: tuple(sorted(job.tokens)) for name, job in jobs.items()}
        self._jobs = {path.lock: name for name, path in paths.items()}
        self._place = place
        self._units = {place.units(token): token for token in capacities}
        self._capacities = capacities
        self._read = read
        self._locked = locked
        self._numbers: dict[str, int] = {}
        """scheduler -> the number that it goes by"""
        self._at: dict[str, str] = {}
        """scheduler -> the job whose lock it took last"""
        self._granted: set[int] = set()
        """The tickets whose requests were granted since the mutex was taken: they are still in the file."""
        self._overtaken: Counter[_Ticket] = Counter()

    def taken(self, scheduler: str, path: str, numbers: Sequence[int]) -> int:
        """A scheduler has taken a lock; how often any request was overtaken that still waits."""
        if path in self._jobs:
            self._at[scheduler] = self._jobs[path]
        elif path == self._place.schedulers:
            self._numbers[scheduler] = numbers[0]
        elif path == self._place.mutex:
            return self._look()
        elif path in self._units and self._at.get(scheduler) is not None:
            needs = self._needs[self._at[scheduler]]
            if needs and self._units[path] == needs[-1][0]:  # they are taken in the order of their names
                self._grant(scheduler, needs)
        return 0

    def _look(self) -> int:
        """No scheduler is at the queue: a job that is not in it does not wait any more."""
        self._granted.clear()
        waiting = set(self._tickets())
        self._overtaken = Counter({t: count for t, count in self._overtaken.items() if t in waiting})
        return max(self._overtaken.values(), default=0)

    def _grant(self, scheduler: str, needs: tuple[tuple[str, int], ...]) -> None:
        tickets = [ticket for ticket in self._tickets() if ticket.number not in self._granted]
        own = self._numbers.get(scheduler)
        mine = [t.number for t in tickets if t.scheduler == own and t.needs == needs]
        # One that is granted at once was never in the file.
        number = min(mine, default=1 << 60)
        self._granted.add(number)
        living = self._locked(self._place.schedulers)
        for ticket in tickets:
            if ticket.number < number and not ticket.is_parked and ticket.scheduler in living:
                self._overtaken[ticket] += self._is_passed(ticket, dict(needs))

    def _is_passed(self, ticket: _Ticket, taken: Mapping[str, int]) -> bool:
        """Whether units were taken that the request is short of."""
        if len(ticket.needs) != 1:
            return False
        token, amount = ticket.needs[0]
        free = self._capacities[token] - len(self._locked(self._place.units(token)))
        return token in taken and free < amount

    def _tickets(self) -> list[_Ticket]:
        try:
            found: dict[str, Any] = json.loads(self._read(self._place.queue) or b"{}")
        except ValueError:
            return []
        return sorted(
            _Ticket(
                ticket["number"],
                ticket["scheduler"],
                tuple((need["token"], need["count"]) for need in ticket["needs"]),
                ticket.get("parked", False),
            )
            for ticket in found.get("tickets", ())
        )
