"""The SQLAlchemy engine of each kind of database, with the settings that make it safe.
Runs no transaction.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection

from tenuto.database.database_urls import SQLITE
from tenuto.errors import DatabaseError

WRITES = "tenuto_writes"
"""The execution option of a connection whose transaction will write."""

BUSY_MS = 2_000
CACHE_KIB = 1024
LOCK_TIMEOUT_MS = 5_000
IDLE_TIMEOUT_MS = 10_000
STATEMENT_TIMEOUT_MS = 60_000
CONNECT_TIMEOUT_S = 5
_SURROGATES = re.compile("[\ud800-\udfff]")


def make_engine(url: URL) -> Engine:
    """The engine of a database; connects to nothing yet."""
    if url.drivername != SQLITE and find_spec("psycopg") is None:
        raise DatabaseError("PostgreSQL needs psycopg: pip install 'tenuto[postgresql]'")
    engine = _sqlite(url) if url.drivername == SQLITE else _postgresql(url)
    event.listen(engine, "before_cursor_execute", _clean_statement, retval=True)
    return engine


def clean(value: Any) -> Any:
    """A value that every database stores, and every terminal shows: NUL and lone surrogates become U+FFFD.

    PostgreSQL refuses the first, every driver the second, and jobs print both. Of plain data, all its texts.
    """
    if isinstance(value, str):
        if "\0" in value:
            value = value.replace("\0", "\ufffd")
        return value if value.isascii() else _SURROGATES.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {clean(key): clean(item) for key, item in value.items()}
    return [clean(item) for item in value] if isinstance(value, list | tuple) else value


def _clean_statement(
    connection: Any, cursor: Any, statement: str, values: Any, context: Any, is_many: bool
) -> tuple[str, Any]:
    """Cleans the values of a statement, which SQLAlchemy gives as a mapping, a tuple, or a list of these."""
    if isinstance(values, list):
        return statement, [clean_values(one) for one in values]
    return statement, clean_values(values)


def clean_values(values: Any) -> Any:
    """The values of one execution, whose texts are cleaned."""
    if isinstance(values, Mapping):
        return {name: clean(one) if type(one) is str else one for name, one in values.items()}
    return tuple(clean(one) if type(one) is str else one for one in values)


def _sqlite(url: URL) -> Engine:
    directory = os.path.dirname(os.path.abspath(str(url.database)))
    os.makedirs(directory, exist_ok=True)
    engine = create_engine(url, hide_parameters=True, pool_size=8, max_overflow=24, pool_use_lifo=True)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: DBAPIConnection, record: Any) -> None:
    connection.isolation_level = None  # the driver would begin transactions of its own kind
    cursor = connection.cursor()
    # First of all the patience: to set the journal's mode may have to wait for another process.
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    # Of each connection, in KiB: the kernel keeps the file, too, and a server has sixteen connections.
    cursor.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that begins by reading and writes later is refused if another one wrote in between.
    if connection.get_execution_options().get(WRITES):
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:  # it opens no file and cannot fail, so that the errors of SQLAlchemy are not needed
        connection.connection.cursor().execute("BEGIN")


def _postgresql(url: URL) -> Engine:
    # A scheduler that is frozen inside a transaction must not keep a search's row for ever.
    options = (
        f"-c lock_timeout={LOCK_TIMEOUT_MS} -c idle_in_transaction_session_timeout={IDLE_TIMEOUT_MS} "
        f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c default_transaction_isolation=read\\ committed"
    )
    return create_engine(
        url,
        hide_parameters=True,
        pool_size=8,
        max_overflow=24,
        pool_use_lifo=True,
        connect_args={
            "connect_timeout": CONNECT_TIMEOUT_S,
            "application_name": "tenuto",
            "options": options,
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "tcp_user_timeout": 10_000,
        },
    )
