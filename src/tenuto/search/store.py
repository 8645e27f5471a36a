"""The rows of all searches of a database: everything that schedulers, workers and people do to them.
Each method is one transaction; their statements are in `candidate_rows` and `claimed_rows`.
"""

from __future__ import annotations

import json
import os.path
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from sqlalchemy import BigInteger, Connection, bindparam, case, delete, func, insert, literal, select, update
from sqlalchemy.exc import IntegrityError

from tenuto.database import Database, now_ms
from tenuto.errors import SearchDiffers
from tenuto.jobs.source import CHUNK_ROWS
from tenuto.lifecycle.evolution import (
    EVOLUTION_TRANSITIONS,
    SEARCH_TRANSITIONS,
    EvolutionStatus,
    SearchEnd,
    SearchState,
)
from tenuto.lifecycle.states import origins
from tenuto.search.candidate_rows import (
    ENDED_BADLY,
    ENDED_ROWS,
    LOG_COLUMNS,
    LONGEST_BACKOFF_MS,
    ROWS,
    THESE,
    CandidateMove,
    Refused,
    add_candidate,
    bump,
    cancel_rows,
    cancel_waiting,
    difference,
    locked,
    log_row,
    move_rows,
    power_of_two,
    promote_rows,
    read_search,
    record,
    tell_rows,
    view_of,
    wake_search,
    when_told,
    with_its_best,
)
from tenuto.search.claimed_rows import (
    DEATHS_AN_ATTEMPT,
    LOST,
    LOST_VALUES,
    OVER,
    RETURNED,
    ClaimRequest,
    claim_rows,
    finish_row,
    moved,
    moves_of,
    take_back,
)
from tenuto.search.kept_outcomes import Judgement
from tenuto.search.rows import (
    Added,
    Caps,
    Claimed,
    End,
    LogRow,
    NewCandidate,
    Refusal,
    SearchRow,
    SearchView,
    Sent,
    Told,
    check_priority,
)
from tenuto.search.tables import (
    DISPATCH_ORDER,
    TO_TELL,
    UNFINISHED,
    evolution_jobs,
    evolution_points,
    is_due,
    is_status,
    jobs,
    searches,
)
from tenuto.settings.search import SEARCH_FILE
from tenuto.tasks.stored_values import changed_defaults

S = EvolutionStatus
LOG_ROWS = 20_000
"""Rows of a log that one transaction reads."""
_OPENED = (
    update(searches)
    .where(searches.c.id == bindparam("name"), searches.c.state.in_(["ENDED", "DRAINING"]))
    .values(state=SearchState.RUNNING.value, reason=None, message=None, ended_at=None)
)
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
_DRIVER = ("command", "directory")
"""What a definition has of the process that last ran the search."""


class Store:
    """The searches of one database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    # -- a search --

    def open(self, name: str, definition: dict[str, Any], seed: int) -> SearchRow:
        """The search of this name, made if there is none."""

        def work(connection: Connection) -> SearchRow:
            found = read_search(connection, name)
            if found is not None:
                return with_its_best(connection, found)
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
        places = [difference(row.definition.get(key), definition.get(key), key) for key in _COMPARED]
        fixed = changed_defaults(row.definition.get("fixed") or {}, definition.get("fixed") or {})
        for place in (*places, *map(str, fixed)):
            if place is not None:
                folder, file = os.path.split(self.database.shown_url)
                where = f" -w {shlex.quote(folder)}" if file == SEARCH_FILE else ""
                raise SearchDiffers(
                    f"the stored search {name!r} was declared otherwise: {place}. Put that back, give the "
                    f"search another name, or discard it: tenuto search remove {name} --yes{where}"
                )
        definition = {key: row.definition[key] for key in _DRIVER if key in row.definition} | definition
        if row.definition != definition:
            self.redefine(name, definition)
        return row

    def driven_by(self, name: str, command: Sequence[str], directory: str) -> None:
        """Keeps the command that started the driver, and where; an empty one tells nothing new."""
        row = self.search(name)
        if row is not None and command:
            kept = dict(zip(_DRIVER, (list(command), directory), strict=True))
            self.redefine(name, row.definition | kept)

    def first_params(self, name: str) -> str | None:
        """The stored parameters of the first candidate that was evaluated; None without one."""
        query = select(jobs.params).where(
            jobs.search_id == name, jobs.told.is_not(None), jobs.failure.is_(None)
        )
        query = query.order_by(jobs.number).limit(1)
        return self.database.read(lambda connection: connection.execute(query).scalar_one_or_none())

    def redefine(self, name: str, definition: dict[str, Any]) -> None:
        """Keeps a definition whose changes do not make another search of it."""
        statement = update(searches).where(searches.c.id == name).values(definition=json.dumps(definition))
        self.database.write(lambda connection: connection.execute(statement))

    def search(self, name: str) -> SearchRow | None:
        """The search of this name."""
        return self.database.read(lambda connection: read_search(connection, name))

    def view(self, name: str) -> SearchView | None:
        """The search and its counts, by one statement."""
        return self.database.read(lambda connection: view_of(connection, name))

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
        """Begins to end a search: waiting rows are cancelled, running ones waited for."""

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
            connection.execute(_OPENED, {"name": name})
            bump(connection, name)

        self.database.write(work)

    # -- what people do --

    def names(self) -> list[str]:
        """The searches, the oldest first."""
        query = select(searches.c.id).order_by(searches.c.created_at, searches.c.id)
        return self.database.read(lambda connection: list(connection.execute(query).scalars()))

    def set_state(self, name: str, state: SearchState, message: str | None = None) -> bool:
        """Pauses or resumes a search; False if it may not go there from where it is.

        `message`: why it pauses, if no person asked for it.
        """

        def work(connection: Connection) -> bool:
            allowed = [one.value for one in origins(SEARCH_TRANSITIONS, state)]
            if state is SearchState.RUNNING:
                allowed = [SearchState.PAUSED.value]  # an ended search is opened by its script
            changed = connection.execute(
                update(searches)
                .where(searches.c.id == name, searches.c.state.in_(allowed))
                .values(state=state.value, message=message)
            ).rowcount
            if changed:
                bump(connection, name)
                wake_search(connection, name)
            return bool(changed)

        return self.database.write(work)

    def cancel(
        self, name: str, numbers: Collection[int] | None, message: str = "cancelled by a person"
    ) -> int:
        """Cancels unfinished candidates; None: all. A running payload is ended by its worker."""
        return self.database.write(
            lambda connection: cancel_rows(
                connection, name, numbers, origins(EVOLUTION_TRANSITIONS, S.CANCELLED), message
            )
        )

    def retry(self, name: str, numbers: Collection[int] | None) -> int:
        """Tries failed and cancelled candidates again; None: all that failed."""

        def work(connection: Connection) -> int:
            conditions = [jobs.search_id == name]
            if numbers is None:
                conditions.append(jobs.status == S.FAILED.value)
            else:
                conditions += [jobs.number.in_(numbers), jobs.status.in_([s.value for s in ENDED_BADLY])]
            statement = (
                ROWS.movable(S.PENDING, *conditions)
                .values(
                    attempt=0,
                    deaths=0,
                    sends=0,
                    scheduled_at=jobs.created_at,
                    not_before=None,
                    completed_at=None,
                    worker=None,
                    told=None,
                    verdict=None,
                    cell=None,
                    failure=None,
                    message=None,
                    outcome=None,
                )
                .returning(jobs.number, jobs.attempt)
            )
            rows = connection.execute(statement).all()
            if rows:
                anew = evolution_points.c.number.in_([row.number for row in rows])
                logged = delete(evolution_points).where(evolution_points.c.search_id == name, anew)
                connection.execute(logged)
                record(connection, name, rows, S.PENDING, "retried by a person")
                connection.execute(_OPENED, {"name": name})
                bump(connection, name)
                wake_search(connection, name)
            return len(rows)

        return self.database.write(work)

    def set_priority(self, name: str, number: int, priority: int) -> bool:
        """Gives a candidate that waits another priority."""
        check_priority(priority)

        def work(connection: Connection) -> bool:
            changed = connection.execute(
                update(evolution_jobs)
                .where(
                    jobs.search_id == name,
                    jobs.number == number,
                    jobs.status.in_([S.PENDING.value, S.QUEUED.value]),
                )
                .values(priority=priority)
            ).rowcount
            if changed:
                bump(connection, name)
                wake_search(connection, name)
            return bool(changed)

        return self.database.write(work)

    def remove(self, name: str) -> bool:
        """Removes a search and its rows, not the jobs; what its workers write later has no effect."""
        statement = delete(searches).where(searches.c.id == name)
        return self.database.write(lambda connection: bool(connection.execute(statement).rowcount))

    def statuses(self, name: str) -> dict[EvolutionStatus, int]:
        """How many candidates have each status; reads all rows of the search."""
        query = select(jobs.status, func.count()).where(jobs.search_id == name).group_by(jobs.status)
        found = self.database.read(lambda connection: connection.execute(query).all())
        counts = {str(row[0]): int(row[1]) for row in found}
        return {status: counts.get(status.value, 0) for status in EvolutionStatus}

    # -- candidates come in --

    def add(self, name: str, new: NewCandidate, caps: Caps, is_ordered: bool = True) -> Added | Refusal:
        """Adds a candidate, unless a cap or a race forbids it, which is found out in the same transaction.

        `is_ordered`: only if the search stands where the candidate was proposed; otherwise the number is the
        next one, and the cap on unfinished candidates does not count (`enqueue`).
        """

        try:
            return self.database.write(
                lambda connection: add_candidate(connection, name, new, caps, is_ordered)
            )
        except Refused as refused:
            return refused.answer

    def add_all(self, name: str, new: Iterable[NewCandidate], caps: Caps) -> Added | Refusal | None:
        """Adds what a person gave, all or nothing, but for what the search has; why not, if so."""

        def work(connection: Connection) -> None:
            for one in new:
                try:
                    with connection.begin_nested():
                        add_candidate(connection, name, one, caps, is_ordered=False)
                except Refused as refused:
                    if refused.answer in (Refusal.TOTAL, Refusal.STATE, Refusal.MOVED):
                        raise

        try:
            self.database.write(work)
        except Refused as refused:
            return refused.answer
        return None

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

    # -- candidates go out --

    def dispatch(self, name: str, limit: int, is_probe: bool = False) -> list[Sent]:
        """Promotes the candidates that are due to QUEUED, the best first; a probe does not wait until due."""
        query = (
            select(jobs.id, jobs.number, jobs.attempt)
            .where(jobs.search_id == name, is_status(S.PENDING))
            .order_by(*DISPATCH_ORDER)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        if not is_probe:
            query = query.where(is_due(now_ms()))
        return self.database.write(lambda connection: promote_rows(connection, name, query))

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
            lambda connection: promote_rows(connection, name, THESE, {"name": name, "ids": ids})
        )

    def send_failed(self, name: str, ids: Sequence[str], backoff_ms: int) -> int:
        """Returns rows whose message could not be sent to PENDING, to be sent later each time."""

        def work(connection: Connection) -> int:
            shift = func.min if connection.dialect.name == "sqlite" else func.least
            wait = shift(backoff_ms * power_of_two(), LONGEST_BACKOFF_MS)
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

    # -- ended rows are told --

    def read_log(
        self, name: str, after_number: int, after_told: int
    ) -> tuple[int, list[LogRow], list[LogRow]]:
        """What a replica has not seen: the counter `told`, rows by number, and tells in their order.

        What is told while it reads counts as not told.
        """

        def work(connection: Connection) -> tuple[int, list[LogRow], list[LogRow]]:
            told = connection.execute(select(searches.c.told).where(searches.c.id == name)).scalar_one()
            query = select(*LOG_COLUMNS).where(jobs.search_id == name)
            new = query.where(jobs.number > after_number).order_by(jobs.number).limit(LOG_ROWS)
            rows = [log_row(row) for row in connection.execute(new)]
            seen = query.where(jobs.told > after_told, jobs.number <= after_number)
            tells = [log_row(row) for row in connection.execute(seen)] if after_number else []
            return told, rows, tells

        told, rows, tells = self.database.read(work)
        if len(rows) == LOG_ROWS:
            for page in self.pages(name, LOG_COLUMNS, rows[-1].number, LOG_ROWS):
                found = map(log_row, page)
                rows += [row._replace(told=None) if (row.told or 0) > told else row for row in found]
        tells += [row for row in rows if row.told is not None and row.told > after_told]
        tells.sort(key=when_told)
        return told, rows, tells

    def pages(
        self, name: str, columns: Sequence[Any] = (evolution_jobs,), after: int = 0, most: int = CHUNK_ROWS
    ) -> Iterator[Sequence[Any]]:
        """The candidates of a search by number, some in each transaction.

        PostgreSQL ends a transaction whose reader computes for seconds, as one that makes much of many does.
        """
        query = select(*columns).where(jobs.search_id == name).order_by(jobs.number).limit(most)
        while page := self.database.read(lambda c, n=after: c.execute(query.where(jobs.number > n)).all()):  # type: ignore[misc]
            yield page
            after = page[-1].number

    def finish_by_hand(self, name: str, number: int, found: Judgement) -> bool:
        """Ends a candidate that no job evaluates; False if it is not unfinished."""
        kept = found._asdict() | {"status": found.status.value, "completed_at": now_ms()}
        statement = (
            update(evolution_jobs)
            .where(jobs.search_id == name, jobs.number == number, UNFINISHED)
            .values(kept)
            .returning(jobs.number, jobs.attempt)
        )
        moved = self.database.write(lambda c: move_rows(c, name, statement, found.status, found.message))
        return bool(moved)

    def verdict(self, name: str, number: int) -> str | None:
        """What the archive said of a candidate; None if it was not told."""
        query = select(jobs.verdict).where(jobs.search_id == name, jobs.number == number)
        return self.database.read(lambda connection: connection.execute(query).scalar_one_or_none())

    def proposal(self, name: str, number: int) -> Any:
        """The values of a candidate."""
        query = select(jobs.proposal).where(jobs.search_id == name, jobs.number == number)
        return json.loads(self.database.read(lambda c: c.execute(query).scalar_one()))["values"]

    def to_tell(self, name: str, limit: int, number: int | None = None) -> list[LogRow]:
        """Candidates that ended and were not told, the first that ended first; or the one of that number."""
        query = ENDED_ROWS if number is None else ENDED_ROWS.where(jobs.number == number)
        given = {"name": name, "most": limit}
        return self.database.read(
            lambda connection: [log_row(row) for row in connection.execute(query, given)]
        )

    def tell(self, name: str, told: int, tell: Callable[[], Sequence[Told]], maximize: bool) -> int | None:
        """Tells candidates, if the counter still is `told`; None if it is not.

        `tell()` is called while the search's row is locked and gives the rows in their order; it is called
        again if the transaction is repeated, and must give the same.
        """

        def work(connection: Connection) -> int | None:
            here = locked(connection, name)
            if here.told != told:
                return None
            rows = tell()
            tell_rows(connection, name, here, rows, maximize)
            return len(rows)

        return self.database.write(work)

    # -- what workers do --

    def claim(
        self, worker: str, count: int, lease_ms: int, only: Collection[str] | None = None
    ) -> list[Claimed]:
        """Claims the best QUEUED rows of all running searches, or of `only` these, for one lease."""
        wish = ClaimRequest(worker, count, lease_ms, only, count)
        return self.finish_and_claim((), 0, wish)[1]

    def finish(self, ends: Sequence[End], max_attempts: int) -> set[tuple[str, int]]:
        """Writes how rows ended; returns those that still were this attempt's. LOST ones are tried again."""
        return self.finish_and_claim(ends, max_attempts, None)[0]

    def finish_and_claim(
        self, ends: Sequence[End], max_attempts: int, wish: ClaimRequest | None
    ) -> tuple[set[tuple[str, int]], list[Claimed]]:
        """`finish`, then `claim`, in one transaction: an agent does both for every candidate."""

        def work(connection: Connection) -> tuple[set[tuple[str, int]], list[Claimed]]:
            moves: list[CandidateMove] = []
            taken: set[tuple[str, int]] = set()
            for end in ends:
                move = finish_row(connection, end, max_attempts)
                if move is not None:
                    taken.add((end.id, end.attempt))
                    moves.append(move)
            claimed = claim_rows(connection, wish) if wish is not None else []
            moves += [CandidateMove(row.search_id, row.number, row.attempt, S.RUNNING) for row in claimed]
            moved(connection, moves)
            return taken, claimed

        return self.database.write(work)

    def begin_evaluation(self, key: tuple[str, int], directory: str) -> tuple[str | None, bool]:
        """Notes which job evaluates a row that its agent is done with.

        Returns the outcome of a row of the same search that the same job evaluated, if there is one, and
        whether another worker runs that job now: then nothing is noted, and the caller asks again.
        """

        def work(connection: Connection) -> tuple[str | None, bool]:
            row_id, attempt = key
            mine = update(evolution_jobs).where(
                jobs.id == row_id, is_status(S.RUNNING), jobs.attempt == attempt
            )
            noted = mine.values(directory=directory).returning(jobs.search_id, jobs.worker)
            row = connection.execute(noted).one_or_none()
            if row is None:
                return None, False
            locked(connection, row.search_id)  # so that of two that begin at once, one sees the other
            same = (jobs.search_id == row.search_id, jobs.directory == directory)
            outcome = select(jobs.outcome).where(is_status(S.SUCCEEDED), *same).limit(1)
            found: str | None = connection.execute(outcome).scalar_one_or_none()
            other = select(jobs.id).where(is_status(S.RUNNING), jobs.worker != row.worker, *same).limit(1)
            is_elsewhere = found is None and connection.execute(other).one_or_none() is not None
            if is_elsewhere:
                connection.execute(mine.values(directory=None))
            return found, is_elsewhere

        return self.database.write(work)

    def renew(self, worker: str, held: Iterable[tuple[str, int]], lease_ms: int) -> set[tuple[str, int]]:
        """Prolongs the leases of the rows that a worker holds; returns those that are still its own."""
        keys = list(held)
        if not keys:
            return set()
        statement = (
            update(evolution_jobs)
            .where(is_status(S.RUNNING), jobs.worker == worker, ROWS.held(keys))
            .values(lease_until=now_ms() + lease_ms)
            .returning(jobs.id, jobs.attempt)
        )
        return self.database.write(
            lambda connection: {(row.id, row.attempt) for row in connection.execute(statement)}
        )

    def own(self, worker: str) -> set[tuple[str, int]]:
        """The rows that a worker holds, as the database has them."""
        query = select(jobs.id, jobs.attempt).where(is_status(S.RUNNING), jobs.worker == worker)
        return self.database.read(
            lambda connection: {(row.id, row.attempt) for row in connection.execute(query)}
        )

    def give_back(self, held: Iterable[tuple[str, int]]) -> int:
        """Returns rows whose payloads were stopped to PENDING; that costs them no attempt."""
        keys = list(held)
        if not keys:
            return 0

        def work(connection: Connection) -> int:
            statement = (
                update(evolution_jobs)
                .where(is_status(S.RUNNING), ROWS.held(keys))
                .values(attempt=jobs.attempt - 1, **RETURNED)
                .returning(jobs.search_id, jobs.number, jobs.attempt)
            )
            return moved(connection, moves_of(connection.execute(statement), S.PENDING, "given back"))

        return self.database.write(work)

    def recover(self, max_attempts: int, dead: Collection[str] = ()) -> int:
        """Takes back the rows whose lease is over; lost too often, they failed.

        `dead`: workers of this workspace that are known to be dead. Their jobs go on and are adopted, so that
        costs a row no attempt, and its next claim has the same number: nothing of theirs is to be fenced. A
        row whose workers die ten times as often as it may be tried ends all the same.
        """

        def work(connection: Connection) -> int:
            moves = take_back(connection, dead, max_attempts * DEATHS_AN_ATTEMPT) if dead else []
            rows = connection.execute(OVER).all()
            again = [row for row in rows if row.attempt < max_attempts]
            lost = [row for row in rows if row.attempt >= max_attempts]
            message = f"its worker was lost {max_attempts} times"
            for group, values in ((again, RETURNED), (lost, {**LOST_VALUES, "message": message})):
                if group:
                    ids = [row.id for row in group]
                    connection.execute(update(evolution_jobs).where(jobs.id.in_(ids)).values(values))
            moves += moves_of(again, S.PENDING, "its worker was lost") + moves_of(lost, S.FAILED, LOST)
            return moved(connection, moves)

        return self.database.write(work)
