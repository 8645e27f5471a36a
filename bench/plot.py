"""Owns the plots: cost of one job against the number of jobs, both axes logarithmic, as SVG.
Written by hand, so that no plotting library is needed; it reads in light and in dark surroundings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from bench.rows import OURS, Row

WIDTH, HEIGHT = 860, 480
LEFT, RIGHT, TOP, BOTTOM = 64, 230, 44, 48
LABEL_GAP = 15
PEERS = (
    "#7f7f7f",
    "#8c564b",
    "#9467bd",
    "#bcbd22",
    "#17a2b8",
    "#e377c2",
    "#637939",
    "#a55194",
    "#b8860b",
    "#6b6ecf",
)
OWN = ("#d62728", "#ff7f0e", "#1f77b4", "#2ca02c", "#000080")


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a plot: (number of jobs, cost of one in references), by number."""

    label: str
    ours: bool
    points: tuple[tuple[int, float], ...]


def series_of(rows: Sequence[Row], workload: str) -> list[Series]:
    """The lines of a workload: ours by case, a peer's by its name."""
    found: dict[tuple[str, bool], list[tuple[int, float]]] = {}
    for row in rows:
        if row.workload == workload and row.x_wall is not None and row.x_wall > 0:
            ours = row.system == OURS
            label = f"{OURS}: {row.case}" if ours else row.system
            found.setdefault((label, ours), []).append((row.size, row.x_wall))
    return [Series(label, ours, tuple(sorted(points))) for (label, ours), points in found.items()]


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps values to pixels, logarithmically."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        share = (math.log10(value) - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Powers of ten; twice and five times those, too, where there are few of them."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        steps = (1, 2, 5) if self.high / self.low < 1_000 else (1,)
        marks = [step * 10.0**power for power in powers for step in steps]
        return [mark for mark in marks if self.low * 0.999 <= mark <= self.high * 1.001]


def axis(values: Sequence[float], start: float, end: float) -> Axis:
    """From a little below the smallest to a little above the largest, at least one decade apart."""
    low, high = min(values) / 1.4, max(values) * 1.4
    if high / low < 10:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(10), middle * math.sqrt(10)
    return Axis(low, high, start, end)


def spread_out(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places for labels, near those wanted, in their order, at least a gap apart, within bounds."""
    placed: list[float] = []
    for want in wanted:
        placed.append(max(want, placed[-1] + gap if placed else low))
    over = placed[-1] - high if placed else 0
    if over > 0:
        limit = high
        for index in range(len(placed) - 1, -1, -1):
            placed[index] = min(placed[index], limit)
            limit = placed[index] - gap
    return placed


def svg(rows: Sequence[Row], workload: str, title: str) -> str | None:
    """The plot; None if there is nothing to draw."""
    lines = series_of(rows, workload)
    if not lines:
        return None
    x = axis([size for line in lines for size, _ in line.points], LEFT, WIDTH - RIGHT)
    y = axis([1.0, *(cost for line in lines for _, cost in line.points)], HEIGHT - BOTTOM, TOP)
    parts = [*_frame(x, y, title)]
    colours = _colours(lines)
    ends = sorted(lines, key=lambda line: y.at(line.points[-1][1]))
    places = spread_out([y.at(line.points[-1][1]) for line in ends], LABEL_GAP, TOP, HEIGHT - BOTTOM)
    for line, place in zip(ends, places, strict=True):
        parts += _line(line, colours[line.label], x, y, place)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _colours(lines: Sequence[Series]) -> dict[str, str]:
    counts = {True: 0, False: 0}
    found = {}
    for line in lines:
        palette = OWN if line.ours else PEERS
        found[line.label] = palette[counts[line.ours] % len(palette)]
        counts[line.ours] += 1
    return found


def _frame(x: Axis, y: Axis, title: str) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
            f'height="{HEIGHT}" font-family="sans-serif" font-size="12">'
        ),
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="24" font-size="15" fill="#222">{escape(title)}</text>',
    ]
    for value in x.ticks():
        at = x.at(value)
        parts.append(f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{bottom}" stroke="#e0e0e0"/>')
        parts.append(_text(at, bottom + 18, f"{value:,.0f}", "middle"))
    for value in y.ticks():
        at = y.at(value)
        parts.append(f'<line x1="{LEFT}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}" stroke="#e0e0e0"/>')
        parts.append(_text(LEFT - 8, at + 4, f"{value:g}", "end"))
    reference = y.at(1.0)
    parts += [
        (
            f'<line x1="{LEFT}" y1="{reference:.1f}" x2="{right}" y2="{reference:.1f}" stroke="#555" '
            'stroke-dasharray="5 4"/>'
        ),
        _text(LEFT + 4, reference - 5, "ref: python -c pass", "start"),
        (
            f'<rect x="{LEFT}" y="{TOP}" width="{right - LEFT}" height="{bottom - TOP}" '
            'fill="none" stroke="#888"/>'
        ),
        _text((LEFT + right) / 2, HEIGHT - 10, "number of jobs", "middle"),
        (
            f'<text transform="translate(16 {(TOP + bottom) / 2:.0f}) rotate(-90)" text-anchor="middle" '
            'fill="#333">cost of one job, x ref (wall)</text>'
        ),
    ]
    return parts


def _line(line: Series, colour: str, x: Axis, y: Axis, place: float) -> list[str]:
    points = [(x.at(size), y.at(cost)) for size, cost in line.points]
    width = 2.6 if line.ours else 1.4
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
    end_x, end_y = points[-1]
    label_x = WIDTH - RIGHT + 12
    weight = "bold" if line.ours else "normal"
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>',
        *(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{width + 1:.1f}" fill="{colour}"/>' for a, b in points),
        (
            f'<line x1="{end_x:.1f}" y1="{end_y:.1f}" x2="{label_x - 3}" y2="{place:.1f}" stroke="{colour}" '
            'stroke-width="0.6" stroke-dasharray="2 2"/>'
        ),
        (
            f'<text x="{label_x}" y="{place + 4:.1f}" fill="{colour}" font-weight="{weight}">'
            f"{escape(line.label)}</text>"
        ),
    ]


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#333">{escape(text)}</text>'
