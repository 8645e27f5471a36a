"""The statements on one job, made once: to build and to key one for each call costs more than to run it.
Begins no transaction; `requests` does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, insert, select, update

from tenuto.database import Prepared, now_ms
from tenuto.lifecycle.service import ServiceState
from tenuto.service.rows import JobRow, Move, instant
from tenuto.service.tables import QUEUED, callbacks, jobs, moves

_NOW = Prepared(select(now_ms()))

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
    update(jobs)
    .where(QUEUED, jobs.c.id == bindparam("job"))
    .values(
        state=ServiceState.PROCESSING.value,
        message="",
        claim=jobs.c.claim + 1,
        tried_at=func.coalesce(jobs.c.tried_at, bindparam("now")),
    )
    .returning(*jobs.c)
)

_SWAP = (
    update(jobs)
    .where(
        jobs.c.id == bindparam("job"),
        jobs.c.state == bindparam("known_state"),
        jobs.c.claim == bindparam("known_claim"),
    )
    .returning(*jobs.c)
)
"""The compare-and-set of any columns: changes a row that is still in the state and claim that are known."""
SWAP = Prepared(_SWAP)
SWAP_STARTED = Prepared(_SWAP.values(started_at=func.coalesce(jobs.c.started_at, now_ms())))
SWAP_ENDED = Prepared(_SWAP.values(ended_at=now_ms()))
SWAP_COMPLETED = Prepared(
    _SWAP.values(started_at=func.coalesce(jobs.c.started_at, now_ms()), ended_at=now_ms())
)
"""Of a job too short to be seen running, too, it is known that it started."""

_NO_JOB = {"job": 0, "known_state": "", "known_claim": 0, "state": "", "message": ""}
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

_RECORD = Prepared(insert(moves))
_RECORD_NOW = Prepared(insert(moves).values(at=now_ms()))

_STATE = JobRow._fields.index("state")
_MOVE_STATE = Move._fields.index("state")


def rehearse(connection: Connection) -> None:
    """Has statements compiled, for a job that is not there: the first job need not wait for that."""
    for statement, values in _REHEARSED:
        statement.rows(connection, values)


def now(connection: Connection) -> int:
    """The database's clock."""
    return int(_NOW.rows(connection)[0][0])


def job_of(row: Sequence[Any]) -> JobRow:
    """A row of the table as a value."""
    values = list(row)
    values[_STATE] = ServiceState(values[_STATE])
    return JobRow(*values)


def move_of(row: Row[Any]) -> Move:
    """A row of the table of moves as a value."""
    values = list(row)
    values[_MOVE_STATE] = ServiceState(values[_MOVE_STATE])
    return Move(*values)


def job_found(connection: Connection, statement: Prepared, values: Mapping[str, Any]) -> JobRow | None:
    """The row that a statement finds or changes; None if there is none."""
    found = statement.row(connection, values)
    return None if found is None else job_of(found)


def swapped(
    connection: Connection, row: JobRow, values: Mapping[str, Any], statement: Prepared = SWAP
) -> JobRow | None:
    """A job after a compare-and-set; None if another server changed it since the caller saw the row."""
    known = {"job": row.id, "known_state": row.state.value, "known_claim": row.claim}
    return job_found(connection, statement, {**values, **known})


def record(
    connection: Connection, job_id: int, state: ServiceState, message: str, at: int | None = None
) -> None:
    """Notes a move, as of now if no instant is given."""
    values = {"job_id": job_id, "state": state.value, "message": message}
    if at is None:
        _RECORD_NOW.rows(connection, values)
    else:
        _RECORD.rows(connection, {**values, "at": at})


def record_claims(connection: Connection, rows: Sequence[JobRow], at: int) -> None:
    """Notes that jobs were claimed."""
    for row in rows:
        record(connection, row.id, ServiceState.PROCESSING, "", at)


def note_end(connection: Connection, row: JobRow) -> None:
    """Writes what the callback of a job is told, in the transaction that ends the job."""
    if row.callback is None:
        return
    said = {"id": row.id, "service": row.service, "status": row.state.value, "message": row.message}
    body = json.dumps({**said, "ended_at": instant(row.ended_at)})
    values = {"job_id": row.id, "url": row.callback, "body": body, "token_id": row.token_id}
    connection.execute(insert(callbacks).values(due_at=row.ended_at, **values))
