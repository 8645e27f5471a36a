"""The tables of a server and of a node, their migrations, and databases that have them.
Holds no query; `requests`, `access` and `node.payloads` are the only users.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from tenuto.database import Database, Migrations, migrate, refuse_unusable
from tenuto.errors import DatabaseUnavailable
from tenuto.launchers.confinement import database_files
from tenuto.lifecycle.service import ACTIVE, ENDED, PayloadState, ServiceState
from tenuto.workspace.modes import FILE_MODE

MIGRATIONS = Migrations(Path(__file__).with_name("migrations"), "service_version", "0005")
"""A server's: jobs, turns, moves, callbacks, tokens, usage, nodes."""
NODE_MIGRATIONS = Migrations(Path(__file__).parent / "node" / "migrations", "node_version", "0003")
"""A node's: payloads."""


def opened(url: str | Path, migrations: Migrations, patience_s: float) -> Database:
    """A database whose tables are up to date; closed again if they cannot be."""
    database = Database(url, patience_s=patience_s)
    try:
        if database.is_sqlite:
            refuse_unusable(url, migrations)
            _make_private(database.shown_url)
        migrate(database, migrations)
    except BaseException:
        database.close()
        raise
    return database


def _make_private(path: str) -> None:
    """Makes the file of a database before SQLite does, which lets every user of the machine read it.

    One that is there, such as a restored backup, is closed to others; its journals have its mode.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE))
        for name in database_files(path):
            with suppress(FileNotFoundError):
                if os.stat(name).st_mode & 0o077:
                    os.chmod(name, FILE_MODE)
    except OSError as error:
        raise DatabaseUnavailable(f"{path} cannot be used as a database: {error.strerror}") from None


def literals(states: frozenset[ServiceState] | frozenset[PayloadState]) -> str:
    """States as SQL, for predicates that must match a partial index: with bound ones it would not be used."""
    return ", ".join(f"'{state.value}'" for state in type(next(iter(states))) if state in states)


QUEUED = text("state = 'Queued'")
IS_NOTED = text("oldest IS NOT NULL")
IS_WAITING = text("status = 'waiting'")
IS_ACTIVE = text(f"state IN ({literals(ACTIVE)})")
HAS_ENDED = text(f"state IN ({literals(ENDED)})")
OPEN = frozenset({PayloadState.PREPARED, PayloadState.RUNNING})
IS_OPEN = text(f"state IN ({literals(OPEN)})")
PAYLOAD_ENDED = text(f"state IN ({literals(frozenset(PayloadState) - OPEN - {PayloadState.CLEANED})})")

# SQLite counts a key by itself only if it is an INTEGER.
_KEY = BigInteger().with_variant(Integer, "sqlite")

metadata = MetaData()

meta = Table("meta", metadata, Column("key", Text, primary_key=True), Column("value", Text, nullable=False))

jobs = Table(
    "jobs",
    metadata,
    Column("id", _KEY, primary_key=True, autoincrement=True),
    Column("user_id", Text, nullable=False),
    Column("service", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("message", Text, nullable=False, server_default=""),
    Column("claim", Integer, nullable=False, server_default="0"),
    Column("server_id", Text),
    Column("node", Text),
    Column("payload_id", BigInteger),
    Column("directory", Text, nullable=False, unique=True),
    Column("idempotency_key", Text),
    Column("body_sha256", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("ready_at", BigInteger, nullable=False),
    Column("tried_at", BigInteger),
    Column("started_at", BigInteger),
    Column("ended_at", BigInteger),
    Column("terminate_at", BigInteger),
    Column("exit_code", Integer),
    Column("result_bytes", BigInteger),
    Column("result_sha256", Text),
    Column("callback", Text),
    Column("token_id", BigInteger),
    Column("bytes_in", BigInteger),
    Column("cpu_s", Double),
    Column("memory_peak", BigInteger),
    Column("command", Text),
    CheckConstraint(f"state IN ({literals(frozenset(ServiceState))})", name="jobs_state"),
    UniqueConstraint("user_id", "idempotency_key", name="jobs_idempotency"),
    Index("jobs_queued", "service", "user_id", "id", sqlite_where=QUEUED, postgresql_where=QUEUED),
    Index("jobs_active", "service", "user_id", sqlite_where=IS_ACTIVE, postgresql_where=IS_ACTIVE),
    Index("jobs_mine", "server_id", sqlite_where=IS_ACTIVE, postgresql_where=IS_ACTIVE),
    Index("jobs_ended", "ended_at", sqlite_where=HAS_ENDED, postgresql_where=HAS_ENDED),
    Index("jobs_listed", "user_id", "id"),
    sqlite_autoincrement=True,
)

turns = Table(
    "turns",
    metadata,
    Column("service", Text, primary_key=True),
    Column("user_id", Text, primary_key=True),
    Column("turn", BigInteger, nullable=False),
    Column("oldest", BigInteger),
    Index("turns_waiting", "service", "turn", "oldest", sqlite_where=IS_NOTED, postgresql_where=IS_NOTED),
    Index("turns_last", "service", "turn"),
)
"""When users were served last, 0 for never, and the oldest queued job of each; null: none is queued."""

moves = Table(
    "moves",
    metadata,
    Column("id", _KEY, primary_key=True, autoincrement=True),
    Column("job_id", _KEY, ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    Column("state", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Index("moves_of_job", "job_id", "id"),
    sqlite_autoincrement=True,
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", _KEY, primary_key=True, autoincrement=True),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("user_id", Text, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("note", Text, nullable=False, server_default=""),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("revoked_at", BigInteger),
    Column("services", Text),
    Column("queued", Integer),
    Column("stored_bytes", BigInteger),
    Column("connections", Integer),
    sqlite_autoincrement=True,
)

callbacks = Table(
    "callbacks",
    metadata,
    Column("job_id", _KEY, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("url", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("token_id", BigInteger),
    Column("status", Text, nullable=False, server_default="waiting"),
    Column("tries", Integer, nullable=False, server_default="0"),
    Column("message", Text, nullable=False, server_default=""),
    Column("due_at", BigInteger, nullable=False),
    Index("callbacks_due", "due_at", sqlite_where=IS_WAITING, postgresql_where=IS_WAITING),
)
"""The notices about jobs that have ended, and their addresses."""

usage = Table(
    "usage",
    metadata,
    Column("user_id", Text, primary_key=True),
    Column("service", Text, primary_key=True),
    Column("month", Text, primary_key=True),
    Column("jobs", BigInteger, nullable=False),
    Column("cpu_s", Double, nullable=False),
    Column("memory_peak", BigInteger, nullable=False),
    Column("bytes_in", BigInteger, nullable=False),
    Column("bytes_out", BigInteger, nullable=False),
)
"""What jobs used whose rows are forgotten."""

nodes = Table(
    "nodes",
    metadata,
    Column("name", Text, primary_key=True),
    Column("url", Text, nullable=False),
    Column("token_file", Text),
)
"""Where the nodes are, also those that left the settings while they have jobs."""

node_metadata = MetaData()

meta.to_metadata(node_metadata)

payloads = Table(
    "payloads",
    node_metadata,
    Column("id", _KEY, primary_key=True, autoincrement=True),
    Column("key", Text, nullable=False, unique=True),
    Column("state", Text, nullable=False),
    Column("killed", Boolean, nullable=False, server_default=text("0")),
    Column("message", Text, nullable=False, server_default=""),
    Column("service", Text, nullable=False, server_default=""),
    Column("user_id", Text, nullable=False, server_default=""),
    Column("job_id", Text, nullable=False, server_default=""),
    Column("created_at", BigInteger, nullable=False),
    Column("started_at", BigInteger),
    Column("ended_at", BigInteger),
    Column("exit_code", Integer),
    Column("result_bytes", BigInteger),
    Column("result_sha256", Text),
    Column("command", Text, nullable=False, server_default=""),
    Column("cpu_s", Double),
    Column("memory_peak", BigInteger),
    CheckConstraint(f"state IN ({literals(frozenset(PayloadState))})", name="payloads_state"),
    Index("payloads_open", "id", sqlite_where=IS_OPEN, postgresql_where=IS_OPEN),
    Index("payloads_ended", "ended_at", sqlite_where=PAYLOAD_ENDED, postgresql_where=PAYLOAD_ENDED),
    sqlite_autoincrement=True,
)
