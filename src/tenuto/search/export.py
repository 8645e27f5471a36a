"""The candidates of a search as plain mappings: for tables, files and other programs.
Reads rows; changes nothing.
"""

from __future__ import annotations

import json
import os.path
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import select

from tenuto.database import Database
from tenuto.jobs.parameters import stored_of
from tenuto.lifecycle.evolution import EvolutionStatus
from tenuto.search.archive import ParetoFront
from tenuto.search.git import Git
from tenuto.search.outcome import directions_in
from tenuto.search.points import PRUNED
from tenuto.search.spaces import IS
from tenuto.search.store import Store
from tenuto.search.tables import evolution_jobs, is_status, jobs, searches
from tenuto.tasks.serialization import FORMAT

_CAUSE = 100
_PLACES = {"island": "island", "cell": "cell", "order": "told"}
_WHERE = {
    "message": "message",
    "task": "task_id",
    "job": "job_id",
    "directory": "directory",
    "worker": "worker",
}
_TIMES = ("created", "scheduled", "started", "completed")


def candidate_rows(store: Store, name: str) -> list[dict[str, Any]]:
    """One mapping for each candidate of a search, by number; times in seconds since 1970."""
    return [candidate_of(row._mapping) for page in store.pages(name) for row in page]


def flat_rows(store: Store, name: str) -> list[dict[str, Any]]:
    """The same with a column for each parameter, metric and measure besides, and the same ones in each row.

    A column whose name another one has already is called ``values.NAME``, ``metrics.NAME`` or
    ``measures.NAME``.
    """
    rows, names = candidate_rows(store, name), measure_names(store.database, name)
    taken = set(COLUMNS)
    columns: dict[tuple[str, str], str] = {}
    parts = [_parts(row, names) for row in rows]
    for kind in _NESTED:
        for found in parts:
            for key in found[kind]:
                if (kind, key) not in columns:
                    columns[kind, key] = column_of(kind, key, taken)
                    taken.add(columns[kind, key])
    return [
        {**row, **{column: found[kind].get(key) for (kind, key), column in columns.items()}}
        for row, found in zip(rows, parts, strict=True)
    ]


_NESTED = ("values", "measures", "metrics", "more")


def _parts(row: dict[str, Any], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The nested values of a candidate by the names of their columns."""
    spread = spread_values(row)
    more = {key: row[key] for key in MORE if key in row}
    return {"values": spread, **_found(row, names), "more": more}


def _found(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The measures and metrics of a candidate; of one name, the measure."""
    metrics = row["metrics"] if isinstance(row["metrics"], dict) else {}
    kept = {key: value for key, value in metrics.items() if key not in names}
    return {"measures": named_measures(row["measures"] or (), names), "metrics": kept}


def column_of(kind: str, key: str, taken: Collection[str]) -> str:
    """The column of a value, whose name another column may have."""
    return key if key not in taken else f"{kind}.{key}"


def minimized(directions: Sequence[bool]) -> tuple[str, ...]:
    """The columns of the objectives of which smaller values are better; of the others, larger ones."""
    names = ["objective"] if len(directions) == 1 else [f"objective {at}" for at in range(len(directions))]
    return tuple(name for name, maximize in zip(names, directions, strict=True) if not maximize)


def result_of(row: Mapping[str, Any], names: Sequence[str] = ()) -> dict[str, Any]:
    """What a candidate is worth, by column; `names`: of the measures of its search."""
    worth = {f"objective {place}": value for place, value in enumerate(row.get("objectives", ()))}
    result = worth or {"objective": row["objective"]}
    for kind, found in _found(row, names).items():
        taken = {*result, "cost"}
        result |= {column_of(kind, key, taken): value for key, value in found.items()}
    return {**result, "cost": row["cost"]}


def measure_names(database: Database, name: str) -> Sequence[str]:
    """The names of the measures of a search; none if it has none."""
    query = select(searches.c.definition).where(searches.c.id == name)
    definition = database.read(lambda c: c.execute(query).scalar_one_or_none())
    return json.loads(definition or "{}").get("measures") or ()


def named_measures(measures: Sequence[float], names: Sequence[str]) -> dict[str, float]:
    """Measures by their names; by their places where the names are not theirs."""
    if len(names) != len(measures):
        names = [f"measure {at}" for at in range(len(measures))]
    return dict(zip(names, measures, strict=True))


def spread_values(row: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a candidate by column; a list has one for each entry."""
    return {
        column: one
        for key, value in parameters_of(row["values"]).items()
        for column, one in _entries(key, value).items()
    }


def parameters_of(values: Any) -> dict[str, Any]:
    """The parameters of a candidate by column; a chosen class has the columns of its parameters."""
    values = values if isinstance(values, dict) else {}
    if values.get("format") == FORMAT:  # a config that a function made
        return dict(stored_of(values).parameters)
    return {column: one for key, value in values.items() for column, one in _inner(key, value)}


def _inner(key: str, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, dict) or IS not in value:
        return [(key, value)]
    named = [pair for name, one in value.items() if name != IS for pair in _inner(f"{key}.{name}", one)]
    return [(key, value[IS]), *named]


def _entries(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, list):
        return {key: value}
    entries: list[Any] = [value]
    while any(isinstance(one, list) for one in entries):
        entries = [part for one in entries for part in (one if isinstance(one, list) else [one])]
    return {f"{key}[{at}]": one for at, one in enumerate(entries)}


COLUMNS = tuple(
    "id number status priority attempt objective measures cost metrics values solution parent inspirations "
    "island cell order reused failure message task job directory worker created scheduled started "
    "completed".split()
)
"""What every candidate has; a test holds `candidate_of` to it."""
MORE = ("objectives", "constraints", "pruned", "repeats", "spread")
"""What a candidate has besides if its outcome has it."""


def best_rows(store: Store, name: str, numbers: Collection[int] | None = None) -> list[dict[str, Any]]:
    """The best candidate of a search, the Pareto front of several objectives, or none.

    `numbers`: of these candidates only.
    """
    search = store.search(name)
    directions = directions_in(search.definition if search is not None else {})
    front = ParetoFront(directions)
    succeeded = [
        row
        for row in candidate_rows(store, name)
        if row["status"] == EvolutionStatus.SUCCEEDED.value
        and row["order"] is not None
        and row["objective"] is not None
        and all(value <= 0 for value in row.get("constraints", ()))
        and (numbers is None or row["number"] in numbers)
    ]
    for row in sorted(succeeded, key=lambda row: row["order"]):
        front.add(row["number"], row, row.get("objectives") or [row["objective"]])
    return [elite.values for elite in front.elites()]


def lineage(store: Store, name: str, number: int) -> list[dict[str, Any]]:
    """A candidate and its ancestors, the first one first; empty if there is none."""
    query = select(evolution_jobs).where(jobs.search_id == name)
    found: list[dict[str, Any]] = []
    following: int | None = number
    while following is not None and all(following != known["number"] for known in found):
        one = query.where(jobs.number == following)
        row = store.database.read(lambda c, q=one: c.execute(q).one_or_none())  # type: ignore[misc]
        if row is None:
            break
        found.append({**candidate_of(row._mapping), "repository": _repository(row.params)})
        following = row.parent
    return found[::-1]


def change_of(before: Mapping[str, Any] | None, row: Mapping[str, Any]) -> str | None:
    """How a program of a lineage differs from the one before it; None without a program, or its files."""
    if before is None or row["repository"] is None or not os.path.isdir(row["repository"]):
        return None
    commits = [before["solution"], row["solution"]]
    if not all(isinstance(one, str) for one in commits):
        return None
    return Git(row["repository"]).ask("diff", "--no-color", "--no-ext-diff", "--no-textconv", *commits)


def _repository(params: str) -> str | None:
    """The repository whose commits a candidate is one of; None for other tasks."""
    document = json.loads(params)
    values = [one.get("values", {}) for one in document.get("objects", []) if isinstance(one, dict)]
    return next((str(one["repository"]) for one in values if "repository" in one), None)


def kept_outcome(store: Store, name: str, number: int) -> dict[str, Any]:
    """What the row of a candidate keeps of its outcome; empty if it did not succeed."""
    is_good = is_status(EvolutionStatus.SUCCEEDED)
    query = select(jobs.outcome).where(jobs.search_id == name, jobs.number == number, is_good)
    outcome = store.database.read(lambda c: c.execute(query).scalar_one_or_none())
    return dict(json.loads(outcome or "{}"))


def artifacts_of(store: Store, name: str, number: int) -> dict[str, str]:
    """What the evaluation of a candidate left besides figures, by name."""
    found = kept_outcome(store, name, number).get("artifacts")
    return {str(key): str(text) for key, text in found.items()} if isinstance(found, dict) else {}


def candidate_of(row: Any) -> dict[str, Any]:
    """A row as a plain mapping."""
    proposal = json.loads(row["proposal"])
    outcome = json.loads(row["outcome"]) if row["outcome"] else {}
    kept = {key: row[key] for key in ("id", "number", "status", "priority", "attempt", "objective")}
    is_told = row["status"] == EvolutionStatus.SUCCEEDED.value or row["failure"] == PRUNED
    if kept["objective"] is None and is_told:
        kept["objective"] = outcome.get("objective")  # of several, not feasible, or the last one of a pruned
    return {
        **kept,
        "measures": outcome.get("measures"),
        "cost": row["cost"],
        "metrics": outcome.get("metrics"),
        "values": proposal["values"],
        "solution": outcome.get("solution"),
        "parent": row["parent"],
        "inspirations": proposal["inspirations"],
        **{name: row[column] for name, column in _PLACES.items()},
        "reused": bool(row["reused"]),
        "failure": None if row["status"] == EvolutionStatus.SUCCEEDED.value else row["failure"],
        **{name: row[column] for name, column in _WHERE.items()},
        **{name: None if row[f"{name}_at"] is None else row[f"{name}_at"] / 1000 for name in _TIMES},
        **{key: outcome[key] for key in MORE if key in outcome},
    }


def failures(store: Store, name: str, newest: int = 50) -> Counter[str]:
    """What the newest failed candidates failed of, by the first line of their messages."""
    query = (
        select(jobs.failure, jobs.message)
        .where(jobs.search_id == name, jobs.status == EvolutionStatus.FAILED.value)
        .order_by(jobs.number.desc())
        .limit(newest)
    )
    rows = store.database.read(lambda c: c.execute(query).all())
    return Counter(_cause(row.failure, row.message) for row in rows)


def _cause(failure: str | None, message: str | None) -> str:
    lines = (message or "").strip().splitlines()
    return _JOB.sub("JOB", lines[-1] if lines else failure or "failed")[:_CAUSE]


_JOB = re.compile(r"/\S*?/jobs/[^\s/]+/[0-9a-f]{64}\b")
"""The directory of a job in a message, another one for each candidate that fails of the same cause."""
