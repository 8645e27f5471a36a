"""The room that `max_jobs` leaves in Slurm's queue for jobs of this process.
A job counts from its sbatch until squeue shows that it has left: its marker comes a moment before that.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

from tenuto.clock import Clock
from tenuto.launchers.slurm.commands import Row
from tenuto.launchers.slurm.states import meaning_of
from tenuto.launchers.slurm.submission import Place
from tenuto.workspace.derive_table import ClusterSays


class Room:
    """Counts the jobs that Slurm may have; for any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._reserved = 0
        """Jobs whose sbatch is about to be called, or has not answered."""
        self._queued: dict[str, tuple[int, float]] = {}
        """Suffix of a submission -> how many of its jobs Slurm may have, and when it was answered."""

    def reserve(self, wanted: int, most: int) -> int:
        """Reserves room for as many of the wanted jobs as fit under `most`; returns how many."""
        with self._lock:
            taken = self._reserved + sum(count for count, _ in self._queued.values())
            granted = max(min(wanted, most - taken), 0)
            self._reserved += granted
            return granted

    def release(self, count: int) -> None:
        """Ends a reservation: what became of it is counted by its submissions."""
        with self._lock:
            self._reserved -= count

    def queue(self, place: Place, count: int) -> None:
        """Counts the jobs of a submission that Slurm has, or may have."""
        with self._lock:
            self._queued[place.suffix] = count, self._clock.monotonic()

    def look(self, rows: Sequence[Row], asked: float) -> None:
        """Takes an answer of squeue to a question that was `asked` then, by the monotonic clock."""
        there = Counter(
            "-" + row.name.rpartition("-")[2]
            for row in rows
            if meaning_of(row.state).says is not ClusterSays.ENDED
        )
        with self._lock:
            for suffix, (count, since) in list(self._queued.items()):
                if since >= asked:
                    continue
                if there[suffix]:
                    self._queued[suffix] = min(count, there[suffix]), since
                else:
                    del self._queued[suffix]
