"""The past of a group: a fold of its moments, and the states at any instant.
Pure: moments in. What is kept is small, so that the past of 100,000 jobs fits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from tenuto.jobs.source import Moment
from tenuto.lifecycle.states import JobFailureStatus, JobState

CHECKPOINT = 10_000
"""After so many moments all states are noted, so that no question folds more."""


class Standing(NamedTuple):
    """Where a job stood, and since when."""

    state: JobState
    attempt: int
    reason: JobFailureStatus | None
    since: datetime


class Note(NamedTuple):
    """One attempt, held from start to end; it goes on if `end` is None."""

    key: str
    attempt: int
    start: datetime
    end: datetime | None
    state: JobState
    """How it ended, or RUNNING."""
    reason: JobFailureStatus | None = None


class Wait(NamedTuple):
    """The time before an attempt; it goes on if `end` is None."""

    key: str
    start: datetime
    end: datetime | None
    reason: str = ""


class History:
    """What happened in a group, oldest first."""

    def __init__(self, moments: Iterable[Moment]) -> None:
        self._moments = sorted(moments, key=lambda moment: moment.at)  # stable: of one instant as they came
        self._times = [moment.at for moment in self._moments]
        self._checkpoints: list[dict[str, Standing]] = []
        states: dict[str, Standing] = {}
        for number, moment in enumerate(self._moments):
            if not number % CHECKPOINT:
                self._checkpoints.append(dict(states))
            states[moment.key] = _standing(moment)
        self._last = states

    def __len__(self) -> int:
        return len(self._moments)

    @property
    def first(self) -> datetime | None:
        """The instant of the first moment."""
        return self._times[0] if self._times else None

    @property
    def last(self) -> datetime | None:
        """The instant of the last moment."""
        return self._times[-1] if self._times else None

    def states_at(self, instant: datetime) -> Mapping[str, Standing]:
        """Where each job stood that was submitted by then."""
        end = bisect_right(self._times, instant)
        if end == len(self._moments):
            return self._last
        base = end // CHECKPOINT
        states = dict(self._checkpoints[base]) if base < len(self._checkpoints) else {}
        for moment in self._moments[base * CHECKPOINT : end]:
            states[moment.key] = _standing(moment)
        return states

    def counts(self, points: int) -> tuple[list[datetime], dict[JobState, list[int]]]:
        """How many jobs were in which state, at so many instants from the first moment to the last."""
        if not self._times:
            return [], {}
        start, end = self._times[0].timestamp(), self._times[-1].timestamp()
        steps = max(points - 1, 1)
        instants = [start + (end - start) * step / steps for step in range(steps)] + [end]
        counted: dict[JobState, list[int]] = {state: [] for state in JobState}
        current: Counter[JobState] = Counter()
        states: dict[str, JobState] = {}
        at = 0
        for position, instant in enumerate(instants):
            is_last = position == len(instants) - 1
            while at < len(self._moments) and (is_last or self._times[at].timestamp() <= instant):
                moment = self._moments[at]
                if moment.key in states:
                    current[states[moment.key]] -= 1
                states[moment.key] = moment.state
                current[moment.state] += 1
                at += 1
            for state in JobState:
                counted[state].append(current[state])
        return [datetime.fromtimestamp(instant, UTC) for instant in instants], counted

    def notes(self) -> tuple[list[Note], list[Wait]]:
        """Every attempt once, and the time before it; one too short to be seen running has no length."""
        notes: list[Note] = []
        waits: list[Wait] = []
        running: dict[str, tuple[datetime, int]] = {}
        waiting: dict[str, datetime] = {}
        for moment in self._moments:
            key = moment.key
            if moment.state is JobState.RUNNING:
                _end_wait(waits, waiting, key, moment.at)
                running.setdefault(key, (moment.at, moment.attempt))
                continue
            if key in running:
                start, attempt = running.pop(key)
                ended = moment.state if moment.state.finished() else JobState.ERROR  # it is tried again
                notes.append(Note(key, attempt, start, moment.at, ended, moment.reason))
            elif _ended_unseen(moment) and key in waiting:
                _end_wait(waits, waiting, key, moment.at)
                notes.append(Note(key, moment.attempt, moment.at, moment.at, moment.state, moment.reason))
            if moment.state.finished():
                waiting.pop(key, None)
            else:
                waiting.setdefault(key, moment.at)
        notes += [
            Note(key, attempt, start, None, JobState.RUNNING) for key, (start, attempt) in running.items()
        ]
        waits += [Wait(key, start, None) for key, start in waiting.items() if key not in running]
        return notes, waits


def _standing(moment: Moment) -> Standing:
    return Standing(moment.state, moment.attempt, moment.reason, moment.at)


def _ended_unseen(moment: Moment) -> bool:
    """True of an attempt that ended without being seen running; a stranded or reused job had none."""
    return moment.state.finished() and moment.attempt > 0 and moment.reason is not JobFailureStatus.DEPENDENCY


def _end_wait(waits: list[Wait], waiting: dict[str, datetime], key: str, at: datetime) -> None:
    start = waiting.pop(key, None)
    if start is not None and start < at:
        waits.append(Wait(key, start, at))
