"""A candidate added to a search: three statements, in which caps, order and identity are checked.
Each method is one transaction.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from sqlalchemy import (
    Boolean,
    Connection,
    Integer,
    bindparam,
    case,
    exists,
    func,
    insert,
    literal,
    literal_column,
    select,
    true,
    update,
)

from tenuto.database import Database, now_ms
from tenuto.errors import DefaultChanged
from tenuto.jobs.validity import OTHER_DEFAULTS, other_defaults
from tenuto.lifecycle.evolution import EvolutionStatus, SearchState
from tenuto.search.kept_outcomes import judge_anew
from tenuto.search.moves import record, wake_search
from tenuto.search.rows import Added, Caps, NewCandidate, Refusal
from tenuto.search.tables import UNFINISHED, evolution_jobs, is_status, jobs, searches

S = EvolutionStatus
_OPEN = (SearchState.RUNNING.value, SearchState.PAUSED.value)
GIVEN = "GIVEN"
"""In the column `failure` of a row that SUCCEEDED: a person gave its outcome, so no other search has it."""


class Refused(Exception):
    """The transaction is undone, with what is to be answered instead."""

    def __init__(self, answer: Added | Refusal) -> None:
        super().__init__(str(answer))
        self.answer = answer


class AddStore:
    """What a sampler, or a person, adds to a search."""

    database: Database

    def add(self, name: str, new: NewCandidate, caps: Caps, is_ordered: bool = True) -> Added | Refusal:
        """Adds a candidate, unless a cap or a race forbids it, which is found out in the same transaction.

        `is_ordered`: only if the search stands where the candidate was proposed; otherwise the number is the
        next one, and the cap on unfinished candidates does not count (`enqueue`).
        """

        def work(connection: Connection) -> Added:
            number = _next_number(connection, name, new, caps, is_ordered)
            if number is None:
                raise Refused(_refusal(connection, name, new, caps, is_ordered))
            most = caps.max_unfinished if is_ordered else None
            values = {key: getattr(new, key) for key in _GIVEN} | {"number": number, "search_id": name}
            given = {f"new_{key}": value for key, value in values.items()} | {"most": most}
            row = connection.execute(_insertion(most is not None), given).one_or_none()
            if row is None:
                raise Refused(_known(connection, new) or _clash(connection, name, new))
            status, message = S.PENDING, None
            is_reused = row.outcome is not None or new.outcome is not None
            if new.outcome is not None:
                status, message = _give(connection, new)
            elif is_reused:
                _refuse_other_values(connection, new)
                status, message = _take_over(connection, name, new.id, row.outcome)
            record(connection, name, [(number, 0)], status, message)
            if not is_ordered or is_reused:
                wake_search(connection, name)  # what is new, the scheduler that adds it promotes itself
            return Added(new.id, number, is_reused)

        try:
            return self.database.write(work)
        except Refused as refused:
            return refused.answer

    def identities(self, name: str) -> set[tuple[str, str]]:
        """The task and the job of each candidate of a search."""
        query = select(jobs.task_id, jobs.job_id).where(jobs.search_id == name)
        return self.database.read(lambda c: {(row.task_id, row.job_id) for row in c.execute(query)})

    def number_of(self, name: str, new: NewCandidate) -> int | None:
        """The number of the candidate that has this identity in the search, if there is one."""
        query = select(jobs.number).where(
            jobs.search_id == name, jobs.task_id == new.task_id, jobs.job_id == new.job_id
        )
        return self.database.read(lambda connection: connection.execute(query).scalar_one_or_none())


def _next_number(
    connection: Connection, name: str, new: NewCandidate, caps: Caps, is_ordered: bool
) -> int | None:
    """Takes the next number, which also locks the search's row; None if it may not be taken."""
    given: dict[str, Any] = {"name": name, "most": caps.max_total}
    if is_ordered:
        given |= {"before": new.number - 1, "asked_after": new.asked_after}
    statement = _numbering(is_ordered, caps.max_total is not None)
    number: int | None = connection.execute(statement, given).scalar_one_or_none()
    return number


@cache
def _numbering(is_ordered: bool, is_bounded: bool) -> Any:
    """Counts one more candidate, if the search stands where it was asked for and its cap allows it."""
    statement = update(searches).where(searches.c.id == bindparam("name"))
    if is_ordered:
        statement = statement.where(
            searches.c.state == SearchState.RUNNING.value,
            searches.c.scheduled == bindparam("before"),
            searches.c.told == bindparam("asked_after"),
        )
    else:
        statement = statement.where(searches.c.state.in_(_OPEN))
    if is_bounded:
        statement = statement.where(searches.c.scheduled < bindparam("most"))
    statement = statement.values(scheduled=searches.c.scheduled + 1, changed=searches.c.changed + 1)
    return statement.returning(searches.c.scheduled)


_GIVEN = (
    "id",
    "number",
    "priority",
    "task_id",
    "job_id",
    "params",
    "proposal",
    "asked_after",
    "island",
    "parent",
)


@cache
def _insertion(is_bounded: bool) -> Any:
    """Inserts the row, as SUCCEEDED if its identity did anywhere; nothing if it may not be added.

    A statement of its own after the lock: on PostgreSQL a count beside the lock is as old as the wait for it.
    Built once: SQLAlchemy takes longer to build it than the database to run it.
    """
    new: dict[str, Any] = {
        key: bindparam(f"new_{key}", type_=jobs[key].type) for key in ("search_id", *_GIVEN)
    }
    known = (
        select(jobs.outcome, jobs.objective, jobs.directory, literal_column("1").label("is_known"))
        .where(is_status(S.SUCCEEDED), jobs.task_id == new["task_id"], jobs.job_id == new["job_id"])
        .where(jobs.failure.is_(None))
        .limit(1)
        .subquery("known")
    )
    one = select(literal_column("1").label("one")).subquery("one")
    is_new = known.c.is_known.is_(None)
    columns = new | {
        "created_at": now_ms(),
        "scheduled_at": now_ms(),
        "status": case((is_new, literal_column("'PENDING'")), else_=literal_column("'SUCCEEDED'")),
        "outcome": known.c.outcome,
        "objective": known.c.objective,
        "directory": known.c.directory,
        "cost": case((is_new, None), else_=literal_column("0.0")),
        "reused": case((is_new, literal(False, Boolean)), else_=literal(True, Boolean)),
        "completed_at": case((is_new, None), else_=now_ms()),
    }
    other = evolution_jobs.alias("other")
    is_there = exists().where(
        other.c.search_id == new["search_id"],
        other.c.task_id == new["task_id"],
        other.c.job_id == new["job_id"],
    )
    rows = select(*columns.values()).select_from(one.outerjoin(known, true())).where(~is_there)
    if is_bounded:
        mine = jobs.search_id == new["search_id"]
        count = select(func.count()).select_from(evolution_jobs).where(mine, UNFINISHED)
        rows = rows.where(count.scalar_subquery() < bindparam("most", type_=Integer))
    return insert(evolution_jobs).from_select(list(columns), rows).returning(jobs.outcome)


def _refuse_other_values(connection: Connection, new: NewCandidate) -> None:
    """`DefaultChanged` if the outcome that is taken over was one of other values, at defaults of then."""
    query = (
        select(jobs.params)
        .where(
            is_status(S.SUCCEEDED), jobs.task_id == new.task_id, jobs.job_id == new.job_id, jobs.id != new.id
        )
        .where(jobs.failure.is_(None))
        .limit(1)
    )
    then = connection.execute(query).scalar_one_or_none()
    if then is not None and other_defaults(then, new.params):
        raise DefaultChanged(f"{new.task_id} {new.job_id[:8]} {OTHER_DEFAULTS}")


def _give(connection: Connection, new: NewCandidate) -> tuple[EvolutionStatus, str]:
    """Ends a new row with the outcome that a person gave; the status and why."""
    kept = {"status": S.SUCCEEDED.value, "failure": GIVEN, "outcome": new.outcome, "objective": new.objective}
    ended = {"cost": 0.0, "reused": True, "completed_at": now_ms(), "directory": None}
    connection.execute(update(evolution_jobs).where(jobs.id == new.id).values(kept | ended))
    return S.SUCCEEDED, "given with its outcome"


def _take_over(connection: Connection, name: str, row: str, text: str) -> tuple[EvolutionStatus, str]:
    """Reads the outcome that a new row has of another search as its own search does; the status and why."""
    query = select(searches.c.definition).where(searches.c.id == name)
    found = judge_anew(text, json.loads(connection.execute(query).scalar_one()))
    kept = {"status": found.status.value, "failure": found.failure, "message": found.message}
    connection.execute(
        update(evolution_jobs)
        .where(jobs.id == row)
        .values(outcome=found.outcome, objective=found.objective, **kept)
    )
    return found.status, found.message or "known from before"


def _known(connection: Connection, new: NewCandidate) -> Added | None:
    """The candidate itself, of a commit whose answer was lost."""
    query = select(jobs.number, jobs.reused).where(jobs.id == new.id)
    row = connection.execute(query).one_or_none()
    return None if row is None else Added(new.id, row.number, bool(row.reused))


def _refusal(
    connection: Connection, name: str, new: NewCandidate, caps: Caps, is_ordered: bool
) -> Added | Refusal:
    """Why no number could be taken."""
    known = _known(connection, new)
    if known is not None:
        return known
    query = select(searches.c.state, searches.c.scheduled).where(searches.c.id == name)
    here = connection.execute(query).one()
    if here.state not in (_OPEN[:1] if is_ordered else _OPEN):
        return Refusal.STATE
    if caps.max_total is not None and here.scheduled >= caps.max_total:
        return Refusal.TOTAL
    return Refusal.MOVED


def _clash(connection: Connection, name: str, new: NewCandidate) -> Refusal:
    """Why the row could not be inserted."""
    query = select(func.count()).where(
        jobs.search_id == name, jobs.task_id == new.task_id, jobs.job_id == new.job_id
    )
    return Refusal.DUPLICATE if connection.execute(query).scalar_one() else Refusal.UNFINISHED
