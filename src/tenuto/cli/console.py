"""How commands talk: tables that fit the window, plain JSON, colours only where a terminal is; the user.
The one place that imports Rich, when it is first asked for; tables do without it, since it is slow to load.
"""

from __future__ import annotations

import csv
import getpass
import io
import json
import math
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from tenuto.experiments.display import is_agent
from tenuto.jobs.drawing import Cell, Column, Styled, table_lines
from tenuto.jobs.text import duration, safe_lines
from tenuto.lifecycle.states import JobState
from tenuto.settings import process_environment


def is_terminal() -> bool:
    """Whether a person reads the output as it is written: a coding agent may have a terminal, too."""
    return sys.stdout.isatty() and not is_agent(process_environment())


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


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Rows as lines of CSV."""
    written = io.StringIO()
    csv.writer(written).writerows(rows)
    return written.getvalue()


def print_json(value: Any, indent: int | None = 1) -> None:
    """The output for programs. ASCII only, so that nothing in it can act on a terminal."""
    click.echo(json_text(value, indent))


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON for every reader, which has no NaN and no infinity: they are spelled, as in a file of metrics."""
    try:
        return json.dumps(value, indent=indent, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(_spelled(value), indent=indent, default=str)


def _spelled(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, Mapping):
        return {key: _spelled(item) for key, item in value.items()}
    return [_spelled(item) for item in value] if isinstance(value, list | tuple) else value


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


def person() -> str:
    """The name of the user; a container without names knows a number only."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"
