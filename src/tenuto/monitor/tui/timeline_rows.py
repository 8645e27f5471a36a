"""The timeline as lines of cells: a bar for each attempt, waits dashed, many bars as density.
Pure: an answer of the provider in, lines and the places of bars out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from tenuto.jobs.drawing import HEIGHTS
from tenuto.jobs.text import safe, truncate, width
from tenuto.monitor import shapes
from tenuto.monitor.tui.cells import Line, Span, fitted, joined, shares, span
from tenuto.monitor.tui.text import key_group_name, key_name

LABEL = 15
_LEAST_NAME = 5


class DrawnBar(NamedTuple):
    """An attempt on the timeline."""

    key: str
    attempt: int
    start: int
    end: int
    state: str
    group: str


class _Row(NamedTuple):
    """One line of a group, and the bars on it."""

    content: Line
    bars: tuple[DrawnBar, ...] = ()


class Cells(NamedTuple):
    """A line while it is written: the letter and the style of each cell."""

    letters: list[str]
    styles: list[str]


class GroupRows(NamedTuple):
    """The lines of one group."""

    name: str
    rows: list[_Row]


def bars_of(timeline: shapes.Timeline) -> list[DrawnBar]:
    """Every bar of a timeline: group after group, the earliest first."""
    return [
        DrawnBar(raw[4], raw[5], raw[1], raw[2], raw[3], lane["group"])
        for lane in timeline["lanes"]
        for raw in sorted(lane["bars"], key=lambda raw: (raw[1], raw[0]))
    ]


def group_rows(
    timeline: shapes.Timeline, room: int, chosen: DrawnBar | None, lit: Collection[str], now: str
) -> list[GroupRows]:
    """The lines of each group; the bars right of the names have the cells that `across` leaves."""
    return [
        GroupRows(
            key_group_name(lane["group"], now),
            _rows(lane, timeline, max(across(room), 1), chosen, lit),
        )
        for lane in timeline["lanes"]
    ]


def label_cells(room: int) -> int:
    """The cells of the names of groups."""
    return min(LABEL, room // 3)


def across(room: int) -> int:
    """The cells of the timeline."""
    return max(room - label_cells(room) - 2, 1)


def in_sight(found: Sequence[GroupRows], room: int, height: int, keys: Collection[str]) -> list[Line]:
    """So many lines of all groups: each gets its share, and shows its line with a bar of these keys."""
    given = shares([len(one.rows) for one in found], height)
    lines: list[Line] = []
    for (name, rows), count in zip(found, given, strict=True):
        wanted = [number for number, row in enumerate(rows) if any(bar.key in keys for bar in row.bars)]
        first = min(max(wanted[0] - count // 2, 0), len(rows) - count) if wanted else 0
        for number in range(first, first + count):
            label = span(name, "title") if number == first else Span("")
            if number == first + count - 1 and count > 1 and len(rows) > count:
                label = span(f"  {len(rows) - count} more lines", "soft")
            head = [Span(" "), *fitted([label], label_cells(room)), Span("┤", "soft")]
            lines.append([*head, *rows[number].content])
    return lines


def place(timeline: shapes.Timeline, instant_ms: float, cells: int) -> int:
    """The cell of an instant."""
    share = (instant_ms - timeline["from"]) / max(timeline["to"] - timeline["from"], 1)
    return min(max(int(share * cells), 0), cells - 1)


def _rows(
    lane: shapes.Lane, timeline: shapes.Timeline, cells: int, chosen: DrawnBar | None, lit: Collection[str]
) -> list[_Row]:
    if lane["bins"]:
        return [_Row(_density(lane, timeline, cells))]
    bars: list[list[DrawnBar]] = [[] for _ in range(lane["lines"])]
    waits: list[list[Sequence[Any]]] = [[] for _ in range(lane["lines"])]
    for raw in lane["bars"]:
        bars[raw[0]].append(DrawnBar(raw[4], raw[5], raw[1], raw[2], raw[3], lane["group"]))
    for wait in lane["waits"]:
        if wait[0] < lane["lines"]:
            waits[wait[0]].append(wait)
    drawn = [
        _line(of_line, before, timeline, cells, chosen, lit)
        for of_line, before in zip(bars, waits, strict=True)
    ]
    for join in lane["joins"]:
        _join(drawn, join, timeline, cells)
    rows = [
        _Row(joined(zip(*line, strict=True)), tuple(of_line))
        for line, of_line in zip(drawn, bars, strict=True)
    ]
    others = [wait for wait in lane["waits"] if wait[0] >= lane["lines"]]
    if others:
        rows.append(_Row(_dashes(others, timeline, cells, f" {len(others):,} wait ")))
    return rows or [_Row([Span(" " * cells)])]


def _line(
    bars: Sequence[DrawnBar],
    waits: Sequence[Sequence[Any]],
    timeline: shapes.Timeline,
    cells: int,
    chosen: DrawnBar | None,
    lit: Collection[str],
) -> Cells:
    """One line: the waits first, the bars over them."""
    letters = [" "] * cells
    styles = [""] * cells
    for wait in waits:
        first, last = place(timeline, wait[1], cells), place(timeline, wait[2], cells)
        _write(letters, styles, first, "╌" * (last - first), "soft")
        words = truncate(safe(str(wait[3])), last - first - 2) if wait[3] else ""
        if width(words) == len(words) and len(words) >= _LEAST_NAME:
            _write(letters, styles, first + 1, words, "soft")
    for bar in bars:
        first, last = place(timeline, bar.start, cells), place(timeline, bar.end, cells)
        style = bar.state if not lit or bar.key in lit else "soft"
        if bar == chosen:
            style += " lit"
        size = max(
            last - first + (1 if bar.state == "running" else 0), 1
        )  # the next one begins where it ends
        _write(letters, styles, first, _block(bar, size), style)
        again = f" ({bar.attempt})" if bar.attempt > 1 else ""
        name = truncate(safe(key_name(bar.key) + again), max(size - 4, 0))
        if len(name) >= _LEAST_NAME and width(name) == len(name):
            _write(letters, styles, first + 2, name, style if style == "soft" else f"{style} chosen")
    return Cells(letters, styles)


def _join(drawn: Sequence[Cells], join: Sequence[Any], timeline: shapes.Timeline, cells: int) -> None:
    """A line from one attempt to the next of its job, where nothing else is written."""
    line, next_line = join[0], join[2]
    first, last = place(timeline, join[1], cells), place(timeline, join[3], cells)
    step = 1 if next_line > line else -1
    for between in range(line + step, next_line, step) if line != next_line else ():
        _write_blank(drawn[between], first, "│")
    corner = "─" if line == next_line else "└" if step > 0 else "┌"
    for cell in range(first, last):
        _write_blank(drawn[next_line], cell, corner if cell == first else "─")


def _block(bar: DrawnBar, size: int) -> str:
    """A bar held from start to end."""
    sign = {"running": "▶", "error": "✗"}.get(bar.state, "▌")
    if size <= 1:
        return sign if bar.state == "error" else "▌"
    return "▐" + "█" * (size - 2) + sign


def _dashes(waits: Sequence[Sequence[Any]], timeline: shapes.Timeline, cells: int, text: str) -> Line:
    first = min(place(timeline, wait[1], cells) for wait in waits)
    last = max(place(timeline, wait[2], cells) for wait in waits)
    letters, styles = [" "] * cells, [""] * cells
    _write(letters, styles, first, "╌" * (last - first + 1), "waiting")
    _write(letters, styles, first + 2, truncate(text, max(last - first - 2, 0), ""), "waiting")
    return joined(zip(letters, styles, strict=True))


def _density(lane: shapes.Lane, timeline: shapes.Timeline, cells: int) -> Line:
    counts = [0] * cells
    failed = [0] * cells
    for start, end, by_state in lane["bins"]:
        cell = place(timeline, (start + end) / 2, cells)
        counts[cell] += sum(by_state.values())
        failed[cell] += by_state.get("error", 0)
    most = max(counts, default=0) or 1
    letters = [HEIGHTS[-(-count * 8 // most)] for count in counts]
    return joined((letter, "error" if bad else "done") for letter, bad in zip(letters, failed, strict=True))


def token_row(token: shapes.TokenLane, timeline: shapes.Timeline, cells: int) -> Line:
    """How many units of a token were held, over time: a full block is its capacity."""
    highest = [0] * cells
    for begun, ended, held in token["steps"]:
        for cell in range(place(timeline, begun, cells), place(timeline, ended - 1, cells) + 1):
            highest[cell] = max(highest[cell], held)
    most = token["capacity"] or max(highest, default=0) or 1
    letters = [HEIGHTS[min(-(-held * 8 // most), 8)] for held in highest]
    return joined(
        (letter, "running" if held < most else "waiting")
        for letter, held in zip(letters, highest, strict=True)
    )


def _write_blank(line: Cells, cell: int, letter: str) -> None:
    if line.letters[cell] in " ╌":
        line.letters[cell], line.styles[cell] = letter, "soft"


def _write(letters: list[str], styles: list[str], first: int, text: str, style: str) -> None:
    for offset, letter in enumerate(text):
        if 0 <= first + offset < len(letters):
            letters[first + offset], styles[first + offset] = letter, style
