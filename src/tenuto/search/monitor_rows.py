"""Searches and candidates in the words of a monitor: groups, rows, results, attempts, instants.
Reads nothing: makes values of rows that were read.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tenuto.jobs.row import Group, Row, row_key
from tenuto.lifecycle.evolution import EvolutionStatus, SearchState
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.search.export import candidate_of, spread_values
from tenuto.search.points import PRUNED

S = EvolutionStatus
STATES: Mapping[EvolutionStatus, tuple[JobState, JobFailureStatus | None]] = {
    S.PENDING: (JobState.WAITING, None),
    S.QUEUED: (JobState.SCHEDULED, None),
    S.RUNNING: (JobState.RUNNING, None),
    S.SUCCEEDED: (JobState.DONE, None),
    S.FAILED: (JobState.ERROR, JobFailureStatus.FAILED),
    S.CANCELLED: (JobState.ERROR, JobFailureStatus.CANCELLED),
}
PREFIX = f"{Door.SEARCH.value}:"
MEANINGS = {
    S.PENDING: "made, and waits to be sent",
    S.QUEUED: "sent; the next worker with a free slot claims it",
    S.RUNNING: "a worker evaluates it",
    S.SUCCEEDED: "evaluated",
    S.FAILED: "it could not be evaluated",
    S.CANCELLED: "a person, or the end of the search, did not want it",
}


def counted_states(statuses: Mapping[EvolutionStatus, int]) -> dict[JobState, int]:
    """How many candidates are in which state of a job."""
    found: dict[JobState, int] = {}
    for status, number in statuses.items():
        state = STATES[status][0]
        found[state] = found.get(state, 0) + number
    return found


def chosen_of(kept: Mapping[str, Any]) -> dict[str, Any]:
    """The plain parameters that a candidate was proposed with, by column."""
    return {name: value for name, value in spread_values(kept).items() if not isinstance(value, dict | list)}


def result_of(kept: Mapping[str, Any]) -> dict[str, Any]:
    """What a candidate is worth, by column."""
    measures = {f"measure {place}": value for place, value in enumerate(kept["measures"] or ())}
    metrics = kept["metrics"] if isinstance(kept["metrics"], dict) else {}
    objectives = {f"objective {place}": value for place, value in enumerate(kept.get("objectives", ()))}
    return {**(objectives or {"objective": kept["objective"]}), **measures, **metrics, "cost": kept["cost"]}


def attempt_of(row: Any) -> dict[str, Any]:
    """The last attempt of a candidate: rows do not keep the others."""
    state, reason = STATES[S(row.status)]
    started, ended = instant_or_none(row.started_at), instant_or_none(row.completed_at)
    return {
        "attempt": row.attempt,
        "started": started.isoformat() if started else None,
        "ended": ended.isoformat() if ended else None,
        "state": state.name.lower(),
        "reason": reason.name.lower() if reason else None,
        "message": row.message,
        "exit_code": None,
        "signal": None,
        "host": row.worker,
        "pid": None,
        "launcher": None,
        "usage": {},
    }


def name_of(key: str) -> str:
    """The search that a group or row names, with the number of a row behind it."""
    return key.removeprefix(PREFIX)


def key_of(name: str, number: int | str) -> str:
    """The key of a candidate's row."""
    return row_key(Door.SEARCH, name, str(number))


def instant(ms: int) -> datetime:
    """An instant of the database's clock."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def instant_or_none(ms: int | None) -> datetime | None:
    """An instant of the database's clock, if there was one."""
    return None if ms is None else instant(ms)


def group_of(row: Any) -> Group:
    """A search."""
    state = SearchState(row.state)
    return Group(
        f"{PREFIX}{row.id}",
        Door.SEARCH,
        row.id,
        state=state.value if row.reason is None else f"{state.value} ({row.reason})",
        live=state is not SearchState.ENDED,
        started=instant(row.created_at),
        ended=instant_or_none(row.ended_at),
        total=row.scheduled,
        message=row.message,
    )


def row_of(row: Any) -> Row:
    """A candidate."""
    state, reason = STATES[S(row.status)]
    if row.failure in JobFailureStatus.__members__:
        reason = JobFailureStatus[row.failure]
    return Row(
        key_of(row.search_id, row.number),
        f"{PREFIX}{row.search_id}",
        Door.SEARCH,
        row.search_id,
        f"{row.search_id}#{row.number}",
        state,
        PRUNED if row.failure == PRUNED else row.status,
        reason if state is JobState.ERROR else None,
        row.message,
        row.attempt,
        owner=f"search/{row.search_id}",
        where=row.worker or "",
        submitted=instant(row.created_at),
        started=instant_or_none(row.started_at),
        ended=instant_or_none(row.completed_at),
        result=result_of(candidate_of(row._mapping)) if state is JobState.DONE else None,
    )
