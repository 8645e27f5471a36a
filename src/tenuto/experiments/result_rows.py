"""The results of jobs as rows, which pandas and Polars take as they are.
Every row has the same columns, and a column has one type.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tenuto.jobs.result_table import flat_result
from tenuto.lifecycle.states import JobState
from tenuto.tasks.tags import tag_sets

Cells = dict[str, Any]
"""Column -> value."""

_FIXED = ("task", "job", "state")
_RESULT = "result"
_LOOKED_AT = 100
"""How many rows Polars looks at to know the type of a column."""
_NUMBERS = (bool, int, float)


PROVENANCE = ("run", "commit", "dirty", "code", "python", "packages", "diff", "host", "launcher", "seed")
"""What `results(provenance=True)` tells of a job, each in a column."""


class Finished(NamedTuple):
    """A job that has ended, as far as a row shows it."""

    task_id: str
    job_id: str
    state: JobState
    tags: Mapping[str, Any]
    result: Any
    """As plain JSON."""
    provenance: Mapping[str, Any] = {}
    """Its record, for a caller that asked for it."""


def result_rows(jobs: Iterable[Finished]) -> list[Cells]:
    """One row for each finished job: task, id, state, its tags, and its result.

    A job that was asked for under several tags has a row for each.

    A dict that a task returned is spread over columns, as in `result.accuracy`. In a column with numbers of
    several kinds all are of the widest; a list stays one if all of its column are lists of plain values, and
    is JSON in a column of its own otherwise.
    """
    rows = [_row(job, tags, job.result) for job in jobs for tags in tag_sets(job.tags)]
    _set_lists_apart(rows)
    columns = dict.fromkeys(name for row in rows for name in row)
    for name in columns:
        convert = _common([value for row in rows if (value := row.get(name)) is not None])
        for row in rows:
            value = row.get(name)
            row[name] = None if value is None else convert(value)
    return _telling_first([{name: row[name] for name in columns} for row in rows], list(columns))


def _row(job: Finished, tags: Mapping[str, Any], result: Any) -> Cells:
    row: Cells = dict(zip(_FIXED, (job.task_id, job.job_id, job.state.name), strict=True))
    for name, value in tags.items():
        row[f"tag.{name}" if name in (*_FIXED, _RESULT) or name.startswith("result.") else name] = value
    row |= {f"provenance.{name}": job.provenance[name] for name in PROVENANCE if name in job.provenance}
    row[_RESULT] = None
    row.update({name: _flat(value) for name, value in flat_result(result).items()})
    return row


def _flat(value: Any) -> Any:
    """A scalar or a list as it is; a value nested deeper becomes JSON."""
    if isinstance(value, list | tuple):
        return list(value)
    return json.dumps(value) if isinstance(value, dict) else value


def _set_lists_apart(rows: Sequence[Cells]) -> None:
    for name in {name for row in rows for name, value in row.items() if isinstance(value, list)}:
        if not _are_alike([value for row in rows if (value := row.get(name)) is not None]):
            for row in rows:
                if isinstance(row.get(name), list):
                    row[f"{name}.json"], row[name] = json.dumps(row[name]), None


def _are_alike(values: Sequence[Any]) -> bool:
    """Whether all are lists of plain values of one kind."""
    if not all(isinstance(value, list) for value in values):
        return False
    kinds = {type(item) for value in values for item in value if item is not None}
    return kinds <= set(_NUMBERS) or kinds <= {str}


def _common(values: Sequence[Any]) -> Any:
    """The function that gives all values of a column one type."""
    kinds = {type(value) for value in values}
    if list in kinds:
        number = _common([item for value in values for item in value if item is not None])
        return lambda value: [None if item is None else number(item) for item in value]
    if len(kinds) <= 1:
        return lambda value: value
    if kinds <= set(_NUMBERS):
        return float if float in kinds else int
    return lambda value: value if isinstance(value, str) else json.dumps(value)


def _telling_first(rows: list[Cells], columns: Sequence[str]) -> list[Cells]:
    """The rows in their order, but for the rows that alone show what a late column holds."""
    first = {
        next((number for number, row in enumerate(rows) if row[name] is not None), 0) for name in columns
    }
    late = sorted(number for number in first if number >= _LOOKED_AT - len(columns))
    return [rows[number] for number in late] + [row for number, row in enumerate(rows) if number not in late]
