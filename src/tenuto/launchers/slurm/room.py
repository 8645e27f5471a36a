"""The room that `max_jobs` leaves in Slurm's queue for jobs of this process.
A job counts from its sbatch until Slurm shows that it has left: its marker comes a moment before that.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tenuto.clock import Clock
from tenuto.launchers.slurm.commands import SlurmRow
from tenuto.launchers.slurm.states import meaning_of
from tenuto.launchers.slurm.submission import Place
from tenuto.workspace.derive_table import ClusterSays


class Queued(NamedTuple):
    """What Slurm may have of one submission."""

    jobs: int
    since: float
    """When sbatch was answered."""
    job: str | None
    """Slurm's id; None if the answer of sbatch was lost."""


class Room:
    """Counts the jobs that Slurm may have; for any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._reserved = 0
        """Jobs whose sbatch is about to be called, or has not answered."""
        self._queued: dict[str, Queued] = {}
        """By the suffix of the submission."""

    def reserve(self, wanted: int, most: int) -> int:
        """Reserves room for as many of the wanted jobs as fit under `most`; returns how many."""
        with self._lock:
            taken = self._reserved + sum(queued.jobs for queued in self._queued.values())
            granted = max(min(wanted, most - taken), 0)
            self._reserved += granted
            return granted

    def release(self, count: int) -> None:
        """Ends a reservation: what became of it is counted by its submissions."""
        with self._lock:
            self._reserved -= count

    def queue(self, place: Place, count: int, job: str | None) -> None:
        """Counts the jobs of a submission that Slurm has, or may have."""
        with self._lock:
            self._queued[place.suffix] = Queued(count, self._clock.monotonic(), job)

    def look(self, rows: Sequence[SlurmRow], asked: float) -> dict[str, str]:
        """Takes an answer of squeue to a question that was `asked` then, by the monotonic clock.

        Returns the submissions of which the answer shows nothing, with Slurm's ids: squeue may have answered
        nothing at all, so that each has to be `asked_for` by its id.
        """
        shown = {_suffix(row) for row in rows}
        there = Counter(_suffix(row) for row in rows if _is_there(row))
        unseen: dict[str, str] = {}
        with self._lock:
            for suffix, queued in list(self._queued.items()):
                if queued.since >= asked:
                    continue
                if suffix in shown or queued.job is None:
                    self._keep(suffix, min(queued.jobs, there[suffix]))
                else:
                    unseen[suffix] = queued.job
        return unseen

    def asked_for(self, suffix: str, rows: Iterable[SlurmRow]) -> None:
        """Takes what the controller says of one submission, of which squeue showed nothing."""
        if not any(map(_is_there, rows)):
            with self._lock:
                self._keep(suffix, 0)

    def _keep(self, suffix: str, count: int) -> None:
        if count:
            self._queued[suffix] = self._queued[suffix]._replace(jobs=count)
        else:
            self._queued.pop(suffix, None)


def _suffix(row: SlurmRow) -> str:
    return "-" + row.name.rpartition("-")[2]


def _is_there(row: SlurmRow) -> bool:
    return meaning_of(row.state).says is not ClusterSays.ENDED
