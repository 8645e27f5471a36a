"""The candidates of a search as plain mappings: for tables, files and other programs.
Reads rows; changes nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from sqlalchemy import select

from tenuto.lifecycle.evolution import EvolutionStatus
from tenuto.search.store import Store
from tenuto.search.tables import evolution_jobs, jobs

_CAUSE = 100
_TIMES = {
    "created": "created_at",
    "scheduled": "scheduled_at",
    "started": "started_at",
    "completed": "completed_at",
}


def candidate_rows(store: Store, name: str) -> list[dict[str, Any]]:
    """One mapping for each candidate of a search, by number; times in seconds since 1970."""
    query = select(evolution_jobs).where(jobs.search_id == name).order_by(jobs.number)
    return store.database.read(lambda c: [candidate_of(row._mapping) for row in c.execute(query)])


def lineage(store: Store, name: str, number: int) -> list[dict[str, Any]]:
    """A candidate and those that it descends from, the first one first; empty if there is none."""
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


def _repository(params: str) -> str | None:
    """The repository whose commits a candidate is one of; None for what is no program."""
    document = json.loads(params)
    values = [one.get("values", {}) for one in document.get("objects", []) if isinstance(one, dict)]
    return next((str(one["repository"]) for one in values if "repository" in one), None)


def artifacts_of(store: Store, name: str, number: int) -> dict[str, str]:
    """What the evaluation of a candidate left besides figures, by name."""
    query = select(jobs.outcome).where(jobs.search_id == name, jobs.number == number)
    outcome = store.database.read(lambda c: c.execute(query).scalar_one_or_none())
    found = json.loads(outcome).get("artifacts") if outcome else None
    return {str(key): str(text) for key, text in found.items()} if isinstance(found, dict) else {}


def candidate_of(row: Any) -> dict[str, Any]:
    """A row as a plain mapping."""
    proposal = json.loads(row["proposal"])
    outcome = json.loads(row["outcome"]) if row["outcome"] else {}
    kept = {key: row[key] for key in ("id", "number", "status", "priority", "attempt", "objective")}
    return {
        **kept,
        "measures": outcome.get("measures"),
        "cost": row["cost"],
        "metrics": outcome.get("metrics"),
        "values": proposal["values"],
        "solution": outcome.get("solution"),
        "parent": row["parent"],
        "inspirations": proposal["inspirations"],
        "island": row["island"],
        "cell": row["cell"],
        "order": row["told"],
        "reused": bool(row["reused"]),
        "failure": row["failure"],
        "message": row["message"],
        "task": row["task_id"],
        "job": row["job_id"],
        "directory": row["directory"],
        "worker": row["worker"],
        **{name: None if row[column] is None else row[column] / 1000 for name, column in _TIMES.items()},
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
    return (lines[-1] if lines else failure or "failed")[:_CAUSE]
