"""The contract of rows, on SQLite and on PostgreSQL; Hypothesis compares them with a dict."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sqlalchemy import delete, event, text

from tenuto.database import Database, migrate
from tenuto.errors import IllegalTransition
from tenuto.lifecycle.service import ACTIVE, SERVICE_TRANSITIONS, ServiceState
from tenuto.service import requests as rows
from tenuto.service import tables
from tenuto.service.decisions import Quota, next_jobs
from tenuto.service.requests import Requests
from tenuto.service.rows import Page
from tests.service.request_contract import NODES, RequestsContract, add

S = ServiceState


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    migrate(database, tables.MIGRATIONS)
    yield database
    database.close()


@pytest.fixture
def requests(database: Database) -> Requests:
    return Requests(database, "me")


def test_the_migrations_make_the_tables_that_the_code_declares(database: Database) -> None:
    def differences(connection: Any) -> list[Any]:
        found = compare_metadata(MigrationContext.configure(connection), tables.metadata)
        ours = set(tables.metadata.tables)
        return [one for one in found if not (one[0].startswith("remove_") and _table(one) not in ours)]

    assert database.read(differences) == []


def _table(difference: Any) -> str:
    subject = difference[1]
    return str(getattr(subject, "table", subject).name)


class TestRequests(RequestsContract):
    """On SQLite and on PostgreSQL."""


def test_a_rehearsal_changes_nothing(requests: Requests) -> None:
    add(requests)
    requests.rehearse()
    [row] = requests.listed(Page())
    assert (row.state, row.claim, row.message) == (S.QUEUED, 0, "")
    assert [move.state for move in requests.moves_of(row.id)] == [S.QUEUED]


def queued(database: Database, count: int, users: int = 3) -> None:
    """So many queued jobs of a few users."""
    rows = [
        {
            "user_id": str(n % users),
            "service": "s",
            "state": "Queued",
            "directory": f"x{n}",
            "created_at": 0,
            "ready_at": 0,
        }
        for n in range(count)
    ]
    database.write(lambda connection: connection.execute(tables.jobs.insert(), rows))
    Requests(database, "me").note_queues()
    database.write(lambda connection: connection.execute(text("ANALYZE")))


def statements_of_a_claim(requests: Requests, database: Database) -> list[tuple[str, Any]]:
    """The statements of a claim of eight jobs, with their parameters."""
    seen: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, *more: Any) -> None:
        seen.append((statement, parameters))

    event.listen(database._engine, "before_cursor_execute", note)
    try:
        assert len(requests.claim("s", Quota(5, 8), NODES)) == 8
    finally:
        event.remove(database._engine, "before_cursor_execute", note)
    return seen


@pytest.mark.slow
def test_15_a_claim_costs_the_same_among_many_queued(requests: Requests, database: Database) -> None:
    """Acceptance 15: few statements, and none that reads the queue; the ratio of times is in `make bench`."""
    queued(database, 20_000)
    seen = statements_of_a_claim(requests, database)
    assert len(seen) < 60
    explain = "EXPLAIN QUERY PLAN " if database.is_sqlite else "EXPLAIN "
    for statement, parameters in seen:
        if not statement.lstrip().upper().startswith(("SELECT", "WITH", "UPDATE")) or "jobs" not in statement:
            continue

        def plan(connection: Any, asked: str = explain + statement, given: Any = parameters) -> str:
            return str(connection.exec_driver_sql(asked, given).all())

        shown = database.read(plan)
        assert "Seq Scan on jobs" not in shown, (statement, shown)
        assert "SCAN jobs'" not in shown, (statement, shown)


def test_15_a_user_who_comes_later_waits_for_one_job_at_most(requests: Requests, database: Database) -> None:
    """Acceptance 15: one place, a thousand queued jobs of one user."""
    queued(database, 1_000, users=1)
    (first,) = requests.claim("s", Quota(5, 1), NODES)
    late = add(requests, "late")
    assert requests.claim("s", Quota(5, 1), NODES) == []
    assert requests.move(first, S.FAILED) is not None
    assert [row.id for row in requests.claim("s", Quota(5, 1), NODES)] == [late.id]


def test_a_job_that_ends_while_the_queue_is_read_is_not_claimed(
    requests: Requests, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H13: on PostgreSQL a user ends a job between the look at the queue and the claim."""
    first, second = add(requests), add(requests)

    def chosen(*given: Any) -> tuple[int, ...]:
        if not database.is_sqlite:  # there the claim is alone
            assert requests.terminate(first.id) is not None
        return next_jobs(*given)

    monkeypatch.setattr("tenuto.service.requests.next_jobs", chosen)
    claimed = [row.id for row in requests.claim("s", Quota(5, 5), NODES)]
    assert claimed == ([first.id, second.id] if database.is_sqlite else [second.id])
    ended = requests.terminate(first.id)
    assert ended is not None
    assert ended.state is (S.PROCESSING if database.is_sqlite else S.KILLED)


def test_a_wish_for_the_end_outlives_a_move_at_the_same_time(
    requests: Requests, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H13: a server moves the job between a user's look at it and the note of the wish."""
    add(requests)
    (claimed,) = requests.claim("s", Quota(5, 5), NODES)
    mover = threading.Thread(target=requests.move, args=(claimed, S.SUBMITTED))
    looked = rows.now

    def now(connection: Any) -> int:
        if threading.current_thread() is not mover and not mover.ident:
            mover.start()
            mover.join(0.5)  # it has moved the job, or waits for the lock
        return looked(connection)

    monkeypatch.setattr(rows, "now", now)
    requests.terminate(claimed.id)
    mover.join(30)
    row = requests.get(claimed.id)
    assert row is not None
    assert row.state is S.SUBMITTED
    assert row.terminate_at is not None
    assert requests.unwanted() == [claimed.id]


def notes(database: Database) -> dict[str, int | None]:
    """The oldest queued job of each user, as it is noted."""
    query = text("SELECT user_id, oldest FROM turns")
    return database.read(lambda connection: {row[0]: row[1] for row in connection.execute(query)})


def test_a_claim_asks_for_no_queue_of_a_user_who_is_not_next(requests: Requests, database: Database) -> None:
    """A thousand users who were never served cost a claim on PostgreSQL 24 ms."""
    asked = []
    for users in (20, 2_000):
        for table in (tables.jobs, tables.turns):
            database.write(lambda connection, table=table: connection.execute(delete(table)))  # type: ignore[misc]
        queued(database, 2 * users, users)
        asked.append(len(statements_of_a_claim(requests, database)))
    assert asked[1] <= asked[0], "one read of turns, and the queues of eight users"


def test_the_never_served_user_with_the_oldest_queued_job_is_next(
    requests: Requests,
) -> None:
    """By what is queued now: a job that was ended, or that was put back, is not what was noted first."""
    gone, second, kept = add(requests, "a"), add(requests, "b"), add(requests, "c")
    later = add(requests, "a")
    requests.terminate(gone.id)
    (claimed,) = requests.claim("s", Quota(1, 1), NODES)
    assert claimed.id == second.id
    assert requests.requeue(claimed, "not sent", 0) is not None
    order = [requests.claim("s", Quota(1, most), NODES)[0].id for most in (1, 2, 3)]
    assert order == [kept.id, later.id, second.id]


def test_what_a_server_of_an_older_version_does_to_queues_is_noted_later(
    requests: Requests, database: Database
) -> None:
    """While servers are upgraded one after the other: it queues jobs, and claims the last one of a user."""
    row = add(requests)
    database.write(lambda connection: connection.execute(text("UPDATE turns SET oldest = NULL")))
    assert requests.claim("s", Quota(1, 1), NODES) == []
    requests.note_queues()
    assert notes(database) == {"1": row.id}
    database.write(lambda connection: connection.execute(text("UPDATE jobs SET state = 'Submitted'")))
    add(requests, "2")
    assert [one.user_id for one in requests.claim("s", Quota(2, 9), NODES)] == ["2"]
    assert notes(database) == {"1": row.id, "2": None}
    requests.note_queues()
    assert notes(database) == {"1": None, "2": None}


def test_the_queue_of_an_older_database_is_noted(requests: Requests, database: Database) -> None:
    """Its jobs would wait for a round of the cleaner."""
    script = ScriptDirectory(str(tables.MIGRATIONS.folder))
    add(requests)
    second, third = add(requests), add(requests, "2")
    assert len(requests.claim("s", Quota(1, 1), NODES)) == 1

    def downgrade(connection: Any) -> None:
        with Operations.context(MigrationContext.configure(connection)):
            script.get_revision("0005").module.downgrade()
        connection.execute(text("UPDATE service_version SET version_num = '0004'"))

    database.write(downgrade)
    migrate(database, tables.MIGRATIONS)
    assert notes(database) == {"1": second.id, "2": third.id}


def test_a_job_that_comes_while_the_last_one_is_claimed_is_noted(
    requests: Requests, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL the two transactions overlap: the note of the upload waits for that of the claim."""
    add(requests)
    uploading = threading.Thread(target=add, args=(Requests(database, "other"),))
    noted = rows.note_queue

    def late(*given: Any, **more: Any) -> None:
        noted(*given, **more)
        uploading.start()
        uploading.join(0.5)  # it has its row, and waits

    monkeypatch.setattr(rows, "note_queue", late)
    assert len(requests.claim("s", Quota(1, 1), NODES)) == 1
    uploading.join(30)
    assert list(notes(database).values()) == [2]


class AgainstDict(RuleBasedStateMachine):
    """Rows against a dict: whatever is asked in whatever order, both say the same."""

    requests: Requests
    database: Database
    looks = 0
    """How often the rows were compared with the dict, in all courses."""

    def __init__(self) -> None:
        super().__init__()
        self.database.write(lambda connection: connection.execute(delete(tables.jobs)))
        self.database.write(lambda connection: connection.execute(delete(tables.turns)))
        self.known: dict[int, ServiceState] = {}
        self.users: dict[int, str] = {}

    @rule(user=st.sampled_from("ab"))
    def upload(self, user: str) -> None:
        row = add(self.requests, user)
        self.known[row.id], self.users[row.id] = S.QUEUED, user

    @rule(most=st.integers(0, 4), per_user=st.integers(1, 3))
    def claim(self, most: int, per_user: int) -> None:
        active = [id for id, state in self.known.items() if state in ACTIVE]
        rows = self.requests.claim("s", Quota(per_user, most), NODES)
        for row in rows:
            assert self.known[row.id] is S.QUEUED
            self.known[row.id] = S.PROCESSING
        if rows:
            assert len(active) + len(rows) <= most
        for user in "ab":
            mine = [id for id, state in self.known.items() if state in ACTIVE and self.users[id] == user]
            gained = [row for row in rows if row.user_id == user]
            assert not gained or len(mine) <= per_user

    @rule(pick=st.integers(0, 100), to=st.sampled_from(S))
    def move(self, pick: int, to: ServiceState) -> None:
        if not self.known:
            return
        id = sorted(self.known)[pick % len(self.known)]
        row = self.requests.get(id)
        assert row is not None
        if to in SERVICE_TRANSITIONS[row.state]:
            assert self.requests.move(row, to) is not None
            self.known[id] = to
        else:
            with pytest.raises(IllegalTransition):
                self.requests.move(row, to)

    @rule(pick=st.integers(0, 100))
    def terminate(self, pick: int) -> None:
        if self.known:
            id = sorted(self.known)[pick % len(self.known)]
            row = self.requests.terminate(id)
            if self.known[id] is S.QUEUED:
                self.known[id] = S.KILLED
            assert row is not None
            assert row.state is self.known[id]

    @invariant()
    def same(self) -> None:
        queued = {
            self.users[id]: id for id, state in sorted(self.known.items(), reverse=True) if state is S.QUEUED
        }
        noted = notes(self.database)
        assert {user: id for user, id in noted.items() if id is not None} == queued
        rows = {row.id: row.state for row in self.requests.listed(Page(limit=1000))}
        assert rows == self.known
        AgainstDict.looks += 1


def test_rows_behave_as_a_dict_would(requests: Requests, database: Database) -> None:
    """F51, V6."""
    AgainstDict.requests, AgainstDict.database = requests, database
    few = settings(max_examples=12, stateful_step_count=20, deadline=None)
    before = AgainstDict.looks
    run_state_machine_as_test(AgainstDict, settings=few)
    assert AgainstDict.looks - before >= 12, "each course compares its rows"
