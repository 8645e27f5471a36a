"""Groups of writers of a SQLite file: those that wait meanwhile share a commit, and nothing else."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import IntegrityError

from tenuto.database import Database
from tenuto.errors import DatabaseUnavailable


class Written:
    """A database with one table, whose first writer is held until others wait behind it."""

    def __init__(self, path: Path) -> None:
        self.database = Database(path, patience_s=0.0)
        self.database.write(lambda connection: connection.execute(text("CREATE TABLE t (n INT UNIQUE)")))
        self.commits = 0
        event.listen(self.database._engine, "commit", self._count)

    def _count(self, connection: Any) -> None:
        self.commits += 1

    def numbers(self) -> list[int]:
        query = text("SELECT n FROM t ORDER BY n")
        return self.database.read(lambda connection: list(connection.execute(query).scalars()))

    def together(self, *writes: Callable[[Connection], Any]) -> list[Future[Any]]:
        """The writes, which all wait while another one runs, in this order."""
        groups = self.database._groups
        assert groups is not None
        running, go = threading.Event(), threading.Event()

        def hold(connection: Connection) -> None:
            running.set()
            assert go.wait(30)

        with ThreadPoolExecutor(len(writes) + 1) as pool:
            first = pool.submit(self.database.write, hold)
            assert running.wait(30)
            asked = []
            for count, write in enumerate(writes, 1):
                asked.append(pool.submit(self.database.write, write))
                until = time.monotonic() + 30
                while len(groups._waiting) < count:
                    assert time.monotonic() < until
                    time.sleep(0.001)
            self.commits = 0
            go.set()
            first.result(30)
        return asked


def insert(number: int) -> Callable[[Connection], int]:
    def write(connection: Connection) -> int:
        connection.execute(text(f"INSERT INTO t VALUES ({number})"))
        return number

    return write


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    written = Written(tmp_path / "a.db")
    yield written
    written.database.close()


def test_writers_that_wait_share_a_commit(written: Written) -> None:
    asked = written.together(*map(insert, range(10)))
    assert [one.result() for one in asked] == list(range(10))
    assert written.commits == 2, "of the one that held them up, and theirs"
    assert written.numbers() == list(range(10))


def test_a_writer_that_fails_undoes_its_own_changes_only(written: Written) -> None:
    def broken(connection: Connection) -> None:
        insert(7)(connection)
        raise LookupError("mine")

    one, two, three, four = written.together(insert(1), broken, insert(1), insert(2))
    assert (one.result(), four.result()) == (1, 2)
    assert isinstance(two.exception(), LookupError)
    assert isinstance(three.exception(), IntegrityError)
    assert written.numbers() == [1, 2]


def test_a_commit_that_fails_is_told_to_all_that_share_it(written: Written) -> None:
    def full(connection: Any, cursor: Any, statement: str, *more: Any) -> None:
        if "VALUES (2)" in statement:
            cursor.execute("PRAGMA query_only = ON")

    event.listen(written.database._engine, "before_cursor_execute", full)
    asked = written.together(insert(1), insert(2), insert(3))
    assert [type(one.exception()) for one in asked] == [DatabaseUnavailable] * 3
    assert written.numbers() == []


def test_more_writers_than_share_a_commit_are_all_served(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenuto.database.transactions.MOST", 2)
    asked = written.together(*map(insert, range(5)))
    assert [one.result() for one in asked] == list(range(5))
    assert written.commits == 4


def test_a_leader_that_is_interrupted_leaves_the_others_to_the_next(written: Written) -> None:
    def interrupted(connection: Connection) -> None:
        insert(9)(connection)
        raise KeyboardInterrupt

    one, two, three = written.together(interrupted, insert(1), insert(2))
    assert isinstance(one.exception(), KeyboardInterrupt)
    assert (two.result(), three.result()) == (1, 2)
    assert written.numbers() == [1, 2]


def test_a_write_is_four_frames_from_its_function(tmp_path: Path) -> None:
    database = Database(tmp_path / "frames.sqlite")

    def frames(_: Connection) -> list[str]:
        return [one.name for one in traceback.extract_stack() if "tenuto/database" in one.filename]

    assert database.write(frames) == ["write", "write", "_lead", "_transaction"]
    assert database.read(frames) == ["read", "_transaction"]
    database.close()
