"""What is promised of SQLite alone: its settings, turns at writing, files that are not ours."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from proof.descriptors import open_files
from tenuto.database import Database, migrate
from tenuto.database.transactions import Turns
from tenuto.errors import DatabaseDamaged, DatabaseUnavailable, ForeignDatabase, InvalidSetting


def test_a_connection_is_durable_and_checks_references(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.db")

    def pragmas(connection: Connection) -> list[object]:
        names = ("journal_mode", "synchronous", "foreign_keys")
        return [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]

    assert database.read(pragmas) == ["wal", 2, 1]
    database.close()


def test_a_file_of_another_program_is_refused_by_name(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as connection, connection:
        connection.execute("CREATE TABLE urls (a)")
    database = Database(tmp_path / "theirs.db")
    with pytest.raises(ForeignDatabase, match=r"theirs\.db.*urls"):
        migrate(database)
    database.close()
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("urls",)]


def test_14_a_damaged_file_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"no database " * 1000)
    database = Database(tmp_path / "a.db")
    with pytest.raises(DatabaseDamaged, match="recover"):
        migrate(database)
    database.close()


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DatabaseUnavailable, match=r"file.*cannot be used"):
        Database(tmp_path / "file" / "a.db")


@pytest.mark.parametrize("url", ["", "sqlite://", ":memory:", "mysql://a@b/c"])
def test_another_kind_of_database_is_refused(url: str) -> None:
    with pytest.raises(InvalidSetting):
        Database(url)


def test_a_database_that_was_closed_answers_and_leaves_no_connection(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.db")
    database.write(lambda connection: connection.execute(text("CREATE TABLE t (a INTEGER)")))
    assert open_files(str(tmp_path))
    database.close()
    assert database.read(lambda connection: connection.execute(text("SELECT count(*) FROM t")).scalar()) == 0
    assert not open_files(str(tmp_path))


def test_a_transaction_that_a_close_overtakes_leaves_no_connection(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.db")
    database.read(lambda _: database.close())
    assert not open_files(str(tmp_path))


def test_a_transaction_inside_another_is_refused_at_once(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.db")
    with pytest.raises(RuntimeError, match="inside another"):
        database.write(lambda _: database.write(lambda _: None))
    database.close()


def test_turns_are_taken_in_the_order_in_which_they_were_asked_for() -> None:
    turns = Turns()
    order: list[int] = []

    def take(number: int) -> None:
        with turns:
            order.append(number)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
    with turns:
        for waiting, thread in enumerate(threads, 1):
            thread.start()
            while len(turns._waiting) < waiting:
                pass
    for thread in threads:
        thread.join(60)
    assert order == list(range(8))


WRITER = """
import sys, time
from sqlalchemy import text
from tenuto.database import Database
database = Database(sys.argv[1])
end, count = time.monotonic() + float(sys.argv[2]), 0
while count < 50 or time.monotonic() < end:
    count += 1
    database.write(lambda connection: connection.execute(text("UPDATE t SET a = a + 1")))
print(count)
"""


@pytest.mark.parametrize("seconds", [0, pytest.param(60, marks=pytest.mark.prove("a minute of writing"))])
def test_14_no_process_sees_a_locked_database(tmp_path: Path, seconds: int) -> None:
    path = tmp_path / "a.db"
    database = Database(path)
    database.write(lambda connection: connection.execute(text("CREATE TABLE t (a INTEGER)")))
    database.write(lambda connection: connection.execute(text("INSERT INTO t VALUES (0)")))
    command = [sys.executable, "-c", WRITER, str(path), str(seconds)]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    written = [int(writer.communicate(timeout=100 + seconds)[0]) for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 4
    counted = database.read(lambda connection: connection.execute(text("SELECT a FROM t")).scalar())
    assert counted == sum(written) >= 200
    database.close()
