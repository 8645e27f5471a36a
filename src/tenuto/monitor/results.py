"""Results as a table: one row for each job, columns with a kind and a range.
Pure: results in.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tenuto.jobs.row import Result
from tenuto.lifecycle.owner_names import Door
from tenuto.monitor import shapes

FIXED = ("key", "task", "id", "state")
NUMBER, TEXT = "number", "text"


class Table(NamedTuple):
    """Columns, and the rows that have them."""

    columns: list[shapes.Column]
    rows: list[dict[str, Any]]


def table(results: Iterable[Result], task: str | None = None) -> Table:
    """The results of jobs, of one task if given. A tag that looks like a number is one."""
    chosen = [one for one in results if task is None or one.task == task]
    rows = [_row(one) for one in chosen]
    names = dict.fromkeys(name for row in rows for name in row)
    for name in names:
        if name not in FIXED and _are_numbers([row[name] for row in rows if name in row]):
            for row in rows:
                if name in row:
                    row[name] = _number(row[name])
    columns = [_column(name, [row[name] for row in rows if name in row]) for name in names]
    return Table(columns, [{name: row.get(name) for name in names} for row in rows])


def _row(result: Result) -> dict[str, Any]:
    row: dict[str, Any] = {
        "key": result.key,
        "task": result.task,
        "id": _id(result.key),
        "state": result.state.name.lower(),
    }
    row.update(_named(result.tags, row))
    for name, value in _named(result.values, row):
        row[name] = (
            value if isinstance(value, bool | int | float | str | None) else json.dumps(value, default=str)
        )
    return row


def _id(key: str) -> str:
    """The whole id in a key, as its row has it."""
    door, _, name = key.partition(":")
    task, _, number = name.rpartition("/")
    return number if door == Door.EXPERIMENTS.value else f"{task}#{number}"


def _named(values: Mapping[str, Any], row: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(f"tag.{name}" if name in row else name, value) for name, value in values.items()]


def _number(value: Any) -> float | int | None:
    if isinstance(value, bool | int):
        return int(value)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _are_numbers(values: Sequence[Any]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(_number(value) is not None for value in known)


def _column(name: str, values: Sequence[Any]) -> shapes.Column:
    known = [value for value in values if value is not None]
    if name in FIXED or not known or not all(isinstance(value, int | float) for value in known):
        return {"name": name, "kind": TEXT, "min": None, "max": None}
    return {"name": name, "kind": NUMBER, "min": float(min(known)), "max": float(max(known))}
