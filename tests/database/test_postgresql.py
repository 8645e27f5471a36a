"""What is promised of PostgreSQL alone: lost connections, silent servers, secrets, wake-ups."""

from __future__ import annotations

import socket
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from sqlalchemy import Connection, text

from tenuto.database import Database, announce, engine, migrate
from tenuto.errors import DatabaseUnavailable
from tests.parts.postgresql import PostgreSQL

PASSWORD = "geheim-4711"


def test_9_a_connection_that_is_cut_before_the_commit_is_repeated_whole(
    postgresql: PostgreSQL, postgresql_url: str
) -> None:
    database = Database(postgresql_url)
    database.write(lambda connection: connection.execute(text("CREATE TABLE t (a INTEGER)")))
    tries = []

    def insert(connection: Connection) -> None:
        connection.execute(text("INSERT INTO t VALUES (1)"))
        tries.append(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())
        if len(tries) == 1:
            postgresql.execute(f"SELECT pg_terminate_backend({tries[0]})")

    database.write(insert)
    assert len(tries) == 2
    assert database.read(lambda connection: connection.execute(text("SELECT count(*) FROM t")).scalar()) == 1
    database.close()


def test_9_a_restart_of_the_server_is_survived(postgresql: PostgreSQL, postgresql_url: str) -> None:
    database = Database(postgresql_url)
    database.write(lambda connection: connection.execute(text("CREATE TABLE t (a INTEGER)")))
    postgresql.restart()
    database.write(lambda connection: connection.execute(text("INSERT INTO t VALUES (1)")))
    assert database.read(lambda connection: connection.execute(text("SELECT count(*) FROM t")).scalar()) == 1
    database.close()


def test_a_server_that_falls_silent_ends_the_transaction(postgresql_url: str) -> None:
    database = Database(postgresql_url, patience_s=0, transaction_s=0.2)
    with pytest.raises(DatabaseUnavailable):
        database.read(lambda connection: connection.execute(text("SELECT pg_sleep(30)")))
    database.close()


def test_a_server_that_never_answers_a_connection_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "CONNECT_TIMEOUT_S", 2)  # the least that libpq takes
    with socket.create_server(("127.0.0.1", 0)) as silent:
        database = Database(f"postgresql://tenuto@127.0.0.1:{silent.getsockname()[1]}/t", patience_s=0)
        with pytest.raises(DatabaseUnavailable, match="cannot be reached"):
            database.read(lambda connection: connection.execute(text("SELECT 1")))
        database.close()


def test_12_a_transaction_that_idles_gives_its_locks_back(postgresql_url: str) -> None:
    database = Database(postgresql_url)
    shown = database.read(
        lambda connection: [
            connection.execute(text(f"SHOW {name}")).scalar()
            for name in ("lock_timeout", "idle_in_transaction_session_timeout")
        ]
    )
    assert shown == ["5s", "10s"]
    database.close()


def test_35_a_password_is_in_no_error(postgresql: PostgreSQL) -> None:
    database = Database(postgresql.url_of("no_such_database", PASSWORD), patience_s=0.05)
    assert PASSWORD not in database.shown_url
    with pytest.raises(DatabaseUnavailable) as caught:
        migrate(database)
    assert "no_such_database" in str(caught.value)
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))
    database.close()


def test_another_process_is_woken(postgresql_url: str) -> None:
    listening, announcing = Database(postgresql_url), Database(postgresql_url)
    told = threading.Event()
    listening.wakeups.listen("things", told.set)
    assert told.wait(60)  # it listens
    told.clear()
    announcing.write(lambda connection: announce(connection, "things"))
    assert told.wait(60)
    listening.close()
    announcing.close()


def test_a_deadlock_is_repeated_until_both_are_through(postgresql_url: str) -> None:
    """F53: PostgreSQL ends one of two transactions that wait for each other; it is run again, whole."""
    database = Database(postgresql_url)
    database.write(lambda connection: connection.execute(text("CREATE TABLE t (id INTEGER, a INTEGER)")))
    database.write(lambda connection: connection.execute(text("INSERT INTO t VALUES (1, 0), (2, 0)")))
    both = threading.Barrier(2)
    tries: list[int] = []

    def crossed(first: int, second: int, connection: Connection) -> None:
        tries.append(first)
        connection.execute(text(f"UPDATE t SET a = a + 1 WHERE id = {first}"))
        if tries.count(first) == 1:
            both.wait(30)
        connection.execute(text(f"UPDATE t SET a = a + 1 WHERE id = {second}"))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda order: database.write(partial(crossed, *order)), [(1, 2), (2, 1)]))
    assert len(tries) >= 3, "one of them was repeated"
    counted = database.read(lambda connection: connection.execute(text("SELECT a FROM t ORDER BY id")).all())
    assert [row[0] for row in counted] == [2, 2]
    database.close()
