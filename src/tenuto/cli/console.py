"""How commands talk: tables that fit the window, plain JSON, and colours only where a terminal is.
The one place that imports Rich, when it is first asked for; tables do without it, since it is slow to load.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import click

from tenuto.jobs.text import UNKNOWN, duration, fit, safe, safe_lines, truncate, width
from tenuto.lifecycle.states import JobState
from tenuto.settings import process_environment

GAP = 2
NARROWEST = 3


class Column(NamedTuple):
    """A column of a table."""

    title: str
    right: bool = False
    least: int = 0
    """The cells down to which it may be cut; 0: it is not cut."""
    rank: int = 0
    """In a narrow window the columns of the highest rank are left out first; those of rank 0 stay."""


@dataclass(frozen=True, slots=True)
class Styled:
    """A cell with a colour."""

    text: str
    colour: str | None = None
    bold: bool = False
    dim: bool = False


Cell = str | Styled


def is_terminal() -> bool:
    """Whether a person reads the output as it is written."""
    return sys.stdout.isatty()


def has_colour() -> bool:
    """Whether colours may be used: on a terminal that has them, unless `NO_COLOR` is set."""
    if not is_terminal():
        return False
    variables = process_environment()
    return not variables.get("NO_COLOR") and variables.get("TERM") != "dumb"


def window_width() -> int | None:
    """The cells of a line; None where the output goes to a file or another program, which cut nothing."""
    return max(shutil.get_terminal_size((80, 24)).columns, 1) if is_terminal() else None


def say(text: str) -> None:
    """One line of output."""
    click.echo(text, color=has_colour())


def note(text: str) -> None:
    """A remark for a person, beside the output."""
    click.echo(f"tenuto: {safe_lines(text)}", err=True)


def print_json(value: Any) -> None:
    """The output for programs. ASCII only, so that nothing in it can act on a terminal."""
    click.echo(json.dumps(value, indent=1, ensure_ascii=True, default=str))


def styled(cell: Cell, text: str | None = None) -> str:
    """A cell as text, with its colour where there are colours."""
    if isinstance(cell, str):
        return cell if text is None else text
    shown = cell.text if text is None else text
    if not has_colour() or not (cell.colour or cell.bold or cell.dim):
        return shown
    return click.style(shown, fg=cell.colour, bold=cell.bold or None, dim=cell.dim or None)


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    """Prints rows below a heading, cut to the window. Outside strings are made harmless here."""
    colour = has_colour()
    lines = (
        table_lines(columns, rows, window_width(), styled)
        if colour
        else table_lines(columns, rows, window_width())
    )
    click.echo("\n".join(lines), color=colour)


def _unpainted(_: Cell, text: str) -> str:
    return text


def table_lines(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    room: int | None,
    paint: Callable[[Cell, str], str] = _unpainted,
) -> list[str]:
    """The lines of a table that fits `room` cells."""
    columns = [column._replace(title=safe(column.title)) for column in columns]  # a tag, a key of a result
    texts = [[safe(cell if isinstance(cell, str) else cell.text) for cell in row] for row in rows]
    natural = [
        max([width(column.title), *(width(row[place]) for row in texts)])
        if not column.rank or any(row[place] not in ("", UNKNOWN) for row in texts)
        else 0  # a column that says nothing is left out
        for place, column in enumerate(columns)
    ]
    widths = fitting(columns, natural, room)
    shown = [place for place, cells in enumerate(widths) if cells]

    def line(cells: Sequence[Cell], content: Sequence[str]) -> str:
        painted = []
        for place in shown:
            text = _aligned(content[place], widths[place], columns[place].right, place == shown[-1])
            painted.append(paint(cells[place], text))
        return (" " * GAP).join(painted).rstrip(" ")

    titles = [Styled(column.title, bold=True) for column in columns]
    return [
        line(titles, [column.title for column in columns]),
        *(line(row, content) for row, content in zip(rows, texts, strict=True)),
    ]


def fitting(columns: Sequence[Column], natural: Sequence[int], room: int | None) -> list[int]:
    """The width of each column so that all fit the room; 0 for one that is left out."""
    widths = list(natural)
    if room is None:
        return widths
    while _excess(widths, room) > 0:
        cuttable = [
            place for place, column in enumerate(columns) if column.least and widths[place] > column.least
        ]
        if cuttable:
            widest = max(cuttable, key=lambda place: widths[place])
            others = [widths[place] for place in cuttable if place != widest]
            least = max(columns[widest].least, min(max(others, default=0), widths[widest] - 1))
            widths[widest] = max(least, widths[widest] - _excess(widths, room))
            continue
        last = max(
            range(len(columns)), key=lambda place: (columns[place].rank if widths[place] else 0, place)
        )
        if columns[last].rank and widths[last]:
            widths[last] = 0  # what is left may be wide again
            widths = [natural[place] if cells else 0 for place, cells in enumerate(widths)]
            continue
        widest = max(range(len(columns)), key=lambda place: widths[place])
        if widths[widest] <= NARROWEST:
            break
        widths[widest] -= 1
    return widths


def _excess(widths: Sequence[int], room: int) -> int:
    shown = [cells for cells in widths if cells]
    return sum(shown) + GAP * (len(shown) - 1) - room


def _aligned(text: str, cells: int, right: bool, last: bool) -> str:
    cut = truncate(text, cells)
    if right:
        return " " * (cells - width(cut)) + cut
    return cut if last else fit(cut, cells)


# -- words that several commands use -----------------------------------------------------------------

_COLOURS = {
    JobState.DONE: "green",
    JobState.ERROR: "red",
    JobState.RUNNING: "cyan",
    JobState.SCHEDULED: "cyan",
    JobState.WAITING: "yellow",
    JobState.READY: "yellow",
}


def state_cell(state: JobState) -> Styled:
    """The state of a job in its colour."""
    return Styled(state.name.lower(), _COLOURS.get(state), dim=state is JobState.UNSCHEDULED)


def ago(instant: datetime | None, now: datetime) -> str:
    """How long ago something was."""
    return "–" if instant is None else f"{duration((now - instant).total_seconds())} ago"


def moment(instant: datetime | None) -> str:
    """An instant as the clock on the wall shows it."""
    if instant is None:
        return "–"
    try:
        return instant.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError):  # the year 1, written by another program
        return instant.replace(tzinfo=UTC).isoformat()


def size_text(size: int) -> str:
    """Bytes for people: ``812 B 4.1 KB 3.2 GB``."""
    if size < 1000:
        return f"{size} B"
    amount, units = size / 1000, ["KB", "MB", "GB", "TB", "PB"]
    while amount >= 999.5 and len(units) > 1:
        amount /= 1000
        units.pop(0)
    return f"{amount:.1f} {units[0]}" if amount < 99.95 else f"{amount:.0f} {units[0]}"
