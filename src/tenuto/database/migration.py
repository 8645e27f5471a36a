"""Migrations: each door's Alembic folder, with a version table of its own, applied under a lock.
Refuses a database that a newer Tenuto or another program made; changes nothing then.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from alembic.script.revision import ResolutionError
from alembic.util.exc import CommandError
from sqlalchemy import Connection, NullPool, column, create_engine, inspect, select, table, text
from sqlalchemy.exc import DBAPIError

from tenuto.database.engine import SQLITE, database_url, shown
from tenuto.database.transactions import Database
from tenuto.errors import ForeignDatabase, NewerDatabase

TOLD_AFTER_S = 1.0
"""After so long a program says that it waits for its database."""
_SILENT = "the database %s does not answer, and is waited for"
_logger = logging.getLogger("tenuto.database")
_LOCK = 0x74656E75  # of PostgreSQL's advisory locks: one migration of Tenuto at a time in a database


@dataclass(frozen=True, slots=True)
class Migrations:
    """The migrations of one room: a folder with ``versions/``, the table of the version, the newest."""

    folder: Path
    version_table: str
    head: str


OWN = Migrations(Path(__file__).with_name("migrations"), "database_version", "0001")


def migrate(database: Database, *doors: Migrations) -> None:
    """Brings the tables of this room and of the doors up to date; cheap if they are.

    Raises `ForeignDatabase` for a SQLite file of another program, and `NewerDatabase`.
    """
    rooms = (OWN, *doors)
    if database.read(lambda connection: all(_version(connection, one) == one.head for one in rooms)):
        return
    database.write(partial(_migrate, database.shown_url, rooms))


def refuse_unusable(url: str | Path, *doors: Migrations) -> None:
    """Raises `ForeignDatabase` or `NewerDatabase` as `migrate` would, and leaves no trace.

    A SQLite file is opened for reading only: an engine would turn another program's file into a WAL.
    """
    found = database_url(url)
    if found.drivername != SQLITE:
        database = Database(url)
        telling = threading.Timer(TOLD_AFTER_S, _logger.warning, (_SILENT, database.shown_url))
        telling.daemon = True
        telling.start()
        try:
            database.read(partial(_refuse, database.shown_url, doors))
        finally:
            telling.cancel()
            database.close()
        return
    path = os.path.abspath(str(found.database))
    if not os.path.exists(path):
        return
    reading = partial(sqlite3.connect, f"file:{quote(path)}?mode=ro", uri=True)
    engine = create_engine("sqlite://", creator=reading, poolclass=NullPool)
    # A file that is locked or damaged is judged when it is opened.
    with suppress(DBAPIError), engine.connect() as connection:
        _refuse_foreign(shown(found), connection)
        _refuse(shown(found), doors, connection)


def _refuse(shown_url: str, doors: Sequence[Migrations], connection: Connection) -> None:
    for one in (OWN, *doors):
        version = _version(connection, one)
        if version not in (None, one.head):
            _refuse_newer(shown_url, one, version, ScriptDirectory(str(one.folder)))


def _migrate(shown_url: str, rooms: tuple[Migrations, ...], connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    else:
        _refuse_foreign(shown_url, connection)
    for one in rooms:
        version = _version(connection, one)
        if version != one.head:
            _upgrade(shown_url, one, version, connection)


def _refuse_foreign(shown_url: str, connection: Connection) -> None:
    names = set(inspect(connection).get_table_names())
    if names and OWN.version_table not in names:
        raise ForeignDatabase(
            f"{shown_url} holds tables of another program ({', '.join(sorted(names)[:3])}): give another file"
        )


def _version(connection: Connection, one: Migrations) -> str | None:
    if not inspect(connection).has_table(one.version_table):
        return None
    return connection.execute(select(table(one.version_table, column("version_num")))).scalar()


def _upgrade(shown_url: str, one: Migrations, version: str | None, connection: Connection) -> None:
    script = ScriptDirectory(str(one.folder))
    _refuse_newer(shown_url, one, version, script)

    def steps(revision: Any, context: MigrationContext) -> Any:
        return script._upgrade_revs("head", revision)

    options: dict[str, Callable[..., Any] | str] = {"fn": steps, "version_table": one.version_table}
    context = MigrationContext.configure(connection, opts=options)
    with Operations.context(context):
        context.run_migrations()


def _refuse_newer(shown_url: str, one: Migrations, version: str | None, script: ScriptDirectory) -> None:
    if version is None:
        return
    try:
        script.get_revision(version)
    except (CommandError, ResolutionError):
        raise NewerDatabase(
            f"{shown_url} was written by a newer version of Tenuto ({one.version_table} is {version}, this "
            f"one knows up to {one.head}): install that version; nothing was changed"
        ) from None
