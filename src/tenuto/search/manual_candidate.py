"""Adds a candidate to a stored search without its script: the task is built as another candidate has it.
Imports the module of the task, as a job would.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import select

from tenuto.errors import SearchError
from tenuto.search.candidates import Candidates, salt_of
from tenuto.search.export import COLUMNS
from tenuto.search.map_elites_sampler import add_given, with_outcome
from tenuto.search.rows import Caps, NewCandidate, SearchRow
from tenuto.search.spaces import Choice, Dimension, Integer, Numeric, Real, Space
from tenuto.search.store import Store
from tenuto.search.tables import jobs
from tenuto.tasks.serialization import loads
from tenuto.tasks.stored_configs import from_state_dict
from tenuto.workspace.layout import Layout


def add_candidate(
    store: Store, search: SearchRow, layout: Layout, values: dict[str, Any], priority: int
) -> int:
    """Adds a candidate with these values; its number.

    Raises `SearchError` for values that do not fit the space, and `CapReached`.
    """
    candidates = _candidates(store, search, layout, _space(search))
    new = candidates.make(candidates.given(values), 0, search.told, priority)
    return add_given(store, search.id, new, _caps(search))[0]


def add_table(
    store: Store, search: SearchRow, layout: Layout, rows: Iterable[Mapping[Any, Any]], priority: int
) -> tuple[int, int, int]:
    """Adds the rows of a table, whose columns are parameters and what a task would return.

    A row with an objective is told with it, another one is evaluated; what the search has already is skipped,
    and so are rows of an export that did not succeed. Returns how many came with an outcome, how many are to
    be evaluated, and how many were skipped. Raises `SearchError`, with the line, before anything is added.
    """
    space = _space(search)
    candidates = _candidates(store, search, layout, space)
    made: list[NewCandidate] = []
    skipped = 0
    for line, row in enumerate(rows, 2):
        if row.get("status", "SUCCEEDED") != "SUCCEEDED":
            skipped += 1
            continue
        if None in row:  # as csv.DictReader has what stands beyond the columns
            raise SearchError(f"line {line} has more cells than the table has columns")
        values, others = _split(space, row)
        try:
            new = candidates.make(candidates.given(values), 0, search.told, priority)
            if others.get("objective", others.get("combined_score")) is not None:
                new = with_outcome(new, others, search.definition)
        except SearchError as error:
            raise SearchError(f"line {line}: {error}") from None
        made.append(new)
    done = [(new, add_given(store, search.id, new, _caps(search), True)[1]) for new in made]
    told = sum(is_new and new.outcome is not None for new, is_new in done)
    asked = sum(is_new and new.outcome is None for new, is_new in done)
    return told, asked, skipped + len(done) - told - asked


def _split(space: Space, row: Mapping[Any, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and the outcome in a row of a table; empty cells are left out."""
    cells = {key: _cell(text) for key, text in row.items() if text not in (None, "")}
    values: dict[str, Any] = {}
    for name, dimension in space.dimensions.items():
        entries = [f"{name}[{at}]" for at in range(dimension.size)]
        if name not in cells and isinstance(dimension, Numeric) and all(one in cells for one in entries):
            values[name] = dimension.nested([cells.pop(one) for one in entries])
        elif name in cells:
            values[name] = cells.pop(name)
    outcome = {key: value for key, value in cells.items() if key not in _EXPORTED}
    outcome.pop("cost", None)  # it was paid elsewhere
    measures = [value for key, value in cells.items() if key.startswith("measure ")]
    if measures:
        outcome = {key: value for key, value in outcome.items() if not key.startswith("measure ")}
        outcome["measures"] = measures
    return values, outcome


def _cell(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


_EXPORTED = frozenset(COLUMNS) - {"objective", "measures", "metrics"}


def _caps(search: SearchRow) -> Caps:
    return Caps(max_total=search.definition.get("max_total"))


def _candidates(store: Store, search: SearchRow, layout: Layout, space: Space) -> Candidates:
    candidates = Candidates(_template(store, search), space, layout)
    candidates.salt = salt_of(search)
    return candidates


def _space(search: SearchRow) -> Space:
    dimensions: dict[str, Dimension] = {}
    for name, kept in search.definition["space"].items():
        if not isinstance(kept, dict):
            raise SearchError(f"{search.id} varies objects: add to it from Python, with Evolution.enqueue")
        if kept["kind"] == "choice":
            dimensions[name] = Choice(kept["options"])
        else:
            kind = Integer if kept["kind"] == "integer" else Real
            dimensions[name] = kind(
                kept["low"], kept["high"], shape=tuple(kept["shape"]) or None, log=kept["log"]
            )
    return Space(dimensions)


def _template(store: Store, search: SearchRow) -> Any:
    query = select(jobs.params).where(jobs.search_id == search.id).order_by(jobs.number).limit(1)
    params = store.database.read(lambda c: c.execute(query).scalar())
    if params is None:
        raise SearchError(f"{search.id} has no candidate yet: run it first, or use Evolution.enqueue")
    document = loads(params.encode("ascii"), f"the parameters of {search.id}")
    sys.path += [path for path in document.get("import_path", []) if path not in sys.path]
    return from_state_dict(document)
