"""Results of jobs as rows and columns: tags, parameters that vary, and what tasks returned.
Reads only. How a table, a page or a plot shows them is decided there.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tenuto.jobs.key import JobKey
from tenuto.jobs.parameters import Stored, read_stored
from tenuto.jobs.row import Row
from tenuto.launchers.results import readable
from tenuto.lifecycle.states import JobState
from tenuto.tasks.tags import tag_sets
from tenuto.workspace.attempt_files import read_large_result
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.ports import Files

RESULT = "result"
_DEEPEST = 8
_MOST_STORED = 10_000
_MOST_UPSTREAM = 1000
_LESS_IS_BETTER = (
    "loss error err cost rmse mse mae perplexity ppl regret nll wer cer time seconds latency duration".split()
)


class ResultRow(NamedTuple):
    """A job that is done, and its result."""

    job: Row
    parameters: Mapping[str, Any]
    """path -> value, also of the jobs that it used, such as `trained.lr`."""
    result: Any
    """None if the task returned nothing, or nothing that can be read."""
    metrics: Mapping[str, float | None] = {}
    """Column -> value of the metrics that were asked for, such as `loss:min`."""

    @property
    def values(self) -> dict[str, Any]:
        """The result by column: `result`, or `result.accuracy` and its like; before it the metrics."""
        return {**self.metrics, **flat_result(self.result)}

    def get(self, column: str) -> Any:
        """The cell of a column: of metrics or result, else the tag, the parameter, or the task itself."""
        if column in self.metrics or is_result(column):
            return self.values.get(column)
        own = self.job.task if column == "task" else None
        return self.job.tags.get(column, self.parameters.get(column, own))


def is_result(name: str) -> bool:
    """True for the name of a column of results."""
    return name == RESULT or name.startswith(f"{RESULT}.")


def result_of(files: Files, paths: JobPaths, job: Row) -> Any:
    """What a job returned; None if it returned nothing, or nothing that can be read."""
    if not job.has_large_result:
        return job.result
    try:
        return readable(read_large_result(files, paths))
    except (OSError, ValueError):
        return None  # the directory was removed, or the file damaged


def flat_result(result: Any) -> dict[str, Any]:
    """A result by column: a mapping is spread, deeper ones as in `result.test.f1`."""
    return dict(_flattened(RESULT, result, 0)) if result is not None else {}


def _flattened(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value and depth < _DEEPEST:
        for key, item in value.items():
            yield from _flattened(f"{name}.{key}", item, depth + 1)
    else:
        yield name, value


def result_text(result: Any) -> str:
    """A result in one short line, such as `accuracy=0.93 loss=0.21`."""
    if isinstance(result, dict):
        return " ".join(
            f"{name.removeprefix(f'{RESULT}.')}={cell_text(value)}"
            for name, value in flat_result(result).items()
        )
    return cell_text(result)


def cell_text(value: Any) -> str:
    """A value for a person: numbers with six digits, also those in lists, and the rest as `exact_text`."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list) and any(isinstance(one, float) for one in value):
        return (
            f"[{', '.join(cell_text(one) if isinstance(one, float) else exact_text(one) for one in value)}]"
        )
    return exact_text(value)


def exact_text(value: Any) -> str:
    """A value that programs read, or that is compared: every digit, texts as they are, the rest as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False, default=str)


def by_tags(job: Row) -> list[Row]:
    """A row for each set of tags under which a job was asked for."""
    sets = tag_sets(job.tags)
    return [job] if len(sets) == 1 else [job._replace(tags=tags) for tags in sets]


class ResultReader:
    """Reads the parameters of jobs of one workspace; a job that many others used is read once."""

    def __init__(self, files: Files, layout: Layout) -> None:
        self._files = files
        self._layout = layout
        self._stored: dict[JobKey, Stored] = {}

    def parameters(self, key: JobKey) -> dict[str, Any]:
        """The parameters of a job; a parameter that names a job has that job's parameters below it."""
        found: dict[str, Any] = {}
        waiting: list[tuple[str, JobKey, int]] = [("", key, 0)]
        while waiting and len(found) < _MOST_UPSTREAM:
            prefix, one, depth = waiting.pop(0)
            stored = self._read(one)
            for path, value in stored.parameters.items():
                found[f"{prefix}{path}"] = value
            if depth < _DEEPEST:
                waiting += [(f"{prefix}{path}.", other, depth + 1) for path, other in stored.upstream.items()]
        return found

    def _read(self, key: JobKey) -> Stored:
        if key not in self._stored:
            if len(self._stored) >= _MOST_STORED:
                self._stored.clear()
            self._stored[key] = read_stored(self._files, self._layout.job(*key))
        return self._stored[key]


# -- columns -----------------------------------------------------------------------------------------


def result_columns(rows: Sequence[ResultRow]) -> list[str]:
    """The columns of the results, numbers first."""
    names = dict.fromkeys(name for row in rows for name in row.values)
    return sorted(names, key=lambda name: not any(number(row.values.get(name)) is not None for row in rows))


def tag_columns(rows: Sequence[ResultRow]) -> list[str]:
    """The tags, in the order they come."""
    return list(dict.fromkeys(name for row in rows for name in row.job.tags))


def varying_parameters(rows: Sequence[ResultRow]) -> list[str]:
    """Returns the parameters that tell jobs of a task apart, unless a tag or another path says them already.

    A parameter that holds a config or a job varies if something in it does, so it is not named itself.
    """
    found: dict[str, tuple[Any, ...]] = {}
    tags = tag_columns(rows)
    said = {tuple(_text(row.job.tags.get(tag)) for row in rows) for tag in tags}
    for name in dict.fromkeys(name for row in rows for name in row.parameters):
        values = tuple(_text(row.parameters.get(name)) for row in rows)
        is_inner = any(other.startswith((f"{name}.", f"{name}[")) for row in rows for other in row.parameters)
        if is_inner or name in tags or values in said or not _varies(rows, name):
            continue
        said.add(values)
        found[name] = values
    return list(found)


def _varies(rows: Sequence[ResultRow], name: str) -> bool:
    by_task: dict[str, set[str | None]] = {}
    for row in rows:
        if name in row.parameters:
            by_task.setdefault(row.job.task, set()).add(_text(row.parameters[name]))
    return any(len(values) > 1 for values in by_task.values())


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) else json.dumps(value, sort_keys=True, default=str)


# -- order -------------------------------------------------------------------------------------------


def number(value: Any) -> float | None:
    """A value as a number, also one in the text of a tag; None for other values."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def less_is_better(column: str) -> bool:
    """True for a column whose name says so, such as `result.val_loss` or `loss:min`."""
    return any(word in _LESS_IS_BETTER for word in re.split("[^a-z0-9]", column.lower()))


def best_column(rows: Sequence[ResultRow]) -> str | None:
    """The column by which jobs are compared by default: the first number of the results."""
    for name in result_columns(rows):
        if any(number(row.values.get(name)) is not None for row in rows):
            return name
    return None


def sorted_rows(rows: Sequence[ResultRow], column: str, *, largest_first: bool) -> list[ResultRow]:
    """The rows by a column: numbers by size, then texts; rows without a value last."""

    def key(row: ResultRow) -> tuple[int, float, str]:
        value = row.get(column)
        size = number(value)
        return (0, size, "") if size is not None else (1, 0.0, cell_text(value))

    known = [row for row in rows if row.get(column) is not None]
    known.sort(key=key, reverse=largest_first)
    if largest_first:  # numbers stay before texts
        known.sort(key=lambda row: key(row)[0])
    return known + [row for row in rows if row.get(column) is None]


# -- rows that pandas and Polars take as they are --------------------------------------------------------


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
    """Its sources, where they are asked for."""


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
    """A scalar or a list as it is; deeper values become JSON."""
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
    """The rows in their order, but for rows that alone show a late column."""
    first = {
        next((number for number, row in enumerate(rows) if row[name] is not None), 0) for name in columns
    }
    late = sorted(number for number in first if number >= _LOOKED_AT - len(columns))
    return [rows[number] for number in late] + [row for number, row in enumerate(rows) if number not in late]
