"""Adds a candidate to a stored search without its script: the task is built as another candidate has it.
Imports the module of the task, as a job would.
"""

from __future__ import annotations

import sys
from typing import Any

from sqlalchemy import select

from tenuto.errors import CapReached, SearchError
from tenuto.search.candidates import Candidates, salt_of
from tenuto.search.rows import Added, Caps, Refusal, SearchRow
from tenuto.search.spaces import Choice, Dimension, Integer, Real, Space
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
    space = _space(search)
    candidates = Candidates(_template(store, search), space, layout)
    candidates.salt = salt_of(search)
    new = candidates.make(candidates.given(values), 0, search.told, priority)
    caps = Caps(max_total=search.definition.get("max_total"))
    result = store.add(search.id, new, caps, is_ordered=False)
    if isinstance(result, Added):
        return result.number
    if result is Refusal.TOTAL:
        raise CapReached(f"{search.id} has all {caps.max_total} candidates it may have: raise max_total_jobs")
    raise SearchError(f"{search.id}: {result.value}")


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
