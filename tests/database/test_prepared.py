"""Prepared statements: what SQLAlchemy would find and raise, on both kinds of database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import (
    BigInteger,
    Column,
    MetaData,
    Table,
    Text,
    bindparam,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.exc import IntegrityError

from tenuto.database import Database, Prepared, now_ms

TABLE = Table(
    "prepared",
    MetaData(),
    Column("id", BigInteger, primary_key=True),
    Column("name", Text, unique=True),
    Column("state", Text, nullable=False),
    Column("at", BigInteger),
)
ADD = Prepared(insert(TABLE).values(state="new", at=now_ms()).returning(*TABLE.c))
CHANGE = Prepared(
    update(TABLE)
    .where(TABLE.c.id == bindparam("row"), TABLE.c.state == bindparam("known"))
    .values(at=func.coalesce(bindparam("moment"), TABLE.c.at))
    .returning(*TABLE.c)
)
FIND = Prepared(select(TABLE).where(TABLE.c.name == bindparam("named")))
COUNT = Prepared(text("SELECT count(*) FROM prepared WHERE state = :state OR state = :state"))


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    database.write(TABLE.metadata.create_all)
    yield database
    database.write(TABLE.metadata.drop_all)
    database.close()


def rows(database: Database, statement: Prepared, **values: Any) -> list[tuple[Any, ...]]:
    return database.write(lambda connection: [tuple(row) for row in statement.rows(connection, values)])


def test_a_row_is_added_changed_and_found(database: Database) -> None:
    ((id, name, state, at),) = rows(database, ADD, id=1, name="a")
    assert (id, name, state) == (1, "a", "new")
    assert at > 0
    assert rows(database, CHANGE, row=1, known="new", moment=7) == [(1, "a", "new", 7)]
    assert rows(database, CHANGE, row=1, known="new", moment=None, name="b", state="old") == [
        (1, "b", "old", 7)
    ]
    assert rows(database, CHANGE, row=1, known="new", moment=8) == []
    assert rows(database, FIND, named="b") == [(1, "b", "old", 7)]
    assert rows(database, COUNT, state="old") == [(1,)]
    assert database.read(lambda connection: FIND.row(connection, {"named": "a"})) is None


def test_a_statement_without_rows_returns_none(database: Database) -> None:
    plain = Prepared(insert(TABLE).values(state="new"))
    assert rows(database, plain, id=3, name="c") == []
    assert rows(database, FIND, named="c") == [(3, "c", "new", None)]


def test_a_mistake_is_raised_as_sqlalchemy_raises_it_and_undoes_the_transaction(database: Database) -> None:
    rows(database, ADD, id=1, name="a")

    def twice(connection: Any) -> None:
        ADD.rows(connection, {"id": 2, "name": "b"})
        ADD.rows(connection, {"id": 3, "name": "a"})

    with pytest.raises(IntegrityError) as raised:
        database.write(twice)
    assert "'a'" not in str(raised.value), "values of users stay out of messages"
    assert rows(database, FIND, named="b") == []
