"""The rows of searches inside a transaction: looked at, added, handed out, steered, told.
Begins no transaction; `store` does. What workers do to rows is in `claimed_rows`.

Statements of every candidate are built once: SQLAlchemy takes longer to build one than SQLite to run it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import (
    Boolean,
    Connection,
    Double,
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

from tenuto.database import RowTable, announce, now_ms
from tenuto.errors import DefaultChanged
from tenuto.jobs.validity import OTHER_DEFAULTS, RERUNS, is_of_other_code, other_defaults
from tenuto.lifecycle.evolution import EVOLUTION_TRANSITIONS, EvolutionStatus, SearchEnd, SearchState
from tenuto.search.kept_outcomes import doubted, judge_anew
from tenuto.search.rows import (
    Added,
    CandidateCounts,
    Caps,
    LogRow,
    NewCandidate,
    Refusal,
    SearchRow,
    SearchView,
    Sent,
    Told,
)
from tenuto.search.tables import (
    DISPATCH_ORDER,
    TO_TELL,
    UNFINISHED,
    evolution_jobs,
    evolution_moves,
    is_status,
    jobs,
    searches,
)

S = EvolutionStatus
ROWS = RowTable(
    evolution_jobs,
    EVOLUTION_TRANSITIONS,
    state="status",
    fence="attempt",
    owner="worker",
    moves=evolution_moves,
)

WORK = "tenuto_work"
"""The channel that tells workers that there may be something to claim."""
SEARCH = "tenuto_search"
"""The channel that tells schedulers that a candidate ended, or a search was steered."""
_BUMP = update(searches).where(searches.c.id == bindparam("name")).values(changed=searches.c.changed + 1)


class CandidateMove(NamedTuple):
    """A change of a row's status, as `evolution_moves` keeps it."""

    search_id: str
    number: int
    attempt: int
    status: EvolutionStatus
    message: str | None = None


def record(
    connection: Connection,
    name: str,
    rows: Iterable[Any],
    status: EvolutionStatus,
    message: str | None = None,
) -> None:
    """Writes one line for each row of a search, given as (number, attempt)."""
    record_moves(
        connection, [CandidateMove(name, number, attempt, status, message) for number, attempt in rows]
    )


def record_moves(connection: Connection, moves: Sequence[CandidateMove]) -> None:
    """Writes one line for each move, of any searches."""
    ROWS.record(connection, [{**move._asdict(), "status": move.status.value} for move in moves])


def bump(connection: Connection, name: str, **values: Any) -> None:
    """Says that something of the search changed, together with other columns of its row."""
    connection.execute(_BUMP.values(values) if values else _BUMP, {"name": name})


def wake_search(connection: Connection, name: str) -> None:
    """Wakes the schedulers once the transaction is committed."""
    announce(connection, SEARCH)


def move_rows(
    connection: Connection, name: str, statement: Any, status: EvolutionStatus, message: str | None
) -> int:
    """Executes a change that returns (number, attempt) of rows, and leaves what every change leaves."""
    rows = connection.execute(statement).all()
    if rows:
        record(connection, name, rows, status, message)
        bump(connection, name)
        wake_search(connection, name)
    return len(rows)


def difference(stored: Any, declared: Any, place: str) -> str | None:
    """The first place where two definitions differ, in words."""
    if stored == declared:
        return None
    if isinstance(stored, dict) and isinstance(declared, dict):
        for key in [*stored, *(key for key in declared if key not in stored)]:
            if stored.get(key) != declared.get(key):
                return difference(stored.get(key), declared.get(key), f"{place}.{key}")
    return f"{place} was {json.dumps(stored)}, and is {json.dumps(declared)} now"


def read_search(connection: Connection, name: str) -> SearchRow | None:
    """The search of this name, in a transaction."""
    row = connection.execute(select(searches).where(searches.c.id == name)).one_or_none()
    return None if row is None else _search_row(row)


def best_candidate(connection: Connection, search: SearchRow) -> tuple[int, float] | None:
    """The number and the objective of the best candidate that was told and succeeded; the first of equals."""
    is_max = search.definition.get("direction", "max") == "max"
    order = jobs.objective.desc() if is_max else jobs.objective
    query = (
        select(jobs.number, jobs.objective)
        .where(jobs.search_id == search.id, is_status(S.SUCCEEDED), jobs.objective.is_not(None))
        .where(jobs.told.is_not(None))
        .order_by(order, jobs.told)
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else (row.number, row.objective)


def with_its_best(connection: Connection, search: SearchRow) -> SearchRow:
    """A search whose best candidate failed, as an earlier version stored it, gets the one that did not."""
    if search.best_number is None:
        return search
    query = select(jobs.number).where(jobs.search_id == search.id, jobs.number == search.best_number)
    if connection.execute(query.where(is_status(S.SUCCEEDED))).one_or_none() is not None:
        return search
    locked(connection, search.id)
    number, objective = best_candidate(connection, search) or (None, None)
    best: dict[str, Any] = {"best_number": number, "best_objective": objective}
    connection.execute(update(searches).where(searches.c.id == search.id).values(best))
    return replace(search, **best)


_COLUMNS = len(searches.c)


def _search_row(row: Any) -> SearchRow:
    """A row that begins with the columns of `searches`, whose order is that of `SearchRow`."""
    name, definition, state, reason, *others = row[:_COLUMNS]
    ended = SearchEnd[reason] if reason else None
    return SearchRow(name, json.loads(definition), SearchState(state), ended, *others)


@cache
def _view_query() -> Any:
    """A search and its counts; built once, since that takes longer than to run it."""

    def count(*where: Any) -> Any:
        return (
            select(func.count())
            .select_from(evolution_jobs)
            .where(jobs.search_id == searches.c.id, *where)
            .scalar_subquery()
        )

    return select(
        searches,
        count(is_status(S.PENDING)).label("pending"),
        count(is_status(S.QUEUED)).label("queued"),
        count(UNFINISHED, is_status(S.RUNNING)).label("running"),
        count(TO_TELL).label("to_tell"),
        now_ms().label("now"),
    ).where(searches.c.id == bindparam("name"))


def view_of(connection: Connection, name: str) -> SearchView | None:
    row = connection.execute(_view_query(), {"name": name}).one_or_none()
    if row is None:
        return None
    return SearchView(
        _search_row(row), CandidateCounts(row.pending, row.queued, row.running, row.to_tell), row.now
    )


_STANDING = [searches.c[name] for name in "state scheduled told best_number best_objective cost".split()]
_LOCKED = select(*_STANDING).where(searches.c.id == bindparam("name")).with_for_update()


def locked(connection: Connection, name: str) -> Any:
    """The search's row, which no other transaction changes until this one ends."""
    return connection.execute(_LOCKED, {"name": name}).one()


ENDED_BADLY = (S.FAILED, S.CANCELLED)


def cancel_waiting(connection: Connection, name: str, message: str) -> int:
    """Cancels PENDING and QUEUED rows, inside a transaction."""
    return cancel_rows(connection, name, None, (S.PENDING, S.QUEUED), message)


def cancel_rows(
    connection: Connection,
    name: str,
    numbers: Collection[int] | None,
    statuses: Collection[EvolutionStatus],
    message: str,
) -> int:
    conditions = [jobs.search_id == name, jobs.status.in_([status.value for status in statuses])]
    if numbers is not None:
        conditions.append(jobs.number.in_(numbers))
    statement = (
        ROWS.movable(S.CANCELLED, *conditions)
        .values(completed_at=now_ms(), lease_until=None, failure=S.CANCELLED.value, message=message, cost=0.0)
        .returning(jobs.number, jobs.attempt)
    )
    return move_rows(connection, name, statement, S.CANCELLED, message)


_OPEN = (SearchState.RUNNING.value, SearchState.PAUSED.value)
GIVEN = "GIVEN"
"""In the column `failure` of a row that SUCCEEDED: a person gave its outcome, so no other search has it."""


class Refused(Exception):
    """The transaction is undone, with the answer to give instead."""

    def __init__(self, answer: Added | Refusal) -> None:
        super().__init__(str(answer))
        self.answer = answer


def add_candidate(
    connection: Connection, name: str, new: NewCandidate, caps: Caps, is_ordered: bool
) -> Added:
    """Adds a candidate by three statements; raises `Refused` if a cap or a race forbids it."""
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
        status, message = _take_over(connection, name, new, row.outcome)
        is_reused = status is not S.PENDING
    record(connection, name, [(number, 0)], status, message)
    if not is_ordered or is_reused:
        wake_search(connection, name)  # new rows: the scheduler that adds it promotes itself
    return Added(new.id, number, is_reused)


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


_GIVEN = "id number priority task_id job_id params proposal asked_after island parent".split()


@cache
def _insertion(is_bounded: bool) -> Any:
    """Inserts the row, as SUCCEEDED if its identity did anywhere; nothing if it may not be added.

    A statement of its own after the lock: on PostgreSQL a count beside the lock is as old as the wait for it.
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


def _known_elsewhere(connection: Connection, new: NewCandidate, now: Mapping[str, Any]) -> Any:
    """The row whose outcome is taken over, one of the same code if there is any; None if it is gone.

    Raises `DefaultChanged` if it was one of other values, at defaults of then.
    """
    query = (
        select(jobs.params, jobs.outcome, jobs.directory)
        .where(
            is_status(S.SUCCEEDED), jobs.task_id == new.task_id, jobs.job_id == new.job_id, jobs.id != new.id
        )
        .where(jobs.failure.is_(None))
        .order_by(jobs.params.contains(f'"{now.get("code")}"').desc())
        .limit(1)
    )
    then = connection.execute(query).one_or_none()
    if then is not None and other_defaults(then.params, new.params):
        raise DefaultChanged(f"{new.task_id} {new.job_id[:8]} {OTHER_DEFAULTS}")
    return then


def _give(connection: Connection, new: NewCandidate) -> tuple[EvolutionStatus, str]:
    """Ends a new row with the outcome that a person gave; the status and why."""
    kept = {"status": S.SUCCEEDED.value, "failure": GIVEN, "outcome": new.outcome, "objective": new.objective}
    ended = {"cost": 0.0, "reused": True, "completed_at": now_ms(), "directory": None}
    connection.execute(update(evolution_jobs).where(jobs.id == new.id).values(kept | ended))
    return S.SUCCEEDED, "given with its outcome"


def _take_over(
    connection: Connection, name: str, new: NewCandidate, text: str
) -> tuple[EvolutionStatus, str | None]:
    """Reads the outcome that a new row has of another search as its own search does; the status and why.

    PENDING, as if nothing were known: other code made it, and such outcomes are evaluated anew.
    """
    now = json.loads(new.params)
    then = _known_elsewhere(connection, new, now)
    is_older = then is not None and is_of_other_code(json.loads(then.params), now)
    if is_older and RERUNS in now:
        values: dict[str, Any] = dict.fromkeys(("outcome", "objective", "directory", "cost", "completed_at"))
        values |= {"status": S.PENDING.value, "reused": False}
        connection.execute(update(evolution_jobs).where(jobs.id == new.id).values(values))
        return S.PENDING, None
    query = select(searches.c.definition).where(searches.c.id == name)
    found = judge_anew(then.outcome if then else text, json.loads(connection.execute(query).scalar_one()))
    if is_older:
        found = doubted(found)
    values = {"status": found.status.value, "failure": found.failure, "message": found.message}
    values |= {"outcome": found.outcome, "objective": found.objective}
    values |= {"directory": then.directory} if then else {}
    connection.execute(update(evolution_jobs).where(jobs.id == new.id).values(values))
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
    is_full = caps.max_total is not None and here.scheduled >= caps.max_total
    if here.state not in (_OPEN[:1] if is_ordered else _OPEN):
        return Refusal.TOTAL if is_full and not is_ordered else Refusal.STATE
    if is_full:
        return Refusal.TOTAL
    return Refusal.MOVED


def _clash(connection: Connection, name: str, new: NewCandidate) -> Refusal:
    """Why the row could not be inserted."""
    query = select(func.count()).where(
        jobs.search_id == name, jobs.task_id == new.task_id, jobs.job_id == new.job_id
    )
    return Refusal.DUPLICATE if connection.execute(query).scalar_one() else Refusal.UNFINISHED


LONGEST_BACKOFF_MS = 60_000
THESE = (
    select(jobs.id, jobs.number, jobs.attempt)
    .where(
        jobs.search_id == bindparam("name"),
        jobs.id.in_(bindparam("ids", expanding=True)),
        is_status(S.PENDING),
    )
    .order_by(*DISPATCH_ORDER)
    .with_for_update()
)
_QUEUE = (
    update(evolution_jobs)
    .where(jobs.id.in_(bindparam("ids", expanding=True)))
    .values(status=S.QUEUED.value, scheduled_at=now_ms())
)


def promote_rows(
    connection: Connection, name: str, query: Any, parameters: dict[str, Any] | None = None
) -> list[Sent]:
    rows = connection.execute(query, parameters).all()
    if not rows:
        return []
    connection.execute(_QUEUE, {"ids": [row.id for row in rows]})
    record(connection, name, [(row.number, row.attempt) for row in rows], S.QUEUED)
    bump(connection, name)
    announce(connection, WORK)
    return [Sent(row.id, row.number) for row in rows]


def power_of_two() -> Any:
    """2 to the power of the sends of a row, at most 6: beyond, the longest back-off is reached."""
    capped: Any = literal_column("CASE WHEN evolution_jobs.sends > 6 THEN 6 ELSE evolution_jobs.sends END")
    return literal_column("1").op("<<")(capped)


_TOLD_COLUMNS = [jobs[name] for name in LogRow._fields]
LOG_COLUMNS = _TOLD_COLUMNS[: -len(LogRow._field_defaults)]
"""What a restart reads of each row."""
_STATUSES = {status.value: status for status in EvolutionStatus}


def log_row(row: Any) -> LogRow:
    """A row as samplers and tells see it: only one that SUCCEEDED has an objective."""
    number, status, *others = row
    read = LogRow(number, _STATUSES[status], *others)
    return read if read.status is S.SUCCEEDED or read.objective is None else read._replace(objective=None)


def when_told(row: LogRow) -> int:
    return row.told or 0


ENDED_ROWS = (
    select(*_TOLD_COLUMNS)
    .where(jobs.search_id == bindparam("name"), TO_TELL)
    .order_by(jobs.completed_at, jobs.number)
    .limit(bindparam("most", type_=Integer))
)
_TELL = (
    update(evolution_jobs)
    .where(jobs.id == bindparam("the_id"))
    .values(
        told=bindparam("new_told"),
        verdict=bindparam("new_verdict"),
        cell=bindparam("new_cell", type_=Integer),
    )
)
_TOLD = (
    update(searches)
    .where(searches.c.id == bindparam("name"))
    .values(
        told=bindparam("new_told"),
        changed=searches.c.changed + 1,
        cost=searches.c.cost + bindparam("more", type_=Double),
        clipped=searches.c.clipped + bindparam("outside", type_=Integer),
        best_objective=bindparam("best", type_=Double),
        best_number=bindparam("number", type_=Integer),
    )
)


def tell_rows(connection: Connection, name: str, here: Any, rows: Sequence[Told], maximize: bool) -> None:
    best, best_number = here.best_objective, here.best_number
    cost = 0.0
    lines = [
        {"the_id": row.id, "new_told": at, "new_verdict": row.verdict, "new_cell": row.cell}
        for at, row in enumerate(rows, here.told + 1)
    ]
    if lines:
        connection.execute(_TELL, lines)
    for row in rows:
        if row.message is not None:
            failed = {
                "status": S.FAILED.value,
                "objective": None,
                "failure": "FAILED",
                "message": row.message,
            }
            connection.execute(update(evolution_jobs).where(jobs.id == row.id).values(failed))
        cost += row.cost
        if row.objective is not None and row.message is None:
            is_better = best is None or (row.objective > best if maximize else row.objective < best)
            if is_better:
                best, best_number = row.objective, row.number
    told = {"new_told": here.told + len(rows), "more": cost, "best": best, "number": best_number}
    outside = sum(row.is_clipped for row in rows)
    connection.execute(_TOLD, {"name": name, "outside": outside, **told})
    wake_search(connection, name)
