"""The requests of users: the only SQL on jobs, each call one transaction.
Decides nothing that `decisions` can, and touches no file and no node.

A new row has a name chosen before (`directory`), so that a transaction that is repeated after a lost
connection does not insert twice. Statements are made once: to build one costs more than to run it.
"""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, Select, bindparam, case, delete, func, insert, literal_column, select, text

from tenuto.database import (
    Database,
    Member,
    MemberKind,
    Prepared,
    RowTable,
    announce,
    be_seen,
    dismiss,
    join,
    leave,
    listed,
    now_ms,
    unseen,
)
from tenuto.lifecycle.service import SERVICE_TRANSITIONS, ServiceState
from tenuto.service import usage
from tenuto.service.decisions import ActiveJob, QueueView, Quota, next_jobs
from tenuto.service.fair_share import (
    STALE,
    UNNOTED,
    active_jobs,
    competitors,
    is_queued,
    jobs_at_nodes,
    join_queue,
    line_of,
    note_queue,
    now,
    queued_jobs,
    queues_of,
    take_turns,
)
from tenuto.service.rows import NO_LIMITS, JobRow, Move, NewJob, Page, UserLimits, instant, job_of, move_of
from tenuto.service.tables import HAS_ENDED, IS_ACTIVE, QUEUED, callbacks, jobs, moves, nodes
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import Liveness
from tenuto.workspace.processes import liveness_of, process_text

QUEUE_CHANNEL = "service_queue"
"""Announced when a job may be claimed: one came in, or a place became free."""
MOVES_CHANNEL = "service_moves"
"""Announced when a job moved."""

ROWS = RowTable(jobs, SERVICE_TRANSITIONS, fence="claim", owner="server_id", moves=moves)
_BY_ID = select(jobs).where(jobs.c.id == bindparam("job"))
BY_ID = Prepared(_BY_ID)
BY_ID_LOCKED = Prepared(_BY_ID.with_for_update())
BY_DIRECTORY = Prepared(select(jobs).where(jobs.c.directory == bindparam("job")))
BY_KEY = Prepared(
    select(jobs).where(jobs.c.user_id == bindparam("user"), jobs.c.idempotency_key == bindparam("key"))
)
ADD = Prepared(
    insert(jobs)
    .values(state=ServiceState.QUEUED.value, created_at=now_ms(), ready_at=now_ms())
    .returning(*jobs.c)
)
CLAIM = Prepared(
    ROWS.claim(
        ServiceState.PROCESSING,
        QUEUED,
        jobs.c.id == bindparam("job"),
        message="",
        tried_at=func.coalesce(jobs.c.tried_at, bindparam("now")),
    ).returning(*jobs.c)
)
_STARTED = func.coalesce(jobs.c.started_at, now_ms())
SWAP = ROWS.swap()
SWAP_QUEUED = ROWS.swap(server_id=None, node=None, ready_at=now_ms() + bindparam("wait_ms", 0))
SWAP_STARTED = ROWS.swap(started_at=_STARTED)
SWAP_ENDED = ROWS.swap(ended_at=now_ms())
SWAP_COMPLETED = ROWS.swap(started_at=_STARTED, ended_at=now_ms())
"""Of a job too short to be seen running, too, it is known that it started."""
_STAMPING = {
    ServiceState.QUEUED: SWAP_QUEUED,
    ServiceState.RUNNING: SWAP_STARTED,
    ServiceState.COMPLETED: SWAP_COMPLETED,
    **dict.fromkeys((ServiceState.FAILED, ServiceState.INVALID, ServiceState.KILLED), SWAP_ENDED),
}
"""State -> the compare-and-set that notes the instant of the move, where the row has a column for it."""

_NO_JOB = {"the_row": 0, "known_state": "", "known_fence": 0, "state": "", "message": ""}
_REHEARSED = (
    (BY_ID, {"job": 0}),
    (BY_DIRECTORY, {"job": ""}),
    (CLAIM, {"job": 0, "now": 0, "server_id": "", "node": ""}),
    (SWAP, {**_NO_JOB, "payload_id": 0}),
    (SWAP_STARTED, _NO_JOB),
    (
        SWAP_COMPLETED,
        {**_NO_JOB, "exit_code": 0, "result_bytes": 0, "result_sha256": "", "cpu_s": 0.0, "memory_peak": 0},
    ),
)


_LAST_ID = {
    "sqlite": text("SELECT seq FROM sqlite_sequence WHERE name = 'jobs'"),
    "postgresql": text("SELECT pg_sequence_last_value(pg_get_serial_sequence('jobs', 'id'))"),
}
_COUNT_ON = {
    "sqlite": (
        "DELETE FROM sqlite_sequence WHERE name = 'jobs'",
        "INSERT INTO sqlite_sequence (name, seq) VALUES ('jobs', :last)",
    ),
    "postgresql": ("SELECT setval(pg_get_serial_sequence('jobs', 'id'), :last)",),
}
"""How a database gives numbers to jobs."""


class TooManyQueued(Exception):
    """A user has as many jobs in the queue as may wait."""


class TooManyBytes(Exception):
    """A user has as many bytes here as may be stored, or would have; the message says how many are there."""


_LONGEST_HOST = 255
R = TypeVar("R")
Planning = Callable[[Mapping[str, int]], Sequence[str | None]]
"""The nodes for the next jobs, in order, given how many jobs each node has in hand."""


class Requests:
    """The jobs of one database, as one server sees them. Every method blocks: call it in a thread."""

    def __init__(self, database: Database, server_id: str) -> None:
        self.database = database
        self.server_id = server_id
        own = this_machine().processes.own()
        self._member = Member(server_id, MemberKind.SERVER, socket.gethostname(), process_text(own))

    def now(self) -> int:
        """The database's clock."""
        return self.database.read(now)

    def rehearse(self) -> None:
        """Has the statements of a job's way compiled, for a job that is not there; changes nothing."""

        def once(connection: Connection) -> None:
            for statement, values in _REHEARSED:
                statement.rows(connection, values)

        self.database.write(once)

    def _read(self, query: Select[Any], make: Callable[[Any], R]) -> list[R]:
        return self.database.read(lambda connection: [make(row) for row in connection.execute(query)])

    # Members

    def be_seen(self) -> None:
        """Says that this server lives; it joins the members if it was taken for dead, or begins."""
        self.database.write(lambda connection: be_seen(connection, self._member))

    def servers(self, for_ms: int) -> tuple[dict[str, int], list[str]]:
        """The last beat of each server, and the servers whose last one is so long ago."""

        def once(connection: Connection) -> tuple[dict[str, int], list[str]]:
            shown = {server.id: server.seen_at for server in listed(connection, MemberKind.SERVER)}
            return shown, [server.id for server in unseen(connection, MemberKind.SERVER, for_ms)]

        return self.database.read(once)

    def is_served(self, for_ms: int) -> bool:
        """Whether a server was seen lately, and its process is not known to be gone."""

        def once(connection: Connection) -> list[Member]:
            late = {server.id for server in unseen(connection, MemberKind.SERVER, for_ms)}
            return [one for one in listed(connection, MemberKind.SERVER) if one.id not in late]

        processes, gone = this_machine().processes, (Liveness.DEAD, Liveness.REBOOTED)
        return any(liveness_of(processes, one.process) not in gone for one in self.database.read(once))

    def dismiss(self, beats: Mapping[str, int]) -> None:
        """Takes servers off the list of members that have shown no other beat since."""
        self.database.write(lambda connection: dismiss(connection, beats))

    def leave(self) -> None:
        """Takes this server off the list: other servers take over its claims."""
        self.database.write(lambda connection: leave(connection, self.server_id))

    # Coming in

    def add(self, new: NewJob, limits: UserLimits = NO_LIMITS) -> tuple[JobRow, bool]:
        """The row of an upload, and whether it is new: a key that the user gave before leads to the first.

        ``limits`` of its user: `TooManyQueued` or `TooManyBytes` if one is reached.
        """

        def once(connection: Connection) -> tuple[JobRow, bool]:
            known = _found(connection, BY_DIRECTORY, {"job": new.directory})
            if known is not None:  # a commit whose answer was lost
                return known, True
            if new.idempotency_key is not None:
                same = {"user": new.user_id, "key": new.idempotency_key}
                take_turns(connection, f"key {new.user_id} {new.idempotency_key}")
                if (known := _found(connection, BY_KEY, same)) is not None:
                    return known, False
            if limits.queued is not None or limits.stored_bytes is not None:
                take_turns(connection, f"user {new.user_id}")
                _check_limits(connection, new, limits)
            row = job_of(ADD.rows(connection, new._asdict())[0])
            join_queue(connection, row.service, row.user_id, row.id)
            _record(connection, [row], row.created_at)
            announce(connection, QUEUE_CHANNEL)
            return row, True

        return self.database.write(once)

    # Looking

    def get(self, job_id: int) -> JobRow | None:
        """The row of a job."""
        return self.database.read(lambda connection: _found(connection, BY_ID, {"job": job_id}))

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
        return self._read(query, job_of)

    def active(self, service: str) -> tuple[list[ActiveJob], dict[str, int]]:
        """The active jobs of a service, and how many each node has of all services."""
        return self.database.read(
            lambda connection: (competitors(connection, service), jobs_at_nodes(connection))
        )

    def line(self, row: JobRow, known: QueueView | None = None) -> QueueView:
        """The queue that a queued job waits in; ``known``: as another job of it saw it just now."""
        return self.database.read(lambda connection: line_of(connection, row, known))

    def moves_of(self, job_id: int, after: int = 0) -> list[Move]:
        """The moves of a job since the one with this id."""
        query = select(moves).where(moves.c.job_id == job_id, moves.c.id > after).order_by(moves.c.id)
        return self._read(query, move_of)

    def moved_since(self, after: int) -> list[tuple[int, int, str | None]]:
        """(id, job, its directory if it ended in the queue) of the moves since the one with this id."""
        is_end = (moves.c.state == ServiceState.KILLED.value) & jobs.c.server_id.is_(None)
        query = select(moves.c.id, moves.c.job_id, case((is_end, jobs.c.directory))).join(jobs)
        return self._read(query.where(moves.c.id > after).order_by(moves.c.id), tuple)

    def last_move(self) -> int:
        """The id of the last move of all."""
        query = select(func.coalesce(func.max(moves.c.id), 0))
        return self._read(query, lambda row: int(row[0]))[0]

    def count_on(self, last: int) -> bool:
        """Gives no number up to ``last`` any more; True if it would have given one."""

        def once(connection: Connection) -> bool:
            take_turns(connection)
            known = int(connection.execute(_LAST_ID[connection.dialect.name]).scalar() or 0)
            if known >= last:
                return False
            for statement in _COUNT_ON[connection.dialect.name]:
                connection.execute(text(statement), {"last": last})
            return True

        return self.database.write(once)

    def counts(self) -> dict[tuple[str, ServiceState], int]:
        """How many jobs of each service are in each state."""
        query = select(jobs.c.service, jobs.c.state, func.count()).group_by(jobs.c.service, jobs.c.state)
        return dict(self._read(query, lambda row: ((row[0], ServiceState(row[1])), row[2])))

    def queue_ages(self) -> dict[str, float]:
        """How long the oldest queued job of each service has waited, in seconds."""
        first = select(func.min(jobs.c.id)).where(QUEUED).group_by(jobs.c.service)
        query = select(jobs.c.service, (now_ms() - jobs.c.created_at)).where(jobs.c.id.in_(first))
        return dict(self._read(query, lambda row: (row[0], max(row[1], 0) / 1000)))

    # Claiming

    def claim(self, service: str, quota: Quota, plan: Sequence[str | None] | Planning) -> list[JobRow]:
        """Takes the next jobs of a service for this server, at most one for each of the nodes planned.

        `decisions.next_jobs` says which jobs are next; servers take turns at it, so that quotas hold for all.
        ``plan``: the nodes, or what they are for the jobs that each node has in hand.
        """

        def once(connection: Connection) -> list[JobRow]:
            take_turns(connection)
            be_seen(connection, self._member)
            nodes = plan(jobs_at_nodes(connection)) if callable(plan) else plan
            active = active_jobs(connection, service)
            most = min(len(nodes), quota.max_runs - sum(active.values()))
            if most <= 0:
                return []
            last_turn, queues = queues_of(connection, service, quota, active, most)
            chosen = next_jobs(queues, quota, sum(active.values()), most)
            users = {job: queue.user for queue in queues for job in queue.jobs}
            turns = {users[job_id]: turn for turn, job_id in enumerate(chosen, start=last_turn + 1)}
            rows = self._claimed(connection, dict(zip(chosen, nodes, strict=False)))
            for user, turn in turns.items():
                note_queue(connection, service, user, turn=turn)
            return rows

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
            row = _found(connection, CLAIM, values)
            if row is not None:
                rows.append(row)
        if rows:
            _record(connection, rows, claimed_at)
            announce(connection, MOVES_CHANNEL)
        return rows

    def mine(self) -> list[JobRow]:
        """The active jobs that this server has claimed."""
        query = select(jobs).where(IS_ACTIVE, jobs.c.server_id == self.server_id).order_by(jobs.c.id)
        return self._read(query, job_of)

    def unwanted(self) -> list[int]:
        """The active jobs of this server whose end was asked for."""
        query = select(jobs.c.id).where(IS_ACTIVE, jobs.c.server_id == self.server_id)
        query = query.where(jobs.c.terminate_at.is_not(None)).order_by(jobs.c.id)
        return self._read(query, lambda row: row[0])

    def take_over(self) -> list[JobRow]:
        """Claims the active jobs of servers that are no members: they left, died, or never joined."""

        def once(connection: Connection) -> list[JobRow]:
            be_seen(connection, self._member)
            query = ROWS.take_over(self.server_id, MemberKind.SERVER, IS_ACTIVE)
            return [job_of(row) for row in connection.execute(query.returning(*jobs.c))]

        return sorted(self.database.write(once), key=lambda row: row.id)

    # Moving

    def move(self, row: JobRow, to: ServiceState, message: str = "", **values: Any) -> JobRow | None:
        """Moves a job, if it is still as the row says; None if another server changed it.

        ``values``: further columns. `IllegalTransition` if the table of states forbids the move.
        """
        ROWS.check(row.state, to)

        def once(connection: Connection) -> JobRow | None:
            statement = _STAMPING.get(to, SWAP)
            moved = _swapped(connection, row, {**values, "state": to.value, "message": message}, statement)
            if moved is None:
                # A commit whose answer was lost has moved it already.
                known = _found(connection, BY_ID, {"job": row.id})
                return known if known is not None and _shows(known, row, to, message) else None
            _record(connection, [moved], moved.ended_at if to is not ServiceState.CLEANED else None)
            if to.is_final and to is not ServiceState.CLEANED:
                _note_end(connection, moved)
            announce(connection, MOVES_CHANNEL)
            if to is ServiceState.QUEUED:
                join_queue(connection, row.service, row.user_id, row.id)
            elif row.state is ServiceState.QUEUED:
                note_queue(connection, row.service, row.user_id)
            if row.state.is_active and not to.is_active:
                announce(connection, QUEUE_CHANNEL)
            return moved

        return self.database.write(once)

    def requeue(self, row: JobRow, message: str, wait_ms: int) -> JobRow | None:
        """Puts a job that was certainly not sent back into the queue, for any node, after a while."""
        return self.move(row, ServiceState.QUEUED, message, wait_ms=wait_ms)

    def update(self, row: JobRow, **values: Any) -> JobRow | None:
        """Changes columns of a job that stays in its state, if it is still as the row says."""
        return self.database.write(lambda connection: _swapped(connection, row, values))

    def terminate(self, job_id: int) -> JobRow | None:
        """Asks for the end of a job: a queued one is Killed at once, of an active one the request is noted.

        The row afterwards; a final one is left as it is. None if there is no such job.
        """

        def once(connection: Connection) -> JobRow | None:
            # Locked: a request that is compared with a state that a server leaves just then would be lost.
            row = _found(connection, BY_ID_LOCKED, {"job": job_id})
            if row is None or row.state.is_final:
                return row
            asked_at = now(connection)
            values: dict[str, Any] = {"terminate_at": row.terminate_at or asked_at}
            if row.state is ServiceState.QUEUED:
                values |= {"state": ServiceState.KILLED.value, "message": TERMINATED, "ended_at": asked_at}
            announce(connection, MOVES_CHANNEL)
            asked = _swapped(connection, row, values)
            if asked is not None and asked.state.is_final:
                note_queue(connection, row.service, row.user_id)
                _record(connection, [asked], asked_at)
                _note_end(connection, asked)
            return asked

        return self.database.write(once)

    # Cleaning

    def note_queues(self) -> None:
        """Repairs the notes of queues that a server of an older version, which writes none, left wrong."""

        def once(connection: Connection) -> None:
            take_turns(connection)
            for service, user, oldest in UNNOTED.rows(connection):
                join_queue(connection, service, user, oldest)
            for service, user in STALE.rows(connection):
                note_queue(connection, service, user)

        if self.database.read(UNNOTED.rows) or self.database.read(STALE.rows):
            self.database.write(once)

    def old(self, max_age_ms: int, limit: int = 100) -> list[JobRow]:
        """Jobs that ended longer ago than this and still have their files."""
        found = self.database.read(lambda connection: ROWS.old(connection, HAS_ENDED, max_age_ms, limit))
        return [job_of(row) for row in found]

    def forget(self, age_ms: int, limit: int = 1000) -> int:
        """Deletes the rows of cleaned jobs that ended longer ago than this; how many. Their usage stays."""
        return self.database.write(lambda connection: usage.forget(connection, now_ms() - age_ms, limit))

    def states_of(self, directories: Sequence[str]) -> dict[str, ServiceState]:
        """The states of the jobs that these directories belong to; one without a job is left out."""
        query = select(jobs.c.directory, jobs.c.state).where(jobs.c.directory.in_(list(directories)))
        return dict(self._read(query, lambda row: (row[0], ServiceState(row[1]))))


TERMINATED = "job terminated"


def _found(connection: Connection, statement: Prepared, values: Mapping[str, Any]) -> JobRow | None:
    """The row that a statement finds or changes; None if there is none."""
    found = statement.row(connection, values)
    return None if found is None else job_of(found)


def _swapped(
    connection: Connection, row: JobRow, values: Mapping[str, Any], statement: Prepared = SWAP
) -> JobRow | None:
    """A job after a compare-and-set; None if another server changed it since the caller saw the row."""
    return _found(connection, statement, {**values, **ROWS.known(row.id, row.state, row.claim)})


def _record(connection: Connection, rows: Iterable[JobRow], at: int | None = None) -> None:
    """Notes the states that jobs have come to, as of now if no instant is given."""
    instant = {} if at is None else {"at": at}
    lines = [{"job_id": row.id, "state": row.state.value, "message": row.message, **instant} for row in rows]
    ROWS.record(connection, lines)


def _note_end(connection: Connection, row: JobRow) -> None:
    """Writes what the callback of a job is told, in the transaction that ends the job."""
    if row.callback is None:
        return
    said = {"id": row.id, "service": row.service, "status": row.state.value, "message": row.message}
    body = json.dumps({**said, "ended_at": instant(row.ended_at)})
    values = {"job_id": row.id, "url": row.callback, "body": body, "token_id": row.token_id}
    connection.execute(insert(callbacks).values(due_at=row.ended_at, **values))


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
"""The bytes of a user's jobs here: of those that have ended the results, of the others the uploads."""


def _check_limits(connection: Connection, new: NewJob, limits: UserLimits) -> None:
    if limits.queued is not None and queued_jobs(connection, new.user_id, limits.queued) >= limits.queued:
        raise TooManyQueued(new.user_id)
    if limits.stored_bytes is not None:
        stored = int(_STORED.rows(connection, {"user": new.user_id})[0][0])
        if stored + (new.bytes_in or 0) > limits.stored_bytes:
            raise TooManyBytes(str(stored))


# What servers learned of their nodes: for readers such as the monitor, which ask no node, and for jobs whose
# node has left the settings.


class NodeNote(NamedTuple):
    """A node as a server last met it; `seen_at` in milliseconds."""

    slots: int | None
    seen_at: int


def note_nodes(connection: Connection, answered: Mapping[str, int | None]) -> None:
    """Note the nodes that have just answered: name -> slots, where they are known."""
    for name, slots in answered.items():
        identity = hashlib.sha256(name.encode()).hexdigest()
        join(connection, Member(identity, MemberKind.NODE, name[:_LONGEST_HOST], "", slots=slots))


def noted_nodes(connection: Connection) -> dict[str, NodeNote]:
    """Every node that a server has noted, by its name."""
    found = listed(connection, MemberKind.NODE)
    return {member.host: NodeNote(member.slots, member.seen_at) for member in found}


class NodePlace(NamedTuple):
    """Where a node is, and the file that holds its secret."""

    name: str
    url: str
    token_file: str | None


def note_places(connection: Connection, places: Iterable[NodePlace]) -> None:
    """Note where the nodes of the settings are."""
    known = {place.name: place for place in _noted_places(connection)}
    for place in places:
        if known.get(place.name) != place:
            connection.execute(delete(nodes).where(nodes.c.name == place.name))
            connection.execute(insert(nodes).values(place._asdict()))


def busy_nodes(connection: Connection) -> dict[str, NodePlace | None]:
    """The nodes that have jobs, and where they are if that was noted; the settings may name others by now."""
    having = connection.execute(select(jobs.c.node).where(IS_ACTIVE, jobs.c.node.is_not(None)).distinct())
    found: dict[str, NodePlace | None] = dict.fromkeys(map(str, having.scalars()))
    return found | {place.name: place for place in _noted_places(connection) if place.name in found}


def _noted_places(connection: Connection) -> list[NodePlace]:
    return [NodePlace(*row) for row in connection.execute(select(*nodes.c))]
