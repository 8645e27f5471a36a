"""The score: attempts as notes on lines, the waits before them; too many of them as counts over time.
Pure: notes in, numbers out, in milliseconds.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
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
    joins: list[list[Any]]
    bins: list[list[Any]]


def milliseconds(instant: datetime) -> int:
    """An instant in milliseconds since 1970."""
    return round(instant.timestamp() * 1000)


def instant_of(number: float) -> datetime:
    """The instant of so many milliseconds since 1970."""
    return datetime.fromtimestamp(number / 1000, UTC)


def packed(notes: Iterable[Note], now: datetime) -> list[Placed]:
    """Each note on the lowest line that is free when it begins; on one line none overlap.

    An attempt goes on the line of the attempt before it where that is free.
    """
    placed: list[Placed] = []
    busy: list[tuple[datetime, int]] = []
    free: list[int] = []
    last: dict[str, int] = {}
    lines = 0
    for note in sorted(notes, key=lambda note: (note.start, note.key, note.attempt)):
        while busy and busy[0][0] <= note.start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        line = last.get(note.key, -1)
        if line in free:
            free.remove(line)
            heapq.heapify(free)
        elif free:
            line = heapq.heappop(free)
        else:
            line, lines = lines, lines + 1
        last[note.key] = line
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
        return Staff(0, [], [], [], bins(in_sight, start, end, now, width))
    placed = packed(in_sight, now)
    lines_of: dict[str, list[tuple[datetime, int]]] = {}
    for line, note in placed:
        lines_of.setdefault(note.key, []).append((note.start, line))
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
            _line_after(lines_of.get(wait.key, ()), wait.start, lines),
            milliseconds(wait.start),
            milliseconds(wait.end or now),
            wait.reason,
            wait.key,
        ]
        for wait in waits
        if wait.start <= end and (wait.end or now) >= start
    ]
    return Staff(lines, bars, drawn[:MOST_BARS], joins(placed, now), [])


def _line_after(placed: Sequence[tuple[datetime, int]], start: datetime, others: int) -> int:
    """The line of the note that ends a wait: the next note of the job, else its last one."""
    if not placed:
        return others
    return placed[min(bisect_left(placed, (start, -1)), len(placed) - 1)][1]


def joins(placed: Iterable[Placed], now: datetime) -> list[list[Any]]:
    """From each attempt to the next one of its job: line and end of the one, line and start of the other."""
    before: dict[str, Placed] = {}
    found: list[list[Any]] = []
    for one in sorted(placed, key=lambda one: (one.note.attempt, one.note.start)):
        key = one.note.key
        if (first := before.get(key)) is not None:
            end = milliseconds(first.note.end or now)
            found.append([first.line, end, one.line, milliseconds(one.note.start), key])
        before[key] = one
    return found


def held_over(
    notes: Iterable[Note],
    amounts: Mapping[str, Mapping[str, int]],
    start: datetime,
    end: datetime,
    now: datetime,
    width: int,
) -> dict[str, list[list[int]]]:
    """How many units of each token were held from when to when; `amounts`: key -> units of each token.

    Times without a held unit are left out. Of too many steps the highest of each part of the time is given.
    """
    first, last = milliseconds(start), milliseconds(end)
    changes: dict[str, Counter[int]] = {}
    for note in notes:
        begun, ended = max(milliseconds(note.start), first), min(milliseconds(note.end or now), last)
        if begun >= ended:
            continue
        for token, amount in amounts.get(note.key, {}).items():
            of_token = changes.setdefault(token, Counter())
            of_token[begun] += amount
            of_token[ended] -= amount
    return {token: _steps(of_token, first, last, width) for token, of_token in changes.items()}


def _steps(changes: Mapping[int, int], first: int, last: int, width: int) -> list[list[int]]:
    instants = sorted(instant for instant, change in changes.items() if change)
    steps: list[list[int]] = []
    held = 0
    for begun, ended in pairwise(instants):
        held += changes[begun]
        if held:
            steps.append([begun, ended, held])
    if len(steps) <= MOST_BARS:
        return steps
    size = max((last - first) / max(width, 1), 1.0)
    highest: Counter[int] = Counter()
    for begun, ended, held in steps:
        for part in range(int((begun - first) / size), int((ended - 1 - first) / size) + 1):
            highest[part] = max(highest[part], held)
    return [
        [round(first + size * part), round(first + size * (part + 1)), held]
        for part, held in sorted(highest.items())
    ]


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
