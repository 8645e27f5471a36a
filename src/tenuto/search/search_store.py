"""The row of a search: opened, looked at, drained, ended.
Each method is one transaction; what happens to candidates is in the other stores.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Connection, bindparam, case, func, insert, literal, select, update
from sqlalchemy.exc import IntegrityError

from tenuto.database import Database, now_ms
from tenuto.errors import SearchDiffers
from tenuto.lifecycle.evolution import EvolutionStatus, SearchEnd, SearchState
from tenuto.search.control import cancel_waiting
from tenuto.search.moves import bump
from tenuto.search.rows import CandidateCounts, SearchRow, SearchView
from tenuto.search.tables import TO_TELL, UNFINISHED, evolution_jobs, is_status, jobs, searches

S = EvolutionStatus
_COMPARED = (
    "task",
    "space",
    "sampler",
    "seed",
    "direction",
    "reproducible",
    "evaluators",
    "reuse",
    "repeats",
    "repeat_best",
)
"""What of a definition makes another search of it."""


class SearchStore:
    """What a scheduler does to the row of a search."""

    database: Database

    def open(self, name: str, definition: dict[str, Any], seed: int) -> SearchRow:
        """The search of this name, made if there is none."""

        def work(connection: Connection) -> SearchRow:
            found = read_search(connection, name)
            if found is not None:
                return _with_its_best(connection, found)
            text = json.dumps(definition)
            row = insert(searches).values(
                id=name, definition=text, seed=seed, state=SearchState.RUNNING.value, created_at=now_ms()
            )
            # PostgreSQL lets two processes get here at once: the second one finds the row of the first.
            with suppress(IntegrityError), connection.begin_nested():
                connection.execute(row)
            made = read_search(connection, name)
            assert made is not None
            return made

        return self.database.write(work)

    def declare(self, name: str, definition: dict[str, Any], seed: int) -> SearchRow:
        """Makes or finds a search; raises `SearchDiffers` if it was declared otherwise."""
        row = self.open(name, definition, seed)
        for key in _COMPARED:
            place = difference(row.definition.get(key), definition.get(key), key)
            if place is not None:
                raise SearchDiffers(
                    f"the stored search {name!r} was declared otherwise: {place}. Put that back, give the "
                    f"search another name, or discard it: tenuto search remove {name} --yes"
                )
        if row.definition != definition:
            self.redefine(name, definition)
        return row

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
        """Adds the time during which a scheduler was at work, of which others may have counted some."""
        since = func.coalesce(searches.c.active_at, 0)
        uncounted = case(
            (now_ms() - milliseconds > since, literal(milliseconds, BigInteger)), else_=now_ms() - since
        )
        statement = (
            update(searches)
            .where(searches.c.id == name)
            .values(
                active_ms=searches.c.active_ms + case((uncounted > 0, uncounted), else_=0),
                active_at=now_ms(),
            )
        )
        self.database.write(lambda connection: connection.execute(statement))

    def drain(self, name: str, reason: SearchEnd, message: str | None = None) -> bool:
        """Begins to end a search: what waits is cancelled, what runs is waited for."""

        def work(connection: Connection) -> bool:
            here = locked(connection, name)
            if here.state not in (SearchState.RUNNING.value, SearchState.PAUSED.value):
                return False
            connection.execute(
                update(searches)
                .where(searches.c.id == name)
                .values(state=SearchState.DRAINING.value, reason=reason.name, message=message)
            )
            cancel_waiting(connection, name, "the search ended")
            bump(connection, name)
            return True

        return self.database.write(work)

    def end(self, name: str, reason: SearchEnd | None = None) -> bool:
        """Ends a search in which nothing is in flight and nothing is left to tell."""

        def work(connection: Connection) -> bool:
            here = locked(connection, name)
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


def _with_its_best(connection: Connection, search: SearchRow) -> SearchRow:
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


def _view(connection: Connection, name: str) -> SearchView | None:
    row = connection.execute(_view_query(), {"name": name}).one_or_none()
    if row is None:
        return None
    return SearchView(
        _search_row(row), CandidateCounts(row.pending, row.queued, row.running, row.to_tell), row.now
    )


_LOCKED = (
    select(
        searches.c.state,
        searches.c.scheduled,
        searches.c.told,
        searches.c.best_number,
        searches.c.best_objective,
        searches.c.cost,
    )
    .where(searches.c.id == bindparam("name"))
    .with_for_update()
)


def locked(connection: Connection, name: str) -> Any:
    """The search's row, which no other transaction changes until this one ends."""
    return connection.execute(_LOCKED, {"name": name}).one()
