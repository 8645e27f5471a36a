"""Owners of jobs: what the scheduler asks of one, what it counts for each, and the plainest of them.
Decides nothing about jobs.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from tenuto.lifecycle.events import Event
from tenuto.lifecycle.jobs import CounterChange
from tenuto.lifecycle.owners import OwnerName
from tenuto.scheduler.listeners import Subscriber

if TYPE_CHECKING:
    from tenuto.scheduler.jobs import Job


class Owner(Protocol):
    """A run of an experiment, a node of the service, or a search: it asks for jobs, and is told of them."""

    @property
    def id(self) -> str:
        """``experiments/NAME/RUN``, ``service/NODE`` or ``search/NAME``: every event of the owner has it."""
        ...

    @property
    def is_stopping(self) -> bool:
        """True once the owner wants nothing more to be started."""
        ...

    def accept(self, job: Job) -> None:
        """Record a job before it is started; in the loop, again when the job's mode changes.

        An owner that raises here refuses the job: the job ends in ERROR.
        """
        ...

    def hear(self, event: Event) -> None:
        """Hear of a job of this owner; off the loop, in the order of the events."""
        ...


class PlainOwner:
    """An owner that records nothing and passes its events to one subscriber.

    ``Scheduler.instance().submit(job, PlainOwner("search/packing", print))``
    """

    def __init__(self, id: str, subscriber: Subscriber | None = None) -> None:
        """`InvalidName` if `id` is not the name of an owner."""
        self.name = OwnerName.parse(id)
        """Where its journal would lie: ``layout.owner_journal(owner.name)``."""
        self.id = id
        self.is_stopping = False
        self._subscriber = subscriber

    def accept(self, job: Job) -> None:
        """Record nothing."""

    def hear(self, event: Event) -> None:
        """Pass the event on."""
        if self._subscriber is not None:
            self._subscriber(event)

    def __repr__(self) -> str:
        return f"<PlainOwner {self.id}>"


class OwnerCounts:
    """What one owner still waits for, and what failed."""

    __slots__ = ("failed", "outputs", "problem", "unfinished")

    def __init__(self) -> None:
        self.unfinished = 0
        """Jobs that have not reached a final state."""
        self.failed = 0
        """Jobs in ERROR."""
        self.outputs = 0
        """Outputs and ends of jobs that were not yet handed to the callbacks for them."""
        self.problem: str | None = None
        """What the first callback or watcher raised, of those that raised."""

    @property
    def at_rest(self) -> bool:
        """True once nothing more will happen to the jobs of the owner."""
        return not self.unfinished and not self.outputs

    def add(self, change: CounterChange) -> None:
        self.unfinished += change.unfinished
        self.failed += change.failed

    def __repr__(self) -> str:
        return f"OwnerCounts(unfinished={self.unfinished}, failed={self.failed}, outputs={self.outputs})"


class OwnerLedger:
    """The counts of every owner, from its first job until the owner itself is gone."""

    def __init__(self) -> None:
        self._counts: WeakKeyDictionary[Owner, OwnerCounts] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def of(self, owner: Owner) -> OwnerCounts:
        """The counts of an owner, which go on changing; from any thread."""
        counts = self._counts.get(owner)
        if counts is None:
            with self._lock:
                counts = self._counts.setdefault(owner, OwnerCounts())
        return counts
