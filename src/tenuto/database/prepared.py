"""Prepared statements: compiled once for each set of columns; on SQLite the driver executes the text.
Begins no transaction; runs inside `Database.read` and `Database.write`.

What SQLAlchemy does for each execution (keys, contexts, results) costs five times what SQLite does.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Insert, Select, TextClause, Update
from sqlalchemy.exc import DBAPIError

from tenuto.database.engine import clean_values

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
