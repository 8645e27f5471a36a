"""The requests of users: the only SQL on jobs, each call one transaction.
Decides nothing that `decisions` can, and touches no file and no node.

Every move is a compare-and-set on (id, state, claim): of a row that another server changed meanwhile nothing
is changed, and None is returned. What is inserted has a name chosen before (`directory`), so that a
transaction that is repeated after a lost connection does not insert twice.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    Connection,
    bindparam,
    case,
    func,
    literal_column,
    select,
    text,
    update,
)

from tenuto.database import Database, Prepared, announce, now_ms
from tenuto.database.members import MemberKind, members
from tenuto.lifecycle.service import SERVICE_TRANSITIONS, ServiceState, check_move
from tenuto.service import usage
from tenuto.service.decisions import ActiveJob, QueueView, Quota, next_jobs
from tenuto.service.fair_share import (
    active_jobs,
    competitors,
    is_queued,
    jobs_at_nodes,
    line_of,
    queued_jobs,
    queues_of,
    set_turn,
    take_turns,
)
from tenuto.service.rows import NO_LIMITS, JobRow, Move, NewJob, Page, UserLimits
from tenuto.service.statements import (
    ADD,
    BY_DIRECTORY,
    BY_ID,
    BY_ID_LOCKED,
    BY_KEY,
    CLAIM,
    SWAP,
    SWAP_COMPLETED,
    SWAP_ENDED,
    SWAP_STARTED,
    job_found,
    job_of,
    move_of,
    note_end,
    now,
    record,
    record_claims,
    rehearse,
    swapped,
)
from tenuto.service.tables import HAS_ENDED, IS_ACTIVE, QUEUED, jobs, moves

QUEUE_CHANNEL = "service_queue"
"""Announced when a job may be claimed: one came in, or a place became free."""
MOVES_CHANNEL = "service_moves"
"""Announced when a job moved."""


class TooManyQueued(Exception):
    """A user has as many jobs in the queue as may wait."""


class TooManyBytes(Exception):
    """A user has as many bytes here as may be stored, or would have; the message says how many are there."""


Planning = Callable[[Mapping[str, int]], Sequence[str | None]]
"""The nodes for the next jobs, in order, given how many jobs each node has in hand."""


class Requests:
    """The jobs of one database, as one server sees them. Every method blocks: call it in a thread."""

    def __init__(self, database: Database, server_id: str) -> None:
        self.database = database
        self.server_id = server_id

    def now(self) -> int:
        """The database's clock."""
        return self.database.read(now)

    def rehearse(self) -> None:
        """Makes the statements of a job's way ready; changes nothing."""
        self.database.write(rehearse)

    # Coming in

    def add(self, new: NewJob, limits: UserLimits = NO_LIMITS) -> tuple[JobRow, bool]:
        """The row of an upload, and whether it is new: a key that the user gave before leads to the first.

        ``limits`` of its user: `TooManyQueued` or `TooManyBytes` if one is reached.
        """

        def once(connection: Connection) -> tuple[JobRow, bool]:
            known = job_found(connection, BY_DIRECTORY, {"job": new.directory})
            if known is not None:  # a commit whose answer was lost
                return known, True
            if new.idempotency_key is not None:
                same = {"user": new.user_id, "key": new.idempotency_key}
                _lock_key(connection, new)
                if (known := job_found(connection, BY_KEY, same)) is not None:
                    return known, False
            if limits.queued is not None or limits.stored_bytes is not None:
                _lock_user(connection, new.user_id)
                _check_limits(connection, new, limits)
            row = job_of(ADD.rows(connection, new._asdict())[0])
            record(connection, row.id, ServiceState.QUEUED, "", row.created_at)
            announce(connection, QUEUE_CHANNEL)
            return row, True

        return self.database.write(once)

    def with_key(self, user_id: str, key: str) -> JobRow | None:
        """The job that a user uploaded with this idempotency key."""
        same = {"user": user_id, "key": key}
        return self.database.read(lambda connection: job_found(connection, BY_KEY, same))

    # Looking

    def get(self, job_id: int) -> JobRow | None:
        """The row of a job."""
        return self.database.read(lambda connection: job_found(connection, BY_ID, {"job": job_id}))

    def listed(self, page: Page) -> list[JobRow]:
        """The rows of a page, the newest first."""
        query = select(jobs).order_by(jobs.c.id.desc()).limit(page.limit)
        for column, value in (("user_id", page.user_id), ("service", page.service)):
            if value is not None:
                query = query.where(jobs.c[column] == value)
        if page.state is not None:
            query = query.where(jobs.c.state == page.state.value)
        if page.before is not None:
            query = query.where(jobs.c.id < page.before)
        return self.database.read(lambda connection: [job_of(row) for row in connection.execute(query)])

    def active(self, service: str) -> list[ActiveJob]:
        """The active jobs of a service."""
        return self.database.read(lambda connection: competitors(connection, service))

    def line(self, row: JobRow, known: QueueView | None = None) -> QueueView:
        """The queue that a queued job waits in; ``known``: as another job of it saw it just now."""
        return self.database.read(lambda connection: line_of(connection, row, known))

    def moves_of(self, job_id: int, after: int = 0) -> list[Move]:
        """The moves of a job since the one with this id."""
        query = select(moves).where(moves.c.job_id == job_id, moves.c.id > after).order_by(moves.c.id)
        return self.database.read(lambda connection: [move_of(row) for row in connection.execute(query)])

    def moved_since(self, after: int) -> list[tuple[int, int]]:
        """(id of the move, job) of the moves since the one with this id."""
        query = select(moves.c.id, moves.c.job_id).where(moves.c.id > after).order_by(moves.c.id)
        return self.database.read(lambda connection: [(row[0], row[1]) for row in connection.execute(query)])

    def last_move(self) -> int:
        """The id of the last move of all."""
        query = select(func.coalesce(func.max(moves.c.id), 0))
        return self.database.read(lambda connection: int(connection.execute(query).scalar_one()))

    def counts(self) -> dict[tuple[str, ServiceState], int]:
        """How many jobs of each service are in each state."""
        query = select(jobs.c.service, jobs.c.state, func.count()).group_by(jobs.c.service, jobs.c.state)
        return self.database.read(
            lambda connection: {(row[0], ServiceState(row[1])): row[2] for row in connection.execute(query)}
        )

    def queue_ages(self) -> dict[str, float]:
        """How long the oldest queued job of each service has waited, in seconds."""
        first = select(func.min(jobs.c.id)).where(QUEUED).group_by(jobs.c.service)
        query = select(jobs.c.service, (now_ms() - jobs.c.created_at)).where(jobs.c.id.in_(first))
        return self.database.read(
            lambda connection: {row[0]: max(row[1], 0) / 1000 for row in connection.execute(query)}
        )

    # Claiming

    def claim(self, service: str, quota: Quota, plan: Sequence[str | None] | Planning) -> list[JobRow]:
        """Takes the next jobs of a service for this server, at most one for each of the nodes planned.

        `decisions.next_jobs` says which jobs are next; servers take turns at it, so that quotas hold for all.
        ``plan``: the nodes, or what they are for the jobs that each node has in hand.
        """

        def once(connection: Connection) -> list[JobRow]:
            take_turns(connection)
            nodes = plan(jobs_at_nodes(connection)) if callable(plan) else plan
            active = active_jobs(connection, service)
            most = min(len(nodes), quota.max_runs - sum(active.values()))
            if most <= 0:
                return []
            last_turn, queues = queues_of(connection, service, quota, active, most)
            chosen = next_jobs(queues, quota, sum(active.values()), most)
            users = {job: queue.user for queue in queues for job in queue.jobs}
            turns = {users[job_id]: turn for turn, job_id in enumerate(chosen, start=last_turn + 1)}
            for user, turn in turns.items():
                set_turn(connection, service, user, turn)
            return self._claimed(connection, dict(zip(chosen, nodes, strict=False)))

        def is_of_use(connection: Connection) -> bool:
            has_place = not callable(plan) or bool(plan(jobs_at_nodes(connection)))
            return has_place and is_queued(connection, service)

        if not self.database.read(is_of_use):
            return []  # without keeping other writers waiting
        return self.database.write(once)

    def _claimed(self, connection: Connection, chosen: Mapping[int, str | None]) -> list[JobRow]:
        """Claims jobs for their nodes, but for those that a user ended since the queue was read."""
        if not chosen:
            return []
        claimed_at, rows = now(connection), []
        for job_id, node in chosen.items():
            values = {"job": job_id, "now": claimed_at, "server_id": self.server_id, "node": node}
            row = job_found(connection, CLAIM, values)
            if row is not None:
                rows.append(row)
        if rows:
            record_claims(connection, rows, claimed_at)
            announce(connection, MOVES_CHANNEL)
        return rows

    def mine(self) -> list[JobRow]:
        """The active jobs that this server has claimed."""
        query = select(jobs).where(IS_ACTIVE, jobs.c.server_id == self.server_id).order_by(jobs.c.id)
        return self.database.read(lambda connection: [job_of(row) for row in connection.execute(query)])

    def unwanted(self) -> list[int]:
        """The active jobs of this server whose end was asked for."""
        query = select(jobs.c.id).where(IS_ACTIVE, jobs.c.server_id == self.server_id)
        query = query.where(jobs.c.terminate_at.is_not(None)).order_by(jobs.c.id)
        return self.database.read(lambda connection: list(connection.execute(query).scalars()))

    def take_over(self) -> list[JobRow]:
        """Claims the active jobs of servers that are no members: they left, died, or never joined."""
        alive = select(members.c.id).where(members.c.kind == MemberKind.SERVER.value)
        theirs = (jobs.c.server_id != self.server_id) & jobs.c.server_id.not_in(alive)
        query = update(jobs).where(IS_ACTIVE, theirs)
        query = query.values(claim=jobs.c.claim + 1, server_id=self.server_id)

        def once(connection: Connection) -> list[JobRow]:
            return [job_of(row) for row in connection.execute(query.returning(*jobs.c))]

        return sorted(self.database.write(once), key=lambda row: row.id)

    # Moving

    def move(self, row: JobRow, to: ServiceState, message: str = "", **values: Any) -> JobRow | None:
        """Moves a job, if it is still as the row says; None if another server changed it.

        ``values``: further columns. `IllegalTransition` if the table of states forbids the move.
        """
        check_move(SERVICE_TRANSITIONS, row.state, to)

        def once(connection: Connection) -> JobRow | None:
            statement = _stamping(to)
            moved = swapped(connection, row, {**values, "state": to.value, "message": message}, statement)
            if moved is None:
                # A commit whose answer was lost has moved it already.
                known = job_found(connection, BY_ID, {"job": row.id})
                return known if known is not None and _shows(known, row, to, message) else None
            ended_at = moved.ended_at if to is not ServiceState.CLEANED else None
            record(connection, row.id, to, message, ended_at)
            if to.is_final and to is not ServiceState.CLEANED:
                note_end(connection, moved)
            announce(connection, MOVES_CHANNEL)
            if row.state.is_active and not to.is_active:
                announce(connection, QUEUE_CHANNEL)
            return moved

        return self.database.write(once)

    def requeue(self, row: JobRow, message: str, wait_ms: int) -> JobRow | None:
        """Puts a job that was certainly not sent back into the queue, for any node, after a while."""

        def once(connection: Connection) -> JobRow | None:
            queued_at = now(connection)
            values = {
                "state": ServiceState.QUEUED.value,
                "message": message,
                "server_id": None,
                "node": None,
                "ready_at": queued_at + wait_ms,
            }
            moved = swapped(connection, row, values)
            if moved is not None:
                record(connection, row.id, ServiceState.QUEUED, message, queued_at)
                announce(connection, MOVES_CHANNEL)
                announce(connection, QUEUE_CHANNEL)
            return moved

        return self.database.write(once)

    def update(self, row: JobRow, **values: Any) -> JobRow | None:
        """Changes columns of a job that stays in its state, if it is still as the row says."""
        return self.database.write(lambda connection: swapped(connection, row, values))

    def terminate(self, job_id: int) -> JobRow | None:
        """Asks for the end of a job: a queued one is Killed at once, of an active one the wish is noted.

        The row afterwards; a final one is left as it is. None if there is no such job.
        """

        def once(connection: Connection) -> JobRow | None:
            # Locked: a wish that is compared with a state that a server leaves just then would be lost.
            row = job_found(connection, BY_ID_LOCKED, {"job": job_id})
            if row is None or row.state.is_final:
                return row
            asked_at = now(connection)
            values: dict[str, Any] = {"terminate_at": row.terminate_at or asked_at}
            if row.state is ServiceState.QUEUED:
                values |= {"state": ServiceState.KILLED.value, "message": TERMINATED, "ended_at": asked_at}
                record(connection, job_id, ServiceState.KILLED, TERMINATED, asked_at)
            announce(connection, MOVES_CHANNEL)
            asked = swapped(connection, row, values)
            if asked is not None and asked.state.is_final:
                note_end(connection, asked)
            return asked

        return self.database.write(once)

    # Cleaning

    def old(self, max_age_ms: int, limit: int = 100) -> list[JobRow]:
        """Jobs that ended longer ago than this and still have their files."""
        query = select(jobs).where(HAS_ENDED, jobs.c.ended_at < now_ms() - max_age_ms)
        query = query.order_by(jobs.c.ended_at).limit(limit)
        return self.database.read(lambda connection: [job_of(row) for row in connection.execute(query)])

    def forget(self, age_ms: int, limit: int = 1000) -> int:
        """Deletes the rows of cleaned jobs that ended longer ago than this; how many. Their usage stays."""
        return self.database.write(lambda connection: usage.forget(connection, now_ms() - age_ms, limit))

    def states_of(self, directories: Sequence[str]) -> dict[str, ServiceState]:
        """The states of the jobs that these directories belong to; one without a job is left out."""
        query = select(jobs.c.directory, jobs.c.state).where(jobs.c.directory.in_(list(directories)))
        return self.database.read(
            lambda connection: {row[0]: ServiceState(row[1]) for row in connection.execute(query)}
        )


TERMINATED = "job terminated"


def _stamping(to: ServiceState) -> Prepared:
    """The compare-and-set that notes the instant of a move, where the row has a column for it."""
    if to is ServiceState.RUNNING:
        return SWAP_STARTED
    if to is ServiceState.COMPLETED:
        return SWAP_COMPLETED
    return SWAP_ENDED if to.is_final and to is not ServiceState.CLEANED else SWAP


def _shows(known: JobRow, row: JobRow, to: ServiceState, message: str) -> bool:
    return (known.state, known.claim, known.message) == (to, row.claim, message)


_STORED = Prepared(
    select(
        func.coalesce(
            func.sum(
                case(
                    (HAS_ENDED, func.coalesce(jobs.c.result_bytes, 0)),
                    else_=func.coalesce(jobs.c.bytes_in, 0),
                )
            ),
            0,
        )
    ).where(jobs.c.user_id == bindparam("user"), jobs.c.state != literal_column("'Cleaned'"))
)
"""The bytes of a user's jobs here: of those that have ended the results, of the others what was uploaded."""


def _check_limits(connection: Connection, new: NewJob, limits: UserLimits) -> None:
    if limits.queued is not None and queued_jobs(connection, new.user_id, limits.queued) >= limits.queued:
        raise TooManyQueued(new.user_id)
    if limits.stored_bytes is not None:
        stored = int(_STORED.rows(connection, {"user": new.user_id})[0][0])
        if stored + (new.bytes_in or 0) > limits.stored_bytes:
            raise TooManyBytes(str(stored))


def _lock_user(connection: Connection, user_id: str) -> None:
    """Lets uploads of one user be counted one after the other; SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        key = zlib.crc32(f"tenuto user {user_id}".encode())
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})


def _lock_key(connection: Connection, new: NewJob) -> None:
    if connection.dialect.name == "postgresql":
        key = zlib.crc32(f"tenuto key {new.user_id} {new.idempotency_key}".encode())
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})
