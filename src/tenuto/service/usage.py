"""What users took of the service: jobs, processors, memory and bytes, by user, service and month.
The only SQL on usage; a row that is forgotten is counted before it goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Connection, Double, cast, delete, func, select, union_all
from sqlalchemy.dialects import postgresql, sqlite

from tenuto.errors import InvalidValue
from tenuto.lifecycle.service import ServiceState
from tenuto.service.tables import jobs, usage

BY = ("user", "service", "month")
"""What usage is told by; a month is that in which a job ended, in UTC."""
_COLUMNS = {"user": "user_id", "service": "service", "month": "month"}
_SUMS = ("jobs", "cpu_s", "bytes_in", "bytes_out")


class Used(NamedTuple):
    """What the ended jobs of a group took; None: the group is not told by it."""

    user: str | None
    service: str | None
    month: str | None
    jobs: int
    cpu_s: float
    memory_peak: int
    """The most memory of one process of one job."""
    bytes_in: int
    """Of uploads."""
    bytes_out: int
    """Of results."""


def groups_of(text: str) -> tuple[str, ...]:
    """What usage is to be told by, separated by commas; `InvalidValue` for anything else."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in BY:
            raise InvalidValue(f"usage is not told by {name!r}: give some of {', '.join(BY)}")
    return tuple(name for name in BY if name in names)


def used(connection: Connection, by: Sequence[str]) -> list[Used]:
    """What all jobs took that ended, the forgotten ones too; one row for each group."""
    every = union_all(_of_jobs(connection), select(*(usage.c[name] for name in _names()))).subquery()
    keys = [every.c[_COLUMNS[name]] for name in by]
    totals = [func.coalesce(func.sum(every.c[name]), 0) for name in _SUMS]
    query = (
        select(*keys, *totals, func.coalesce(func.max(every.c.memory_peak), 0))
        .group_by(*keys)
        .order_by(*keys)
    )
    found = []
    for row in connection.execute(query):
        groups = dict(zip(by, row, strict=False))
        count, cpu_s, bytes_in, bytes_out, peak = row[len(by) :]
        user, service, month = (groups.get(name) for name in BY)
        sums = (int(count), round(float(cpu_s), 3), int(peak), int(bytes_in), int(bytes_out))
        found.append(Used(user, service, month, *sums))
    return found


def forget(connection: Connection, before_ms: ColumnElement[int], limit: int) -> int:
    """Deletes the rows of cleaned jobs that ended before; how many. What they used stays."""
    old = jobs.c.id.in_(
        select(jobs.c.id)
        .where(jobs.c.state == ServiceState.CLEANED.value, jobs.c.ended_at < before_ms)
        .order_by(jobs.c.id)
        .limit(limit)
    )
    forgotten = list(connection.execute(select(jobs.c.id).where(old).with_for_update()).scalars())
    if not forgotten:
        return 0
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement: Any = insert(usage).from_select(_names(), _of_jobs(connection, jobs.c.id.in_(forgotten)))
    more = statement.excluded
    peak = func.max if connection.dialect.name == "sqlite" else func.greatest
    summed: dict[str, Any] = {name: usage.c[name] + more[name] for name in _SUMS}
    summed["memory_peak"] = peak(usage.c.memory_peak, more.memory_peak)
    keys = list(_COLUMNS.values())
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=summed))
    return connection.execute(delete(jobs).where(jobs.c.id.in_(forgotten))).rowcount


def _names() -> list[str]:
    return [*_COLUMNS.values(), *_SUMS, "memory_peak"]


def _of_jobs(connection: Connection, only: Any = None) -> Any:
    """What the rows of jobs that have ended come to, by user, service and month."""
    if connection.dialect.name == "sqlite":
        month: Any = func.strftime("%Y-%m", jobs.c.ended_at / 1000.0, "unixepoch")
    else:
        month = func.to_char(func.timezone("UTC", func.to_timestamp(jobs.c.ended_at / 1000.0)), "YYYY-MM")
    sums = {
        "jobs": func.count(),
        "cpu_s": func.coalesce(func.sum(jobs.c.cpu_s), cast(0.0, Double)),
        "bytes_in": func.coalesce(func.sum(jobs.c.bytes_in), 0),
        "bytes_out": func.coalesce(func.sum(jobs.c.result_bytes), 0),
    }
    columns = [cast(value, usage.c[name].type).label(name) for name, value in sums.items()]
    peak = cast(func.coalesce(func.max(jobs.c.memory_peak), 0), BigInteger).label("memory_peak")
    query = select(jobs.c.user_id, jobs.c.service, month.label("month"), *columns, peak)
    ended = jobs.c.ended_at.is_not(None) if only is None else only
    return query.where(ended).group_by(jobs.c.user_id, jobs.c.service, month)
