"""Adds a candidate to a stored search without its script: the task is built as another candidate has it.
Imports the module of the task, as a job would.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from sqlalchemy import select

from tenuto.errors import SearchError
from tenuto.search.candidates import Candidates, add_given, refused, with_outcome
from tenuto.search.commits import EvolveCommit
from tenuto.search.export import COLUMNS
from tenuto.search.outcome import directions_in
from tenuto.search.programs import Programs, Repository
from tenuto.search.rows import Caps, NewCandidate, Refusal, SearchRow
from tenuto.search.spaces import IS, Choice, Dimension, Integer, Numeric, Real, Space, Sub
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
    template = _template(store, search)
    if isinstance(template, EvolveCommit):
        candidates = _programs(search, layout, template)
    else:
        candidates = _candidates(search, layout, template, _space(search))
    new = candidates.make(candidates.given(values, getattr(template, "root", None)), 0, search.told, priority)
    return add_given(store, search.id, new, _caps(search))[0]


def add_table(
    store: Store, search: SearchRow, layout: Layout, rows: Iterable[Mapping[Any, Any]], priority: int
) -> tuple[int, int, int]:
    """Adds the rows of a table, whose columns are parameters and what a task would return.

    A row with an objective is told with it, another one is evaluated; what the search has already is skipped,
    and so are rows of an export that did not succeed. Returns how many came with an outcome, how many are to
    be evaluated, and how many were skipped. Raises `SearchError`, with the line, or `CapReached`, and then
    nothing is added.
    """
    template = _template(store, search)
    space = _space(search)
    candidates = _candidates(search, layout, template, space)
    made: list[NewCandidate] = []
    skipped = 0
    for line, row in enumerate(rows, 2):
        is_parameter = "status" in space.dimensions and "values.status" not in row
        if not is_parameter and row.get("status", "SUCCEEDED") != "SUCCEEDED":
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
    known = store.identities(search.id)
    new_ones = {(new.task_id, new.job_id): new for new in reversed(made)}
    missing = [new for key, new in reversed(new_ones.items()) if key not in known]
    refusal = store.add_all(search.id, missing, _caps(search))
    if isinstance(refusal, Refusal):
        raise refused(search.id, refusal, _caps(search))
    told = sum(new.outcome is not None for new in missing)
    return told, len(missing) - told, skipped + len(made) - len(missing)


def _split(space: Space, row: Mapping[Any, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and the outcome in a row of a table; empty cells are left out."""
    cells = {key: text for key, text in row.items() if text is not None}
    values = _taken("", space.dimensions, cells)
    left = {key: _cell(text) for key, text in cells.items() if key not in _EXPORTED and text != ""}
    outcome: dict[str, Any] = {"metrics": {}}
    for key, value in left.items():
        kind, sign, name = key.partition(".")
        if sign and kind in ("measures", "metrics"):  # as an export calls one whose name is taken
            outcome["metrics"][name] = value
        elif key.startswith("measure "):
            outcome.setdefault("measures", []).append(value)
        else:
            outcome[key] = value
    return values, outcome


def _taken(prefix: str, dimensions: Mapping[str, Dimension], cells: dict[str, str]) -> dict[str, Any]:
    """The parameters among the cells, which are taken out."""
    values: dict[str, Any] = {}
    for name, dimension in dimensions.items():
        column = f"values.{name}" if not prefix and f"values.{name}" in cells else f"{prefix}{name}"
        entries = [f"{column}[{at}]" for at in range(dimension.size)]
        if isinstance(dimension, Numeric) and column not in cells and all(one in cells for one in entries):
            values[name] = dimension.nested([_cell(cells.pop(one)) for one in entries])
        elif isinstance(dimension, Numeric) and cells.get(column):
            values[name] = _cell(cells.pop(column))
        elif isinstance(dimension, Choice) and (column in cells):
            text = cells.pop(column)
            options = {"" if option is None else str(option): option for option in dimension.options}
            values[name] = options.get(text, _cell(text))
            chosen = dimension.subs.get(text)
            if chosen is not None:
                values[name] = {IS: chosen.name, **_taken(f"{column}.", chosen.dimensions, cells)}
    return values


def _cell(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


_EXPORTED = frozenset(COLUMNS) - {"objective", "measures", "metrics"}


def _caps(search: SearchRow) -> Caps:
    return Caps(max_total=search.definition.get("max_total"))


def _candidates(search: SearchRow, layout: Layout, template: Any, space: Space) -> Candidates:
    candidates = Candidates(template, space, layout)
    candidates.belong_to(search)
    return candidates


def _programs(search: SearchRow, layout: Layout, template: EvolveCommit) -> Candidates:
    """What makes candidates of commits, as the search has them."""
    declared = search.definition["space"]
    repository = Repository(
        template.repository,
        agent=declared.get("agents") or [declared["agent"]],
        evaluate=template.evaluate,
        protect=template.protect,
        thresholds=template.thresholds,
        agent_s=template.agent_s,
        evaluate_s=template.evaluate_s,
        confine="auto" if template.confined else "none",
        pass_variables=template.pass_variables.split(),
        agent_home=template.agent_home,
    )
    maximize = directions_in(search.definition)[0]
    candidates = Candidates(repository, Programs(repository), layout, search=search.id, maximize=maximize)
    candidates.belong_to(search)
    candidates.evaluators = search.definition["evaluators"]
    return candidates


def _space(search: SearchRow) -> Space:
    space = search.definition["space"]
    if "evaluate" in space:
        raise SearchError(f"{search.id} varies programs: add one commit at a time, with -c commit=NAME")
    if not all(isinstance(kept, dict) for kept in space.values()):
        raise SearchError(f"{search.id} varies objects: add to it from Python, with Evolution.enqueue")
    return Space(_dimensions(space))


def _dimensions(space: Mapping[str, Any]) -> dict[str, Dimension]:
    found: dict[str, Dimension] = {}
    for name, kept in space.items():
        if kept["kind"] == "choice":
            options = [
                Sub(_class(one[IS]), **_dimensions(one["space"])) if isinstance(one, dict) else one
                for one in kept["options"]
            ]
            found[name] = Choice(options)
        else:
            kind = Integer if kept["kind"] == "integer" else Real
            found[name] = kind(kept["low"], kept["high"], shape=tuple(kept["shape"]) or None, log=kept["log"])
    return found


def _class(name: str) -> Any:
    """The class of that id, whose module the task's own path leads to."""
    module, _, kind = name.rpartition(".")
    try:
        return getattr(import_module(module), kind)
    except (ImportError, AttributeError, ValueError):
        raise SearchError(f"{name} cannot be imported: add from Python, with Evolution.enqueue") from None


def _template(store: Store, search: SearchRow) -> Any:
    query = select(jobs.params).where(jobs.search_id == search.id).order_by(jobs.number).limit(1)
    params = store.database.read(lambda c: c.execute(query).scalar())
    if params is None:
        raise SearchError(f"{search.id} has no candidate yet: run it first, or use Evolution.enqueue")
    document = loads(params.encode("ascii"), f"the parameters of {search.id}")
    sys.path += [path for path in document.get("import_path", []) if path not in sys.path]
    return from_state_dict(document)
