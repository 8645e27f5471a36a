"""The score: attempts as notes on lines, the waits before them; too many of them as counts over time.
Pure: notes in, numbers out, in milliseconds.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tenuto.lifecycle.states import JobState
from tenuto.monitor.history import Note, Wait

MOST_BARS = 2_000
"""Of more notes in sight the score shows how many there are, not each."""


class Placed(NamedTuple):
    """A note, and the line it is written on."""

    line: int
    note: Note


class Staff(NamedTuple):
    """What is drawn of one group."""

    lines: int
    bars: list[list[Any]]
    waits: list[list[Any]]
    bins: list[list[Any]]


def milliseconds(instant: datetime) -> int:
    """An instant in milliseconds since 1970."""
    return round(instant.timestamp() * 1000)


def instant_of(number: float) -> datetime:
    """The instant of so many milliseconds since 1970."""
    return datetime.fromtimestamp(number / 1000, UTC)


def packed(notes: Iterable[Note], now: datetime) -> list[Placed]:
    """Each note on the lowest line that is free when it begins; on one line none overlap."""
    placed: list[Placed] = []
    busy: list[tuple[datetime, int]] = []
    free: list[int] = []
    lines = 0
    for note in sorted(notes, key=lambda note: (note.start, note.key, note.attempt)):
        while busy and busy[0][0] <= note.start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            line = heapq.heappop(free)
        else:
            line, lines = lines, lines + 1
        placed.append(Placed(line, note))
        end = note.end if note.end is not None else max(now, note.start)
        heapq.heappush(busy, (max(end, note.start), line))
    return placed


def staff(
    notes: Sequence[Note], waits: Iterable[Wait], start: datetime, end: datetime, now: datetime, width: int
) -> Staff:
    """What is in sight between two instants: bars and waits, or bins if there are too many."""
    in_sight = [note for note in notes if note.start <= end and (note.end or now) >= start]
    if len(in_sight) > MOST_BARS:
        return Staff(0, [], [], bins(in_sight, start, end, now, width))
    placed = packed(in_sight, now)
    line_of = {note.key: line for line, note in reversed(placed)}
    bars = [
        [
            line,
            milliseconds(note.start),
            milliseconds(note.end or now),
            note.state.name.lower(),
            note.key,
            note.attempt,
        ]
        for line, note in placed
    ]
    lines = max((line for line, _ in placed), default=-1) + 1
    drawn = [
        [
            line_of.get(wait.key, lines),
            milliseconds(wait.start),
            milliseconds(wait.end or now),
            wait.reason,
            wait.key,
        ]
        for wait in waits
        if wait.start <= end and (wait.end or now) >= start
    ]
    return Staff(lines, bars, drawn[:MOST_BARS], [])


def bins(notes: Iterable[Note], start: datetime, end: datetime, now: datetime, width: int) -> list[list[Any]]:
    """How many notes begin in each part of the time; together they are all of them."""
    first, last = milliseconds(start), max(milliseconds(end), milliseconds(start) + 1)
    counts: list[Counter[JobState]] = [Counter() for _ in range(max(width, 1))]
    for note in notes:
        place = (milliseconds(note.start) - first) * len(counts) // (last - first)
        counts[min(max(place, 0), len(counts) - 1)][note.state] += 1
    size = (last - first) / len(counts)
    return [
        [
            round(first + size * place),
            round(first + size * (place + 1)),
            {state.name.lower(): number for state, number in counted.items()},
        ]
        for place, counted in enumerate(counts)
        if counted
    ]
