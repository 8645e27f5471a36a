"""Points in braille, with axes: a scatter of two columns, linear or logarithmic.
Pure: numbers in, lines out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tenuto.monitor.tui.cells import Line, Span, fitted, span
from tenuto.monitor.tui.words import number

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
LABEL = 8


class Point(NamedTuple):
    """A point, and what draws it apart."""

    x: float
    y: float
    style: str = ""


class Scale(NamedTuple):
    """The range of an axis."""

    low: float
    high: float
    is_log: bool = False

    def share(self, value: float) -> float:
        """Where a value lies, from 0 to 1."""
        low, high = self.low, self.high
        if self.is_log and low > 0 and value > 0:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return min(max((value - low) / ((high - low) or 1.0), 0.0), 1.0)


def scale(values: Sequence[float], *, is_log: bool = False) -> Scale:
    """The range of values; a logarithm needs all of them above zero."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    return Scale(low, high, is_log and low > 0)


def scatter(points: Sequence[Point], across: Scale, up: Scale, room: int, height: int) -> list[Line]:
    """Points in so many cells, with numbers at the ends of the axes."""
    wide, tall = room - LABEL - 2, height - 2
    if wide < 4 or tall < 1:
        return []
    bits = [[0] * wide for _ in range(tall)]
    styles = [[""] * wide for _ in range(tall)]
    for point in points:
        x = min(int(across.share(point.x) * (wide * 2 - 1) + 0.5), wide * 2 - 1)
        y = min(int((1 - up.share(point.y)) * (tall * 4 - 1) + 0.5), tall * 4 - 1)
        bits[y // 4][x // 2] |= _DOTS[x % 2][y % 4]
        if point.style or not styles[y // 4][x // 2]:
            styles[y // 4][x // 2] = point.style or "running"
    lines: list[Line] = []
    for row in range(tall):
        label = number(up.high) if row == 0 else number(up.low) if row == tall - 1 else ""
        cells = [
            Span(chr(0x2800 + dots) if dots else " ", style)
            for dots, style in zip(bits[row], styles[row], strict=True)
        ]
        lines.append([span(f"{label:>{LABEL}} ", "soft"), Span("┤", "soft"), *cells])
    lines.append([Span(" " * (LABEL + 1)), Span("└" + "─" * wide, "soft")])
    low, high = number(across.low), number(across.high)
    lines.append([Span(" " * (LABEL + 2)), span(f"{low}{high:>{max(wide - len(low), 0)}}", "soft")])
    return [fitted(one, room) for one in lines]
