"""Plots of one or two columns, as lines of text for a terminal.
Pure: numbers and labels in, lines out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tenuto.jobs.text import fit, safe, truncate, width

BAR = "█"
POINT = "•"
MANY = "●"
_MOST_BINS = 12
_MOST_LABELS = 30
_ROWS = 16
_LOG_FROM = 50.0
"""From this ratio of the largest to the smallest on, an axis of positive numbers is logarithmic."""


class Point(NamedTuple):
    """One job."""

    x: float
    y: float


def histogram(values: Sequence[float], columns: int) -> list[str]:
    """How many values lie where, a line for each range."""
    low, high = min(values), max(values)
    if low == high:
        return _bars([(f"{low:.4g}", float(len(values)), str(len(values)))], columns)
    bins = min(_MOST_BINS, max(3, math.ceil(math.sqrt(len(values)))))
    step = (high - low) / bins
    counts = [0] * bins
    for value in values:
        counts[min(int((value - low) / step), bins - 1)] += 1
    lines = [
        (f"{low + place * step:.4g} to {low + (place + 1) * step:.4g}", float(count), str(count))
        for place, count in enumerate(counts)
    ]
    return _bars(lines, columns)


def bars(labelled: Sequence[tuple[str, float]], columns: int) -> list[str]:
    """A bar for each label, in the given order."""
    shown = [(safe(label), value, f"{value:.4g}") for label, value in labelled[:_MOST_LABELS]]
    lines = _bars(shown, columns)
    if len(labelled) > len(shown):
        lines.append(f"and {len(labelled) - len(shown)} more")
    return lines


def _bars(lines: Sequence[tuple[str, float, str]], columns: int) -> list[str]:
    label_width = min(max(width(label) for label, _, _ in lines), max(columns // 3, 8))
    text_width = max(len(text) for _, _, text in lines)
    room = max(columns - label_width - text_width - 4, 1)
    least = min(0.0, *(size for _, size, _ in lines))
    span = max(size for _, size, _ in lines) - least or 1.0
    return [
        f"{fit(truncate(label, label_width), label_width)}  "
        f"{BAR * round((size - least) / span * room)} {text}".rstrip()
        for label, size, text in lines
    ]


class _Axis(NamedTuple):
    """Places numbers on cells, evenly or by their logarithms."""

    low: float
    high: float
    is_log: bool

    @classmethod
    def of(cls, values: Sequence[float]) -> _Axis:
        low, high = min(values), max(values)
        return cls(low, high, low > 0 and high / low >= _LOG_FROM)

    def cell(self, value: float, cells: int) -> int:
        if self.low == self.high:
            return (cells - 1) // 2
        if self.is_log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(max(round(share * (cells - 1)), 0), cells - 1)

    @property
    def note(self) -> str:
        return " (log)" if self.is_log else ""


def scatter(points: Sequence[Point], x_name: str, y_name: str, columns: int) -> list[str]:
    """A point for each job, larger where several lie on one place."""
    across, up = _Axis.of([point.x for point in points]), _Axis.of([point.y for point in points])
    top, bottom = f"{up.high:.4g}", f"{up.low:.4g}"
    margin = max(len(top), len(bottom))
    room = max(columns - margin - 3, 8)
    grid = [[" "] * room for _ in range(_ROWS)]
    for point in points:
        row, place = _ROWS - 1 - up.cell(point.y, _ROWS), across.cell(point.x, room)
        grid[row][place] = POINT if grid[row][place] == " " else MANY
    labels = {0: top, _ROWS - 1: bottom}
    lines = [truncate(f"{safe(y_name)}{up.note}", max(columns, 8))]
    lines += [
        f"{labels.get(place, ''):>{margin}} │{''.join(cells)}".rstrip() for place, cells in enumerate(grid)
    ]
    lines.append(f"{'':>{margin}} └{'─' * room}")
    left, right = f"{across.low:.4g}", f"{across.high:.4g}"
    name = truncate(f"{safe(x_name)}{across.note}", max(room - len(left) - len(right) - 2, 1))
    gap = max(room - len(left) - len(right) - width(name), 0)
    before = gap // 2
    lines.append(f"{'':>{margin}}  {left}{' ' * before}{name}{' ' * (gap - before)}{right}")
    return lines
