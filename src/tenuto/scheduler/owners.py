"""Owners of jobs: the events for one, the data kept for each, and the plainest of them.
Decides nothing about jobs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from tenuto.lifecycle.base_job import CounterChange
from tenuto.lifecycle.events import Event
from tenuto.lifecycle.owner_names import OwnerName
from tenuto.scheduler.listeners import Subscriber
from tenuto.tasks.arguments import guarded

if TYPE_CHECKING:
    from tenuto.scheduler.jobs import Job

ListJob = Callable[["Job"], object]
"""Lists a job for its owner; a job that it raises for ends in ERROR."""


class Owner(Protocol):
    """A run of an experiment, a node of the service, or a search: it asks for jobs, and is told of them."""

    @property
    def id(self) -> str:
        """``experiments/NAME/RUN``, ``service/NODE`` or ``search/NAME``: every event of the owner has it."""
        ...

    def hear(self, event: Event) -> None:
        """Hear of a job of this owner; off the loop, in the order of the events."""
        ...


@guarded
class PlainOwner:
    """An owner that passes its events to one subscriber.

    ``Scheduler.instance().submit(job, PlainOwner("search/packing", print))``
    """

    def __init__(self, id: str, subscriber: Subscriber | None = None) -> None:
        """`InvalidName` if `id` is not the name of an owner."""
        self.name = OwnerName.parse(id)
        """Where its journal would lie: ``layout.owner_journal(owner.name)``."""
        self.id = id
        self._subscriber = subscriber

    def hear(self, event: Event) -> None:
        """Pass the event on."""
        if self._subscriber is not None:
            self._subscriber(event)

    def __repr__(self) -> str:
        return f"<PlainOwner {self.id}>"


class OwnerCounts:
    """The open jobs of one owner, and the failed ones."""

    __slots__ = ("failed", "outputs", "problem", "unfinished")

    def __init__(self) -> None:
        self.unfinished = 0
        """Jobs that have not reached a final state."""
        self.failed = 0
        """Jobs in ERROR."""
        self.outputs = 0
        """Outputs and ends of jobs that were not yet handed to the callbacks for them."""
        self.problem: str | None = None
        """The first error that a callback or watcher raised."""

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
    """The counts of every owner, from its first job until the owner is gone; and the lists of its jobs."""

    def __init__(self) -> None:
        self._counts: WeakKeyDictionary[Owner, OwnerCounts] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._lists: dict[Owner, ListJob] = {}

    def of(self, owner: Owner) -> OwnerCounts:
        """The counts of an owner, which keep changing; from any thread."""
        counts = self._counts.get(owner)
        if counts is None:
            with self._lock:
                counts = self._counts.setdefault(owner, OwnerCounts())
        return counts

    def keep_list(self, owner: Owner, list_job: ListJob) -> None:
        """Have each job of an owner listed, until the owner is released; from any thread."""
        self._lists[owner] = list_job

    def list(self, owner: Owner, job: Job) -> None:
        """List a job for an owner that keeps a list; in the loop."""
        list_job = self._lists.get(owner)
        if list_job is not None:
            list_job(job)

    def close_list(self, owner: Owner) -> None:
        """The owner was released; in the loop."""
        self._lists.pop(owner, None)
