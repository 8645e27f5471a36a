"""What every kind of database promises: transactions, the clock, migrations, members, wake-ups."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import IntegrityError

from tenuto.database import Database, Migrations, Prepared, announce, migrate, now_ms
from tenuto.database.members import Member, MemberKind, join, leave, listed, see, unseen
from tenuto.database.migration import OWN
from tenuto.errors import NewerDatabase


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    migrate(database)
    yield database
    database.close()


def execute(database: Database, statement: str) -> None:
    database.write(lambda connection: connection.execute(text(statement)))


def scalar(database: Database, statement: str) -> object:
    return database.read(lambda connection: connection.execute(text(statement)).scalar())


def wait_for(event: threading.Event) -> None:
    assert event.wait(10)


def test_a_row_that_was_written_is_read(database: Database) -> None:
    execute(database, "CREATE TABLE t (a INTEGER)")
    execute(database, "INSERT INTO t VALUES (7)")
    assert scalar(database, "SELECT a FROM t") == 7


def test_any_text_can_be_written(database: Database) -> None:
    execute(database, "CREATE TABLE t (a VARCHAR(20))")
    plain, prepared = text("INSERT INTO t VALUES (:a)"), Prepared(text("INSERT INTO t VALUES (:a)"))
    bad = {"a": "n\0 s\udc80 \u00e9\U0001f600"}
    database.write(lambda connection: connection.execute(plain, bad))
    database.write(lambda connection: connection.execute(plain, [bad, {"a": None}, bad]))
    database.write(lambda connection: prepared.rows(connection, bad))
    count = text("SELECT count(*) FROM t WHERE a = :a")
    written = {"a": "n\ufffd s\ufffd \u00e9\U0001f600"}
    assert database.read(lambda connection: connection.execute(count, written).scalar()) == 4
    assert database.read(lambda connection: connection.execute(count, bad).scalar()) == 4


def test_a_read_sees_one_state_whatever_is_written_meanwhile(database: Database) -> None:
    def looks(connection: Connection) -> tuple[object, object]:
        before = connection.execute(text("SELECT a FROM t")).scalar()
        with ThreadPoolExecutor(1) as another:
            another.submit(execute, database, "UPDATE t SET a = a + 1").result()
        return before, connection.execute(text("SELECT a FROM t")).scalar()

    execute(database, "CREATE TABLE t (a INTEGER)")
    execute(database, "INSERT INTO t VALUES (7)")
    assert database.read(looks) == (7, 7)
    assert database.read(looks) == (8, 8)
    assert scalar(database, "SELECT a FROM t") == 9


def test_a_function_that_raises_leaves_nothing(database: Database) -> None:
    execute(database, "CREATE TABLE t (a INTEGER)")

    def broken(connection: Connection) -> None:
        connection.execute(text("INSERT INTO t VALUES (7)"))
        raise KeyError("broken")

    with pytest.raises(KeyError):
        database.write(broken)
    assert scalar(database, "SELECT count(*) FROM t") == 0


def test_a_mistake_in_a_statement_is_not_repeated(database: Database) -> None:
    execute(database, "CREATE TABLE t (a INTEGER PRIMARY KEY)")
    execute(database, "INSERT INTO t VALUES (7)")
    with pytest.raises(IntegrityError):
        execute(database, "INSERT INTO t VALUES (7)")


def test_counters_lose_no_update(database: Database) -> None:
    execute(database, "CREATE TABLE t (a INTEGER)")
    execute(database, "INSERT INTO t VALUES (0)")

    def add(connection: Connection) -> None:
        lock = "" if database.is_sqlite else " FOR UPDATE"
        before = connection.execute(text(f"SELECT a FROM t{lock}")).scalar_one()
        connection.execute(text("UPDATE t SET a = :a"), {"a": before + 1})

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: database.write(add), range(100)))
    assert scalar(database, "SELECT a FROM t") == 100


def test_the_clock_is_that_of_the_database_in_milliseconds(database: Database) -> None:
    before = time.time() * 1000
    now = database.read(lambda connection: connection.execute(now_ms().select()).scalar_one())
    assert type(now) is int
    assert before - 1_000 < now < time.time() * 1000 + 1_000


def test_migrating_again_changes_nothing(database: Database) -> None:
    database.write(lambda connection: join(connection, Member("a", MemberKind.WORKER, "host", "1")))
    migrate(database)
    assert len(database.read(listed)) == 1


DOOR = """
import sqlalchemy as sa
from alembic import op
revision = "0001"
down_revision = None
def upgrade():
    op.create_table("things", sa.Column("id", sa.Integer, primary_key=True))
"""


def door(folder: Path) -> Migrations:
    (folder / "versions").mkdir(parents=True)
    (folder / "versions" / "0001_things.py").write_text(DOOR)
    return Migrations(folder, "door_version", "0001")


def test_each_door_has_tables_and_a_version_of_its_own(database: Database, tmp_path: Path) -> None:
    migrate(database, door(tmp_path / "door"))
    assert scalar(database, "SELECT count(*) FROM things") == 0
    assert scalar(database, "SELECT version_num FROM door_version") == "0001"
    assert scalar(database, "SELECT version_num FROM database_version") == OWN.head


def test_14_two_migrators_make_the_tables_once(database_url: str, tmp_path: Path) -> None:
    door(tmp_path / "door")
    made = [Database(database_url) for _ in range(4)]
    both = threading.Barrier(4)

    def one(database: Database) -> None:
        both.wait()
        migrate(database, Migrations(tmp_path / "door", "door_version", "0001"))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(one, made))
    assert scalar(made[0], "SELECT count(*) FROM door_version") == 1
    for database in made:
        database.close()


INTERRUPTED = (
    DOOR
    + """
    import os
    if not os.path.exists(FLAG):
        open(FLAG, "w").close()
        raise KeyError("the power failed here")
"""
)


def test_a_migration_that_is_interrupted_leaves_nothing_and_is_repeated(
    database: Database, tmp_path: Path
) -> None:
    """F68: a migration is one transaction, also where it makes tables."""
    made = door(tmp_path / "door")
    script = f"FLAG = {str(tmp_path / 'flag')!r}\n{INTERRUPTED}"
    (tmp_path / "door" / "versions" / "0001_things.py").write_text(script)
    with pytest.raises(KeyError):
        migrate(database, made)
    tables = database.read(lambda connection: inspect(connection).get_table_names())
    assert not {"things", "door_version"} & set(tables)
    migrate(database, made)
    assert scalar(database, "SELECT count(*) FROM things") == 0


def test_14_a_newer_schema_is_refused(database: Database) -> None:
    execute(database, "UPDATE database_version SET version_num = '0999'")
    with pytest.raises(NewerDatabase, match="0999"):
        migrate(database)
    assert scalar(database, "SELECT version_num FROM database_version") == "0999"


def test_members_join_are_seen_and_leave(database: Database) -> None:
    database.write(
        lambda connection: join(connection, Member("a", MemberKind.WORKER, "host", "7 boot 1", "/w", 4))
    )
    database.write(lambda connection: join(connection, Member("b", MemberKind.SERVER, "host", "8 boot 1")))
    [worker] = database.read(lambda connection: listed(connection, MemberKind.WORKER))
    assert (worker.process, worker.workspace, worker.slots) == ("7 boot 1", "/w", 4)
    assert database.write(lambda connection: see(connection, "a"))
    assert database.read(lambda connection: unseen(connection, MemberKind.WORKER, 60_000)) == []
    execute(database, "UPDATE members SET seen_at = seen_at - 120000 WHERE id = 'a'")
    assert [m.id for m in database.read(lambda c: unseen(c, MemberKind.WORKER, 60_000))] == ["a"]
    database.write(lambda connection: leave(connection, "a"))
    assert not database.write(lambda connection: see(connection, "a"))
    assert [m.id for m in database.read(listed)] == ["b"]


def test_a_listener_is_told_after_the_commit(database: Database) -> None:
    told = threading.Event()
    stop = database.wakeups.listen("things", told.set)
    if database.wakeups._url is not None:
        wait_for(told)  # a listener that begins is told once by the other way
        told.clear()

    def change(connection: Connection) -> None:
        announce(connection, "things")
        assert not told.is_set()

    database.write(change)
    wait_for(told)
    stop()


def test_a_transaction_that_failed_announces_nothing_later(database: Database) -> None:
    told = threading.Event()

    def broken(connection: Connection) -> None:
        announce(connection, "things")
        raise KeyError

    with pytest.raises(KeyError):
        database.write(broken)
    database.wakeups._url = None  # in this process only: a listener that begins is told once by the other way
    database.wakeups.listen("things", told.set)
    database.write(lambda connection: connection.execute(text("SELECT 1")))
    assert not told.is_set()


def test_a_channel_that_could_break_a_statement_is_refused(database: Database) -> None:
    with pytest.raises(ValueError, match="channel"):
        database.write(lambda connection: announce(connection, 'a"; DROP TABLE members'))
