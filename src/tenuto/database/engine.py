"""The engine of each kind of database: its settings that make it safe, its clock, its errors, its statements.
It opens connections; transactions are `transactions`' own.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Mapping, Sequence
from enum import Enum, unique
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Engine,
    Insert,
    Select,
    TextClause,
    Update,
    create_engine,
    event,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from tenuto.errors import DatabaseError, InvalidSetting

SQLITE = "sqlite"
POSTGRESQL = "postgresql"
_DRIVERS = {SQLITE: SQLITE, POSTGRESQL: "postgresql+psycopg", "postgres": "postgresql+psycopg"}


def database_url(given: str | Path) -> URL:
    """The URL of a database that was given as a path or as a URL.

    Raises `InvalidSetting` for another kind of database than SQLite and PostgreSQL, without its password.
    """
    if isinstance(given, Path) or "://" not in given:
        return _sqlite_file(str(given))
    try:
        url = make_url(given)
    except (ArgumentError, ValueError):
        raise InvalidSetting(
            "the URL of the database cannot be read: write postgresql://USER:PASSWORD@HOST/NAME or a path"
        ) from None
    kind = url.drivername.partition("+")[0]
    if kind not in _DRIVERS:
        raise InvalidSetting(
            f"{kind} is no database that Tenuto can use: give postgresql://... or the path of a SQLite file"
        )
    if kind == SQLITE:
        return _sqlite_file(url.database or "")
    return url.set(drivername=_DRIVERS[kind])


def _sqlite_file(path: str) -> URL:
    if path in ("", ":memory:"):
        raise InvalidSetting("a SQLite database needs a file: what is in memory does not survive its process")
    return URL.create(SQLITE, database=path)


def shown(url: URL) -> str:
    """The URL for people: a SQLite database by its path, a password as ``***``."""
    if url.drivername == SQLITE:
        return str(url.database)
    return url.set(drivername=POSTGRESQL).render_as_string(hide_password=True)


def without_password(text: str, url: URL) -> str:
    """A message of the driver, with the password of the URL taken out."""
    password = url.password
    return text.replace(str(password), "***") if password else text


class now_ms(FunctionElement[int]):
    """``now_ms()``: the instant at which the statement began."""

    type = BigInteger()
    inherit_cache = True
    name = "now_ms"


@compiles(now_ms, "sqlite")
def _now_on_sqlite(element: now_ms, compiler: Any, **options: Any) -> str:
    return "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"


@compiles(now_ms, "postgresql")
def _now_on_postgresql(element: now_ms, compiler: Any, **options: Any) -> str:
    # Not clock_timestamp(): it is volatile, and a comparison with it would use no index.
    return "CAST(extract(epoch FROM statement_timestamp()) * 1000 AS BIGINT)"


@unique
class Fault(Enum):
    """What happened to a transaction."""

    LOST = "the connection was lost"
    BUSY = "another transaction was in the way"
    FULL = "the disk does not take what is written"
    DAMAGED = "the file is damaged"


_SQLITE = {
    sqlite3.SQLITE_BUSY: Fault.BUSY,
    sqlite3.SQLITE_LOCKED: Fault.BUSY,
    sqlite3.SQLITE_PROTOCOL: Fault.BUSY,
    sqlite3.SQLITE_FULL: Fault.FULL,
    sqlite3.SQLITE_IOERR: Fault.FULL,
    sqlite3.SQLITE_READONLY: Fault.FULL,
    sqlite3.SQLITE_CANTOPEN: Fault.FULL,
    sqlite3.SQLITE_CORRUPT: Fault.DAMAGED,
    sqlite3.SQLITE_NOTADB: Fault.DAMAGED,
}
_BUSY_STATES = {"40001", "40P01", "55P03", "57014"}  # serialization, deadlock, lock and statement timeout
_LOST_STATES = {"57P01", "57P02", "57P03", "57P05", "25P03", "25P04", "53300"}
_LOST_CLASS = "08"
_FULL_STATES = {"53100", "53200"}
_PRIMARY = 0xFF


def fault_of(error: DBAPIError) -> Fault | None:
    """What the error means; None: a mistake of the statement, which repeating does not repair."""
    original = error.orig
    if isinstance(original, sqlite3.Error):
        code = getattr(original, "sqlite_errorcode", None)
        return None if code is None else _SQLITE.get(code & _PRIMARY)
    state = getattr(original, "sqlstate", None)
    if state in _BUSY_STATES:
        return Fault.BUSY
    if state in _FULL_STATES:
        return Fault.FULL
    if state in _LOST_STATES or (state or "").startswith(_LOST_CLASS):
        return Fault.LOST
    if error.connection_invalidated or (state is None and _is_operational(original)):
        return Fault.LOST
    return None


def _is_operational(original: BaseException | None) -> bool:
    """Whether the server or the way to it failed, also in a class of its own: a connection that timed out."""
    return any(one.__name__ == "OperationalError" for one in type(original).__mro__)


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


NO_VALUES: Mapping[str, Any] = {}


class Prepared:
    """A statement whose values are numbers and texts, as the driver takes and gives them.

    Columns of other types need SQLAlchemy; a BOOLEAN comes back as 0 or 1 from SQLite.
    """

    def __init__(self, statement: Select[Any] | Insert | Update | TextClause) -> None:
        self._statement = statement
        self._compiled: dict[tuple[str, ...], tuple[str, list[tuple[str, Any]]]] = {}
        """Names of the values -> text, and for each of its places the name and the value of the statement."""

    def rows(self, connection: Connection, values: Mapping[str, Any] = NO_VALUES) -> Sequence[Sequence[Any]]:
        """Executes the statement; the rows that it finds, or that it changes and returns."""
        if connection.dialect.name != "sqlite":
            result = connection.execute(self._statement, values)
            return result.all() if result.returns_rows else ()
        key = tuple(values)
        text, places = self._compiled.get(key) or self._compile(connection, key)
        cursor = connection.connection.cursor()
        try:
            cursor.execute(text, clean_values(values.get(name, constant) for name, constant in places))
            return cursor.fetchall()
        except sqlite3.Error as error:
            raise DBAPIError.instance(text, None, error, sqlite3.Error, hide_parameters=True) from error
        finally:
            cursor.close()

    def row(self, connection: Connection, values: Mapping[str, Any] = NO_VALUES) -> Sequence[Any] | None:
        """The only row; None if there is none."""
        found = self.rows(connection, values)
        return found[0] if found else None

    def run(self, connection: Connection, many: Sequence[Mapping[str, Any]]) -> None:
        """Executes the statement for each of these values, which have the same names."""
        if connection.dialect.name != "sqlite":
            connection.execute(self._statement, list(many))
            return
        for values in many:
            self.rows(connection, values)

    def _compile(self, connection: Connection, key: tuple[str, ...]) -> tuple[str, list[tuple[str, Any]]]:
        compiled: Any = self._statement.compile(dialect=connection.dialect, column_keys=sorted(key))
        constants = compiled.params
        found = str(compiled), [(name, constants[name]) for name in compiled.positiontup]
        self._compiled[key] = found
        return found
