"""The file of a job's metrics: JSON lines of points, read in any order of attempts, thinned to a bound.
Knows the lines only; the payload writes them, and `jobs.metrics` reads them for every face.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from tenuto.workspace.json_bytes import from_json, to_json

MOST_POINTS = 10_000
"""How many points of one name are kept."""
FEWEST_POINTS = 4
"""The first, the last, the smallest and the largest stay, however much is thinned."""
LONGEST_NAME = 200
SYSTEM = "system/"
"""How the names of what runners measure begin: cores, bytes, and parts of 1 of the host."""
_LAST_STEP = (1 << 53) - 1
"""What every reader of JSON keeps exactly."""
_LONG_AGO = 1e12
"""Seconds that no clock shows: such a time is none."""
_SPELLED = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "infinity": math.inf, "-infinity": -math.inf}


class MetricPoint(NamedTuple):
    """One value of a metric."""

    step: int
    time: float | None
    """Seconds since 1970; None of a line that says no time."""
    value: float
    attempt: int = 1


Points = Mapping[str, Sequence[MetricPoint]]
"""name -> points by step."""


class Curves:
    """Puts the lines of a file together, as they come; of a step that comes twice the later point counts."""

    def __init__(self, most: int = 20 * MOST_POINTS) -> None:
        """`most`: points of a name that are remembered while more are read."""
        self._most = most
        self._is_coarse: set[str] = set()
        self.points: dict[str, dict[int, MetricPoint]] = {}
        """name -> step -> point."""
        self.counts: dict[str, int] = {}
        """name -> lines of the file."""
        self.next_steps: dict[str, int] = {}
        self.strange = 0
        """Lines that are no points."""

    def add(self, data: bytes) -> None:
        """Takes in complete lines."""
        lines = [line for line in data.split(b"\n") if line.strip()]
        try:  # one call for all of them: a third of the time of a call for each line
            records = from_json(b"[" + b",".join(lines) + b"]")
        except ValueError:
            records = [_record(line) for line in lines]
        for record in records:
            self._take(record)

    def _take(self, record: Any) -> None:
        if type(record) is not dict:
            self.strange += 1
            return
        name, value, step = record.get("name"), record.get("value"), record.get("step")
        if type(value) is not float:
            value = _value(value)
        if type(name) is not str or not 0 < len(name) <= LONGEST_NAME or value is None:
            self.strange += 1
            return
        if step is None:
            step = self.next_steps.get(name, 0)
        elif type(step) is float and step.is_integer():
            step = int(step)
        if type(step) is not int or not -_LAST_STEP <= step <= _LAST_STEP:
            self.strange += 1
            return
        time, attempt = record.get("time"), record.get("attempt", 1)
        if type(time) is not float or not -_LONG_AGO < time < _LONG_AGO:
            time = _time(time)
        self.next_steps[name] = step + 1
        self.counts[name] = self.counts.get(name, 0) + 1
        points = self.points.get(name)
        if points is None:
            points = self.points[name] = {}
        points[step] = MetricPoint(step, time, value, attempt if type(attempt) is int else 1)
        if len(points) > self._most:
            self._is_coarse.add(name)
            self.points[name] = {point.step: point for point in self.curve(name, self._most // 4)}

    def sorted(self, most: int = MOST_POINTS) -> dict[str, list[MetricPoint]]:
        """name -> its points by step, `most` at most."""
        return {name: self.curve(name, most) for name in self.points}

    def curve(self, name: str, most: int = MOST_POINTS) -> list[MetricPoint]:
        """The points of one name by step, `most` at most."""
        found = self.points.get(name, {})
        points = [found[step] for step in sorted(found)]
        return spaced(points, most) if name in self._is_coarse else thinned(points, most)


def spaced(points: Sequence[MetricPoint], most: int) -> list[MetricPoint]:
    """As `thinned`, of points whose earlier part was thinned before: evenly by their steps."""
    if len(points) <= most:
        return list(points)
    first, last = points[0].step, points[-1].step
    finite = [point for point in points if math.isfinite(point.value)]
    ends = [min(finite, key=lambda one: one.value), max(finite, key=lambda one: one.value)] if finite else []
    room = max(most, FEWEST_POINTS) - 3
    chosen = {(point.step - first) * room // (last - first + 1): point for point in reversed(points)}
    kept = {point.step: point for point in (*chosen.values(), *ends, points[-1])}
    return [kept[step] for step in sorted(kept)]


def thinned(points: Sequence[MetricPoint], most: int) -> list[MetricPoint]:
    """Evenly chosen points, `most` at most; the first, the last, the smallest and the largest stay."""
    count = len(points)
    if count <= most:
        return list(points)
    finite = [number for number, point in enumerate(points) if math.isfinite(point.value)]
    kept = max(most, FEWEST_POINTS) - 2
    chosen = {number * (count - 1) // (kept - 1) for number in range(kept)}
    if finite:
        chosen.add(min(finite, key=lambda number: points[number].value))
        chosen.add(max(finite, key=lambda number: points[number].value))
    return [points[number] for number in sorted(chosen)]


def lines_of(curves: Mapping[str, Iterable[MetricPoint]]) -> bytes:
    """Points as lines of the file."""
    return b"".join(line_of(name, point) for name, points in curves.items() for point in points)


def line_of(name: str, point: MetricPoint) -> bytes:
    """A point as a line; a number that is not finite is spelled, so that every reader of JSON can read it."""
    step, time, value, attempt = point
    said = repr(value) if math.isfinite(value) else f'"{value!r}"'
    when = "null" if time is None else f"{time:.3f}"
    head = f'{{"step":{step},"time":{when},"name":'.encode()
    return head + to_json(name) + f',"value":{said},"attempt":{attempt}}}\n'.encode()


def is_record(line: bytes) -> bool:
    """True if the line is complete, whether or not its end was written."""
    return type(_record(line)) is dict


def _record(line: bytes) -> Any:
    try:
        return from_json(line)
    except ValueError:  # torn by a crash, or not ours
        return None


def _value(given: Any) -> float | None:
    if isinstance(given, bool | int | float):
        try:
            return float(given)
        except OverflowError:
            return math.inf if given > 0 else -math.inf
    return _SPELLED.get(given.strip().lower().lstrip("+")) if isinstance(given, str) else None


def _time(given: Any) -> float | None:
    """Seconds since 1970, of a number or of ISO 8601; another text is unknown."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        return float(given) if abs(given) < _LONG_AGO else None
    try:
        return datetime.fromisoformat(given).timestamp() if isinstance(given, str) else None
    except (ValueError, OverflowError):
        return None
