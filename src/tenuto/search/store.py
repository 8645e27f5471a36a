"""The rows of a search as its scheduler changes them: opened, added, dispatched, told.
Each method is one transaction; what workers do to rows is in `claim_store`, what people do in `control`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, and_, func, insert, literal_column, select, update

from tenuto.database import Database, announce, now_ms
from tenuto.lifecycle.evolution import EvolutionStatus, SearchEnd, SearchState
from tenuto.search.claim_store import ClaimStore
from tenuto.search.control import ControlStore
from tenuto.search.moves import WORK, bump, record, wake_search
from tenuto.search.rows import (
    Added,
    Caps,
    Counts,
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
    is_due,
    is_status,
    jobs,
    searches,
)

S = EvolutionStatus
_LONGEST_BACKOFF_MS = 60_000


class Store(ClaimStore, ControlStore):
    """The searches of one database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    # -- the search --------------------------------------------------------------------------------

    def open(self, name: str, definition: dict[str, Any], seed: int) -> SearchRow:
        """The search of this name, made if there is none."""

        def work(connection: Connection) -> SearchRow:
            found = read_search(connection, name)
            if found is not None:
                return found
            text = json.dumps(definition)
            connection.execute(
                insert(searches).values(
                    id=name, definition=text, seed=seed, state=SearchState.RUNNING.value, created_at=now_ms()
                )
            )
            made = read_search(connection, name)
            assert made is not None
            return made

        return self.database.write(work)

    def redefine(self, name: str, definition: dict[str, Any]) -> None:
        """Keeps a definition whose changes do not make another search of it."""
        statement = update(searches).where(searches.c.id == name).values(definition=json.dumps(definition))
        self.database.write(lambda connection: connection.execute(statement))

    def search(self, name: str) -> SearchRow | None:
        """The search of this name."""
        return self.database.read(lambda connection: read_search(connection, name))

    def view(self, name: str) -> SearchView | None:
        """The search and its counts, by one statement."""
        return self.database.read(lambda connection: _view(connection, name))

    def count_unfinished(self, name: str) -> int:
        """How many candidates are PENDING, QUEUED or RUNNING."""
        query = select(func.count()).select_from(evolution_jobs).where(jobs.search_id == name, UNFINISHED)
        return self.database.read(lambda connection: connection.execute(query).scalar_one())

    def spend_time(self, name: str, milliseconds: int) -> None:
        """Adds to the time that the search ran."""
        statement = (
            update(searches)
            .where(searches.c.id == name)
            .values(active_ms=searches.c.active_ms + milliseconds)
        )
        self.database.write(lambda connection: connection.execute(statement))

    # -- adding ------------------------------------------------------------------------------------

    def add(self, name: str, new: NewCandidate, caps: Caps, is_ordered: bool = True) -> Added | Refusal:
        """Adds a candidate, unless a cap or a race forbids it, which is found out in the same transaction.

        `is_ordered`: only if the search stands where the candidate was proposed; otherwise the number is the
        next one, and the cap on unfinished candidates does not count (`enqueue`).
        """

        def work(connection: Connection) -> Added | Refusal:
            here = _locked(connection, name)
            known = connection.execute(
                select(jobs.number, jobs.reused).where(jobs.id == new.id)
            ).one_or_none()
            if known is not None:  # of a commit whose answer was lost
                return Added(new.id, known.number, bool(known.reused))
            refusal = _refusal(connection, name, here, new, caps, is_ordered)
            if refusal is not None:
                return refusal
            return _insert(connection, name, new, here.scheduled + 1)

        return self.database.write(work)

    # -- dispatching -------------------------------------------------------------------------------

    def dispatch(self, name: str, limit: int, is_probe: bool = False) -> list[Sent]:
        """Promotes the candidates that are due to QUEUED, the best first; a probe does not wait until due."""
        query = (
            select(jobs.id, jobs.number, jobs.sends, jobs.attempt)
            .where(jobs.search_id == name, is_status(S.PENDING))
            .order_by(*DISPATCH_ORDER)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        if not is_probe:
            query = query.where(is_due(now_ms()))
        return self.database.write(lambda connection: _promote(connection, name, query))

    def forget_backoff(self, name: str) -> None:
        """Lets candidates that could not be sent go out at once: the broker is back."""
        statement = (
            update(evolution_jobs)
            .where(jobs.search_id == name, is_status(S.PENDING), jobs.not_before.is_not(None))
            .values(not_before=None, sends=0)
        )
        self.database.write(lambda connection: connection.execute(statement))

    def promote(self, name: str, ids: Sequence[str]) -> list[Sent]:
        """Promotes these candidates to QUEUED, as far as they are PENDING."""
        return self.database.write(
            lambda connection: _promote(
                connection,
                name,
                select(jobs.id, jobs.number, jobs.sends, jobs.attempt)
                .where(jobs.search_id == name, jobs.id.in_(ids), is_status(S.PENDING))
                .order_by(*DISPATCH_ORDER)
                .with_for_update(),
            )
        )

    def send_failed(self, name: str, ids: Sequence[str], backoff_ms: int) -> int:
        """Returns rows whose message could not be sent to PENDING, to be sent later each time."""

        def work(connection: Connection) -> int:
            shift = func.min if connection.dialect.name == "sqlite" else func.least
            wait = shift(backoff_ms * _power_of_two(jobs.sends), _LONGEST_BACKOFF_MS)
            statement = (
                update(evolution_jobs)
                .where(jobs.id.in_(ids), is_status(S.QUEUED))
                .values(
                    status=S.PENDING.value,
                    scheduled_at=jobs.created_at,
                    sends=jobs.sends + 1,
                    not_before=now_ms() + wait,
                )
                .returning(jobs.number, jobs.attempt)
            )
            returned = connection.execute(statement).all()
            record(connection, name, returned, S.PENDING, "could not be sent")
            bump(connection, name)
            return len(returned)

        return self.database.write(work)

    # -- telling -----------------------------------------------------------------------------------

    def read_log(
        self, name: str, after_number: int, after_told: int
    ) -> tuple[int, list[LogRow], list[LogRow]]:
        """What a replica has not seen: the counter `told`, rows by number, and tells in their order."""

        def work(connection: Connection) -> tuple[int, list[LogRow], list[LogRow]]:
            told = connection.execute(select(searches.c.told).where(searches.c.id == name)).scalar_one()
            query = select(*_LOG_COLUMNS).where(jobs.search_id == name)
            rows = connection.execute(query.where(jobs.number > after_number).order_by(jobs.number))
            tells = connection.execute(query.where(jobs.told > after_told).order_by(jobs.told))
            return told, [_log_row(row) for row in rows], [_log_row(row) for row in tells]

        return self.database.read(work)

    def to_tell(self, name: str, limit: int, number: int | None = None) -> list[LogRow]:
        """Candidates that ended and were not told, the first that ended first; or the one of that number."""
        query = select(*_LOG_COLUMNS).where(jobs.search_id == name, TO_TELL)
        if number is not None:
            query = query.where(jobs.number == number)
        query = query.order_by(jobs.completed_at, jobs.number).limit(limit)
        return self.database.read(lambda connection: [_log_row(row) for row in connection.execute(query)])

    def tell(self, name: str, told: int, tell: Callable[[], Sequence[Told]], maximize: bool) -> int | None:
        """Tells candidates, if the counter still is `told`; None if it is not.

        `tell()` is called while the search's row is locked and gives the rows in their order; it is called
        again if the transaction is repeated, and must give the same.
        """

        def work(connection: Connection) -> int | None:
            here = _locked(connection, name)
            if here.told != told:
                return None
            rows = tell()
            _tell(connection, name, here, rows, maximize)
            return len(rows)

        return self.database.write(work)

    # -- ending ------------------------------------------------------------------------------------

    def drain(self, name: str, reason: SearchEnd, message: str | None = None) -> bool:
        """Begins to end a search: what waits is cancelled, what runs is waited for."""

        def work(connection: Connection) -> bool:
            here = _locked(connection, name)
            if here.state not in (SearchState.RUNNING.value, SearchState.PAUSED.value):
                return False
            connection.execute(
                update(searches)
                .where(searches.c.id == name)
                .values(state=SearchState.DRAINING.value, reason=reason.name, message=message)
            )
            self.cancel_waiting(connection, name, "the search ended")
            bump(connection, name)
            return True

        return self.database.write(work)

    def end(self, name: str, reason: SearchEnd | None = None) -> bool:
        """Ends a search in which nothing is in flight and nothing is left to tell."""

        def work(connection: Connection) -> bool:
            here = _locked(connection, name)
            query = select(func.count()).select_from(evolution_jobs).where(jobs.search_id == name)
            left = connection.execute(query.where(UNFINISHED)).scalar_one()
            left += connection.execute(query.where(TO_TELL)).scalar_one()
            if left or here.state == SearchState.ENDED.value:
                return False
            values: dict[str, Any] = {"state": SearchState.ENDED.value, "ended_at": now_ms()}
            if reason is not None:
                values["reason"] = reason.name
            connection.execute(update(searches).where(searches.c.id == name).values(values))
            bump(connection, name)
            return True

        return self.database.write(work)

    def reopen(self, name: str) -> None:
        """Lets a search that ended, or is ending, go on."""

        def work(connection: Connection) -> None:
            connection.execute(
                update(searches)
                .where(searches.c.id == name, searches.c.state.in_(["ENDED", "DRAINING"]))
                .values(state=SearchState.RUNNING.value, reason=None, message=None, ended_at=None)
            )
            bump(connection, name)

        self.database.write(work)


# -- reading ---------------------------------------------------------------------------------------

_LOG_COLUMNS = (
    jobs.number,
    jobs.status,
    jobs.proposal,
    jobs.island,
    jobs.parent,
    jobs.outcome,
    jobs.told,
    jobs.completed_at,
    jobs.id,
    jobs.cost,
    jobs.task_id,
    jobs.job_id,
    jobs.reused,
    jobs.objective,
    jobs.message,
)


def _log_row(row: Any) -> LogRow:
    values = dict(row._mapping)
    return LogRow(**{**values, "status": EvolutionStatus(values["status"]), "reused": bool(values["reused"])})


def read_search(connection: Connection, name: str) -> SearchRow | None:
    """The search of this name, in a transaction."""
    row = connection.execute(select(searches).where(searches.c.id == name)).one_or_none()
    return None if row is None else _search_row(row)


def _search_row(row: Any) -> SearchRow:
    known = {column.name: getattr(row, column.name) for column in searches.c}
    return SearchRow(
        **{
            **known,
            "definition": json.loads(row.definition),
            "state": SearchState(row.state),
            "reason": SearchEnd[row.reason] if row.reason else None,
        }
    )


def _view(connection: Connection, name: str) -> SearchView | None:
    def count(*where: Any) -> Any:
        return (
            select(func.count())
            .select_from(evolution_jobs)
            .where(jobs.search_id == searches.c.id, *where)
            .scalar_subquery()
        )

    query = select(
        searches,
        count(is_status(S.PENDING)).label("pending"),
        count(is_status(S.QUEUED)).label("queued"),
        count(UNFINISHED, is_status(S.RUNNING)).label("running"),
        count(TO_TELL).label("to_tell"),
        now_ms().label("now"),
    ).where(searches.c.id == name)
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    return SearchView(_search_row(row), Counts(row.pending, row.queued, row.running, row.to_tell), row.now)


# -- adding ----------------------------------------------------------------------------------------


def _locked(connection: Connection, name: str) -> Any:
    """The search's row, which no other transaction changes until this one ends."""
    query = select(
        searches.c.state, searches.c.scheduled, searches.c.told, searches.c.best_objective, searches.c.cost
    )
    return connection.execute(query.where(searches.c.id == name).with_for_update()).one()


def _refusal(
    connection: Connection, name: str, here: Any, new: NewCandidate, caps: Caps, is_ordered: bool
) -> Refusal | None:
    if here.state not in ((SearchState.RUNNING.value,) if is_ordered else ("RUNNING", "PAUSED")):
        return Refusal.STATE
    if caps.max_total is not None and here.scheduled >= caps.max_total:
        return Refusal.TOTAL
    if is_ordered and (here.scheduled != new.number - 1 or here.told != new.asked_after):
        return Refusal.MOVED
    count = select(func.count()).select_from(evolution_jobs).where(jobs.search_id == name, UNFINISHED)
    same = select(func.count()).where(
        jobs.search_id == name, jobs.task_id == new.task_id, jobs.job_id == new.job_id
    )
    unfinished, twice = connection.execute(select(count.scalar_subquery(), same.scalar_subquery())).one()
    if is_ordered and caps.max_unfinished is not None and unfinished >= caps.max_unfinished:
        return Refusal.UNFINISHED
    return Refusal.DUPLICATE if twice else None


def _insert(connection: Connection, name: str, new: NewCandidate, number: int) -> Added:
    known = connection.execute(
        select(jobs.outcome, jobs.objective, jobs.directory)
        .where(and_(is_status(S.SUCCEEDED), jobs.task_id == new.task_id, jobs.job_id == new.job_id))
        .limit(1)
    ).one_or_none()
    status = S.PENDING if known is None else S.SUCCEEDED
    values: dict[str, Any] = {
        "id": new.id,
        "search_id": name,
        "number": number,
        "status": status.value,
        "priority": new.priority,
        "created_at": now_ms(),
        "scheduled_at": now_ms(),
        "task_id": new.task_id,
        "job_id": new.job_id,
        "params": new.params,
        "proposal": new.proposal,
        "asked_after": new.asked_after,
        "island": new.island,
        "parent": new.parent,
    }
    if known is not None:
        values |= {
            "outcome": known.outcome,
            "objective": known.objective,
            "directory": known.directory,
            "cost": 0.0,
            "reused": True,
            "completed_at": now_ms(),
        }
    connection.execute(insert(evolution_jobs).values(values))
    bump(connection, name, scheduled=number)
    record(connection, name, [(number, 0)], status, "known from before" if known else None)
    wake_search(connection, name)
    return Added(new.id, number, known is not None)


# -- dispatching -----------------------------------------------------------------------------------


def _promote(connection: Connection, name: str, query: Any) -> list[Sent]:
    rows = connection.execute(query).all()
    if not rows:
        return []
    connection.execute(
        update(evolution_jobs)
        .where(jobs.id.in_([row.id for row in rows]))
        .values(status=S.QUEUED.value, scheduled_at=now_ms())
    )
    record(connection, name, [(row.number, row.attempt) for row in rows], S.QUEUED)
    bump(connection, name)
    announce(connection, WORK)
    return [Sent(row.id, row.number, row.sends) for row in rows]


def _power_of_two(exponent: Any) -> Any:
    """2 to the power of at most 6: beyond, the longest back-off is reached."""
    capped: Any = literal_column("CASE WHEN evolution_jobs.sends > 6 THEN 6 ELSE evolution_jobs.sends END")
    return literal_column("1").op("<<")(capped)


# -- telling ---------------------------------------------------------------------------------------


def _tell(connection: Connection, name: str, here: Any, rows: Sequence[Told], maximize: bool) -> None:
    best, best_number = here.best_objective, None
    cost = 0.0
    for at, row in enumerate(rows, here.told + 1):
        values: dict[str, Any] = {"told": at, "verdict": row.verdict, "cell": row.cell}
        if row.message is not None:
            values |= {"status": S.FAILED.value, "failure": "FAILED", "message": row.message}
        connection.execute(update(evolution_jobs).where(jobs.id == row.id).values(values))
        cost += row.cost
        if row.objective is not None and row.message is None:
            is_better = best is None or (row.objective > best if maximize else row.objective < best)
            if is_better:
                best, best_number = row.objective, row.number
    values = {"cost": searches.c.cost + cost}
    if best_number is not None:
        values |= {"best_objective": best, "best_number": best_number}
    bump(connection, name, told=here.told + len(rows), **values)
    wake_search(connection, name)
