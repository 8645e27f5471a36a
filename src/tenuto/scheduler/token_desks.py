"""Which desk a job with tokens goes to: one for each directory of tokens that this scheduler uses.
A scheduler whose jobs need none has none.
"""

from __future__ import annotations

from collections.abc import Callable

from tenuto.errors import TokenError
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.token_alarm import Loop
from tenuto.scheduler.token_desk import Floor, Slots, TokenDesk
from tenuto.scheduler.tokens import Grant, beyond, place_of
from tenuto.workspace.inotify import DirectoryWatch
from tenuto.workspace.job_directory import Ask
from tenuto.workspace.layout import TokenPlace
from tenuto.workspace.ports import Machine
from tenuto.workspace.tokens import MOST_UNITS, TokenFiles


class TokenDesks:
    """All desks of one scheduler."""

    def __init__(
        self,
        machine: Machine,
        floor: Floor,
        slots: Slots,
        loop: Loop,
        watch: Callable[[str], DirectoryWatch | None],
        ask: Ask,
    ) -> None:
        self._make: Callable[[TokenPlace], TokenDesk] = lambda place: TokenDesk(
            machine, place, floor, slots, loop, watch, ask
        )
        self._machine = machine
        self._desks: dict[str, TokenDesk] = {}

    def check(self, job: Job) -> None:
        """Raises `TokenError` if the job asks for what it can never get; from any thread."""
        files = TokenFiles(self._machine, _place(job))
        for need in job.needs:
            capacity = files.capacity(need.token)
            problem = beyond(need, MOST_UNITS if capacity is None else capacity)
            if problem is not None:
                raise TokenError(problem)

    def ask(self, job: Job) -> None:
        self._desk(job).ask(job)

    def adopt(self, job: Job) -> None:
        self._desk(job).adopt(job)

    def withdraw(self, job: Job) -> None:
        self._desk(job).withdraw(job)

    def release(self, job: Job, grant: Grant | None = None) -> None:
        """A job does not need its units any more; `grant`: only those, if it has got others meanwhile."""
        self._desk(job).release(job, grant)

    def holds(self, job: Job, grant: Grant | None) -> bool:
        """Whether a job still has what it was given; one that was given nothing needs nothing."""
        return grant is None or self._desk(job).holds(job, grant)

    def pump(self) -> None:
        """A slot is free: jobs that wait with tokens may have it before those that are ready."""
        for desk in self._desks.values():
            if not desk.is_idle:
                desk.pump()

    def close(self) -> None:
        for desk in self._desks.values():
            desk.close()

    def _desk(self, job: Job) -> TokenDesk:
        place = _place(job)
        if place.directory not in self._desks:
            self._desks[place.directory] = self._make(place)
        return self._desks[place.directory]


def _place(job: Job) -> TokenPlace:
    """A launcher's lock alone is queued for in its workspace."""
    return place_of(job.tokens, job.layout.token_queue)
