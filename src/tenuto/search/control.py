"""The rows of a search as people change them: paused, drained, cancelled, retried, given a priority, removed.
Each method is one transaction and returns what it changed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, delete, func, select, update

from tenuto.database import Database, now_ms
from tenuto.lifecycle.evolution import SEARCH_TRANSITIONS, EvolutionStatus, SearchState, before
from tenuto.search.moves import bump, record, wake_search
from tenuto.search.tables import evolution_jobs, evolution_points, jobs, searches

S = EvolutionStatus


class ControlStore:
    """What a person does to searches and candidates."""

    database: Database

    def names(self) -> list[str]:
        """The searches, the oldest first."""
        query = select(searches.c.id).order_by(searches.c.created_at, searches.c.id)
        return self.database.read(lambda connection: list(connection.execute(query).scalars()))

    def set_state(self, name: str, state: SearchState, message: str | None = None) -> bool:
        """Pauses or resumes a search; False if it may not go there from where it is.

        `message`: why it pauses, if no person asked for it.
        """

        def work(connection: Connection) -> bool:
            allowed = [one.value for one in SearchState if state in SEARCH_TRANSITIONS[one]]
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
            lambda connection: _cancel(connection, name, numbers, before(S.CANCELLED), message)
        )

    def retry(self, name: str, numbers: Collection[int] | None) -> int:
        """Tries failed and cancelled candidates again; None: all that failed."""

        def work(connection: Connection) -> int:
            condition = [jobs.search_id == name]
            if numbers is None:
                condition.append(jobs.status == S.FAILED.value)
            else:
                condition += [jobs.number.in_(numbers), jobs.status.in_([s.value for s in _ENDED_BADLY])]
            statement = (
                update(evolution_jobs)
                .where(*condition)
                .values(
                    status=S.PENDING.value,
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
                connection.execute(
                    update(searches)
                    .where(searches.c.id == name, searches.c.state.in_(["ENDED", "DRAINING"]))
                    .values(state=SearchState.RUNNING.value, reason=None, message=None, ended_at=None)
                )
                bump(connection, name)
                wake_search(connection, name)
            return len(rows)

        return self.database.write(work)

    def set_priority(self, name: str, number: int, priority: int) -> bool:
        """Gives a candidate that waits another priority."""

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


_ENDED_BADLY = (S.FAILED, S.CANCELLED)


def cancel_waiting(connection: Connection, name: str, message: str) -> int:
    """Cancels what is PENDING or QUEUED, inside a transaction."""
    return _cancel(connection, name, None, (S.PENDING, S.QUEUED), message)


def _cancel(
    connection: Connection,
    name: str,
    numbers: Collection[int] | None,
    statuses: Collection[EvolutionStatus],
    message: str,
) -> int:
    condition: list[Any] = [jobs.search_id == name, jobs.status.in_([status.value for status in statuses])]
    if numbers is not None:
        condition.append(jobs.number.in_(numbers))
    statement = (
        update(evolution_jobs)
        .where(*condition)
        .values(
            status=S.CANCELLED.value,
            completed_at=now_ms(),
            lease_until=None,
            failure=S.CANCELLED.value,
            message=message,
            cost=0.0,
        )
        .returning(jobs.number, jobs.attempt)
    )
    rows = connection.execute(statement).all()
    if rows:
        record(connection, name, rows, S.CANCELLED, message)
        bump(connection, name)
        wake_search(connection, name)
    return len(rows)
