"""The queues for tokens of one scheduler: one for each directory of tokens that its jobs use.
A scheduler whose jobs need no tokens has none.
"""

from __future__ import annotations

from collections.abc import Callable

from tenuto.errors import TokenError
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.token_queue import TokenQueue
from tenuto.scheduler.tokens import Grant, beyond, place_of
from tenuto.workspace.ports import Machine
from tenuto.workspace.token_files import MOST_UNITS, TokenFiles, TokenPlace


class TokenQueues:
    """All queues of one scheduler; a job goes to that of its tokens."""

    def __init__(self, machine: Machine, make: Callable[[TokenPlace], TokenQueue]) -> None:
        """`make` makes the queue of a directory of tokens."""
        self._make = make
        self._machine = machine
        self._queues: dict[str, TokenQueue] = {}

    def check(self, job: Job) -> None:
        """Raises `TokenError` if the job asks for what it can never get; from any thread."""
        files = TokenFiles(self._machine, _place(job))
        for need in job.needs:
            capacity = files.capacity(need.token)
            problem = beyond(need, MOST_UNITS if capacity is None else capacity)
            if problem is not None:
                raise TokenError(problem)

    def ask(self, job: Job) -> None:
        self._queue(job).ask(job)

    def adopt(self, job: Job) -> None:
        self._queue(job).adopt(job)

    def withdraw(self, job: Job) -> None:
        self._queue(job).withdraw(job)

    def release(self, job: Job, grant: Grant | None = None) -> None:
        """A job does not need its units any more; `grant`: only those, if it has got others meanwhile."""
        self._queue(job).release(job, grant)

    def holds(self, job: Job, grant: Grant | None) -> bool:
        """Whether a job still has what it was given; one that was given nothing needs nothing."""
        return grant is None or self._queue(job).holds(job, grant)

    def pump(self) -> None:
        """Jobs that wait with tokens may have a free slot, before jobs that are ready."""
        for queue in self._queues.values():
            if not queue.is_idle:
                queue.pump()

    def close(self) -> None:
        for queue in self._queues.values():
            queue.close()

    def _queue(self, job: Job) -> TokenQueue:
        place = _place(job)
        if place.directory not in self._queues:
            self._queues[place.directory] = self._make(place)
        return self._queues[place.directory]


def _place(job: Job) -> TokenPlace:
    """A launcher's lock alone is queued for in its workspace."""
    return place_of(job.tokens, job.layout.token_queue)
