"""How long the jobs of a group take, and so when the group will be done; how many jobs end in a second.
Pure: a guess from what has ended; nothing depends on it being right.
"""

from __future__ import annotations

from datetime import datetime

from tenuto.jobs.model import CountKind, Model
from tenuto.jobs.row import Row
from tenuto.lifecycle.states import JobState

RATE_S = 60
"""Jobs a second are the mean of so many seconds."""


class Pace:
    """The mean time that jobs of each task took in each group, and when jobs ended."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        """Second -> how many jobs ended in it; of the last minute only, so that a flood costs no memory."""
        self._took: dict[tuple[str, str], tuple[int, float]] = {}

    def add(self, before: Row | None, row: Row) -> None:
        """Take in a job that has just ended."""
        if before is not None and before.state.finished() and before.attempt == row.attempt:
            return
        if row.reused or row.started is None or row.ended is None:
            return
        self._count_end(int(row.ended.timestamp()))
        if row.state is not JobState.DONE:
            return
        count, total = self._took.get((row.group, row.task), (0, 0.0))
        took = max((row.ended - row.started).total_seconds(), 0.0)
        self._took[row.group, row.task] = (count + 1, total + took)

    def _count_end(self, second: int) -> None:
        self._ends[second] = self._ends.get(second, 0) + 1
        if len(self._ends) > 2 * RATE_S:
            oldest = max(self._ends) - RATE_S
            self._ends = {known: count for known, count in self._ends.items() if known >= oldest}

    def forget(self, group: str) -> None:
        """Drop what is known of a group."""
        self._took = {key: took for key, took in self._took.items() if key[0] != group}

    def ended_per_s(self, now: datetime) -> float:
        """How many jobs ended in a second, over the last minute."""
        latest = int(now.timestamp())
        ended = self._ends.copy().items()  # the thread that follows adds to it
        return sum(count for second, count in ended if latest - RATE_S < second <= latest) / RATE_S

    def left_s(self, model: Model, group: str) -> float | None:
        """How long the jobs of a group that wait or run will take; None while unknown."""
        running, waiting = model.by_task(CountKind.RUNNING, group), model.by_task(CountKind.WAITING, group)
        if not running and not waiting:
            return None
        known = {task: total / count for (name, task), (count, total) in self._took.items() if name == group}
        if not known:
            return None
        mean = sum(known.values()) / len(known)
        work = sum(number * known.get(task, mean) for task, number in waiting.items())
        work += sum(number * known.get(task, mean) / 2 for task, number in running.items())
        return work / max(sum(running.values()), 1)
