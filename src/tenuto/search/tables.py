"""The tables of searches; times are milliseconds of the database's clock.
Only declares them: `migrations/` makes them, the stores read and write them.

A predicate of a partial index must be spelled in a query as it is in the index, with literals: SQLite uses no
partial index for ``status = ?`` and scans all rows (200,000 rows: 169 ms instead of 0.8).
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    literal_column,
    or_,
    text,
)

from tenuto.lifecycle.evolution import EvolutionStatus, SearchEnd, SearchState

metadata = MetaData()


def _among(column: str, names: list[str]) -> str:
    return f"{column} IN ({', '.join(repr(name) for name in names)})"


searches = Table(
    "searches",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("definition", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", String(16)),
    Column("message", Text),
    Column("seed", BigInteger, nullable=False),
    Column("scheduled", Integer, nullable=False, server_default="0"),
    Column("told", Integer, nullable=False, server_default="0"),
    Column("changed", Integer, nullable=False, server_default="0"),
    Column("cost", Double, nullable=False, server_default="0"),
    Column("active_ms", BigInteger, nullable=False, server_default="0"),
    Column("active_at", BigInteger),
    Column("best_number", Integer),
    Column("best_objective", Double),
    Column("created_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("clipped", Integer, nullable=False, server_default="0"),  # outcomes outside of fixed ranges
    CheckConstraint(_among("state", [state.value for state in SearchState]), name="searches_state"),
    CheckConstraint(_among("reason", [end.name for end in SearchEnd]), name="searches_reason"),
)

evolution_jobs = Table(
    "evolution_jobs",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("search_id", String(64), ForeignKey("searches.id", ondelete="CASCADE"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("status", String(16), nullable=False),
    Column("priority", Integer, nullable=False, server_default="0"),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("deaths", Integer, nullable=False, server_default="0"),  # of its workers, which cost no attempt
    Column("sends", Integer, nullable=False, server_default="0"),
    Column("created_at", BigInteger, nullable=False),
    # Equal to created_at until promoted, and again when returned, so that older ones go first: SQLite takes
    # no NULLS LAST in an index.
    Column("scheduled_at", BigInteger, nullable=False),
    Column("not_before", BigInteger),
    Column("started_at", BigInteger),
    Column("completed_at", BigInteger),
    Column("lease_until", BigInteger),
    Column("worker", String(64)),
    Column("task_id", Text, nullable=False),
    Column("job_id", String(64), nullable=False),
    Column("job_attempt", Integer, nullable=False, server_default="0"),
    Column("params", Text, nullable=False),
    Column("proposal", Text, nullable=False),
    Column("asked_after", Integer, nullable=False),
    Column("island", Integer, nullable=False, server_default="0"),
    Column("parent", Integer),
    Column("outcome", Text),
    Column("objective", Double),
    Column("cost", Double),
    Column("failure", String(16)),
    Column("message", Text),
    Column("reused", Boolean, nullable=False, server_default=text("false")),
    Column("told", Integer),
    Column("verdict", String(8)),
    Column("cell", Integer),
    Column("directory", Text),
    CheckConstraint(
        _among("status", [status.value for status in EvolutionStatus]), name="evolution_jobs_status"
    ),
    UniqueConstraint("search_id", "number", name="evolution_jobs_number"),
    UniqueConstraint("search_id", "task_id", "job_id", name="evolution_jobs_identity"),
    UniqueConstraint("search_id", "told", name="evolution_jobs_told"),
)

evolution_moves = Table(
    "evolution_moves",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("search_id", String(64), ForeignKey("searches.id", ondelete="CASCADE"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("status", String(16), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("message", Text),
    Column("at", BigInteger, nullable=False),
    Index("evolution_moves_search", "search_id", "id"),
)

evolution_points = Table(
    "evolution_points",
    metadata,
    Column("search_id", String(64), ForeignKey("searches.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("value", Double, nullable=False),
)

jobs = evolution_jobs.c


def is_status(status: EvolutionStatus) -> ColumnElement[bool]:
    """The row has the status, spelled as the partial indexes spell it."""
    return jobs.status == literal_column(f"'{status.value}'")


UNFINISHED = text("status IN ('PENDING', 'QUEUED', 'RUNNING')")
TO_TELL = text("told IS NULL AND completed_at IS NOT NULL")

_ORDER = (jobs.search_id, jobs.priority.desc(), jobs.scheduled_at, jobs.created_at, jobs.number)
DISPATCH_ORDER = _ORDER[1:]
"""What goes out next: the highest priority, then the oldest."""


def _partial(name: str, predicate: str, *columns: ColumnElement[object]) -> Index:
    return Index(name, *columns, sqlite_where=text(predicate), postgresql_where=text(predicate))


INDEXES = (
    _partial("evolution_jobs_dispatch", "status = 'PENDING'", *_ORDER),
    _partial("evolution_jobs_claim", "status = 'QUEUED'", *_ORDER),
    _partial("evolution_jobs_unfinished", str(UNFINISHED), jobs.search_id, jobs.status),
    _partial("evolution_jobs_lease", "status = 'RUNNING'", jobs.lease_until),
    _partial("evolution_jobs_to_tell", str(TO_TELL), jobs.search_id, jobs.completed_at, jobs.number),
    _partial("evolution_jobs_known", "status = 'SUCCEEDED'", jobs.task_id, jobs.job_id),
)


def is_due(now: ColumnElement[int]) -> ColumnElement[bool]:
    """The row does not wait for a back-off."""
    return or_(jobs.not_before.is_(None), jobs.not_before <= now)
