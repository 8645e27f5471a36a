"""The rows of a search, by one suite on SQLite and PostgreSQL: a test for each line of the transitions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import func, inspect, select, text
from sqlalchemy.exc import DBAPIError

from tenuto.database import Database, migrate
from tenuto.lifecycle.evolution import EvolutionStatus, SearchEnd, SearchState
from tenuto.search.opening import MIGRATIONS
from tenuto.search.rows import Added, Caps, End, Refusal, Told
from tenuto.search.store import Store
from tenuto.search.tables import evolution_jobs, evolution_moves, metadata
from tests.search.builders import (
    ANY,
    added,
    claimed,
    column,
    execute,
    new,
    opened,
    status,
    succeeded,
    tell_all,
)

S = EvolutionStatus


def test_the_migration_makes_the_tables_that_are_declared(store: Store) -> None:
    def found(connection: object) -> dict[str, set[str]]:
        inspector = inspect(connection)
        return {name: {c["name"] for c in inspector.get_columns(name)} for name in metadata.tables}  # type: ignore[union-attr]

    declared = {name: {column.name for column in table.c} for name, table in metadata.tables.items()}
    assert store.database.read(found) == declared
    names = store.database.read(lambda c: {i["name"] for i in inspect(c).get_indexes("evolution_jobs")})
    assert {index.name for index in evolution_jobs.indexes} <= names


def test_opening_twice_gives_the_same_search(store: Store) -> None:
    assert store.open("s", {"a": 1}, 7) == store.open("s", {"a": 2}, 8)
    assert store.search("other") is None
    assert store.view("other") is None


def test_a_search_that_two_processes_make_at_once_is_that_of_the_first(postgresql_url: str) -> None:
    database, other = Database(postgresql_url), Database(postgresql_url)
    migrate(database, MIGRATIONS)
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    row = "INSERT INTO searches (id, definition, seed, state, created_at) VALUES ('s', '{}', 7, 'RUNNING', 1)"
    with ThreadPoolExecutor() as pool:
        with database._engine.begin() as first:
            first.execute(text(row))
            second = pool.submit(Store(other).open, "s", {"a": 1}, 8)
            while not database.read(lambda connection: connection.execute(waiting).scalar_one()):
                assert not second.done()
        assert second.result(30).seed == 7
    database.close()
    other.close()


# -- none -> PENDING, SUCCEEDED --------------------------------------------------------------------


def test_3_the_caps_are_counted_where_the_row_is_inserted(store: Store) -> None:
    opened(store)
    added(store, 2)
    assert store.add("s", new(3), Caps(max_unfinished=2)) is Refusal.UNFINISHED
    assert store.add("s", new(3), Caps(max_total=2)) is Refusal.TOTAL
    assert store.count_unfinished("s") == 2
    assert isinstance(store.add("s", new(3), Caps(3, 3)), Added)


def test_a_proposal_of_a_moment_that_has_passed_is_refused(store: Store) -> None:
    opened(store)
    added(store, 1)
    assert store.add("s", new(1), ANY) is Refusal.MOVED
    assert store.add("s", new(3), ANY) is Refusal.MOVED
    assert store.add("s", new(2, after=1), ANY) is Refusal.MOVED
    assert store.add("s", new(2, identity="s1"), ANY) is Refusal.DUPLICATE
    store.set_state("s", SearchState.PAUSED)
    assert store.add("s", new(2), ANY) is Refusal.STATE


def test_9_adding_again_after_a_lost_answer_adds_nothing(store: Store) -> None:
    opened(store)
    candidate = new(1)
    assert store.add("s", candidate, ANY) == store.add("s", candidate, ANY)
    search = store.search("s")
    assert search is not None
    assert search.scheduled == 1


def test_19_an_identity_that_succeeded_in_another_search_is_reused(store: Store) -> None:
    opened(opened(store), "t")
    added(store, 1)
    store.dispatch("s", 9)
    [row] = claimed(store)
    store.finish([succeeded(row, 0.5, cost=2.0)], 3)
    again = store.add("t", new(1, identity="s1"), ANY)
    assert isinstance(again, Added)
    assert again.reused
    assert status(store, 1, "t") is S.SUCCEEDED
    assert column(store, 1, "objective", "t") == 0.5
    assert column(store, 1, "cost", "t") == 0.0
    assert [r.number for r in store.to_tell("t", 9)] == [1]


def test_5_enqueue_passes_the_cap_on_unfinished_but_never_the_total(store: Store) -> None:
    opened(store)
    added(store, 2)
    caps = Caps(max_unfinished=1, max_total=3)
    result = store.add("s", new(0, identity="x"), caps, is_ordered=False)
    assert isinstance(result, Added)
    assert result.number == 3
    assert store.add("s", new(0, identity="y"), caps, is_ordered=False) is Refusal.TOTAL
    assert store.count_unfinished("s") == 3


def test_3_threads_that_add_without_pause_end_at_the_cap(store: Store) -> None:
    opened(store)

    def press(thread: int) -> None:
        for turn in range(30):
            search = store.search("s")
            assert search is not None
            identity = f"{thread}-{turn}"
            store.add("s", new(search.scheduled + 1, search.told, identity), Caps(5, 40))

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(press, range(3)))
    assert store.count_unfinished("s") == 5


# -- PENDING -> QUEUED -> PENDING ------------------------------------------------------------------


def test_1_dispatch_goes_by_priority_then_scheduled_then_created(store: Store) -> None:
    opened(store)
    added(store, 5)
    for number, priority, scheduled, created in (
        (1, 0, 20, 20),
        (2, 5, 30, 30),
        (3, 0, 10, 40),
        (4, 0, 20, 10),
        (5, 5, 30, 30),
    ):
        execute(
            store,
            f"UPDATE evolution_jobs SET priority = {priority}, scheduled_at = {scheduled}, "
            f"created_at = {created} WHERE number = {number}",
        )
    first = store.dispatch("s", 3)
    assert [row.number for row in first] == [2, 5, 3]
    assert [row.number for row in store.dispatch("s", 3)] == [4, 1]
    assert store.dispatch("s", 3) == []
    assert int(str(column(store, 2, "scheduled_at"))) > 1_000_000
    assert status(store, 2) is S.QUEUED


def test_a_failed_send_returns_the_row_with_a_back_off_that_doubles(store: Store) -> None:
    opened(store)
    added(store, 1)
    moved_at = select(func.max(evolution_moves.c.at))
    for seconds in (1, 2, 4, 8, 16, 32, 60, 60):
        [sent] = store.dispatch("s", 9)
        before = store.database.read(lambda c: c.execute(moved_at).scalar_one())
        assert store.send_failed("s", [sent.id], 1000) == 1
        after = store.database.read(lambda c: c.execute(moved_at).scalar_one())
        assert store.dispatch("s", 9) == []
        assert column(store, 1, "scheduled_at") == column(store, 1, "created_at")
        not_before = int(str(column(store, 1, "not_before")))
        assert before + seconds * 1000 <= not_before <= after + seconds * 1000
        execute(store, "UPDATE evolution_jobs SET not_before = 0")


# -- telling ---------------------------------------------------------------------------------------


def test_telling_is_compared_and_set(store: Store) -> None:
    opened(store)
    added(store, 3)
    store.dispatch("s", 9)
    rows = claimed(store, 3)
    store.finish([succeeded(rows[1], 5.0, 0.5), succeeded(rows[0], 3.0, 0.25)], 3)
    assert [row.number for row in store.to_tell("s", 9)] in ([1, 2], [2, 1])
    assert store.tell("s", 7, list, True) is None
    assert tell_all(store) == 2
    search = store.search("s")
    assert search is not None
    assert (search.told, search.cost, search.best_number, search.best_objective) == (2, 0.75, 2, 5.0)
    assert store.to_tell("s", 9) == []
    told, new_rows, tells = store.read_log("s", 1, 1)
    assert (told, [row.number for row in new_rows], len(tells)) == (2, [2, 3], 1)


def test_a_long_log_is_read_by_several_transactions_as_of_one_moment(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(store)
    added(store, 7)
    store.dispatch("s", 9)
    rows = claimed(store, 7)
    store.finish([succeeded(rows[number], float(number)) for number in (5, 0, 3)], 3)
    tell_all(store)
    whole = store.read_log("s", 0, 0)
    read, reads = store.database.read, []

    def counted(work: Any) -> Any:
        answer = read(work)
        if not reads:  # another process tells between two pages
            store.finish([succeeded(rows[4])], 3)
            monkeypatch.undo()
            tell_all(store)
            monkeypatch.setattr("tenuto.search.store.LOG_ROWS", 2)
            monkeypatch.setattr(store.database, "read", counted)
        reads.append(answer)
        return answer

    monkeypatch.setattr("tenuto.search.store.LOG_ROWS", 2)
    monkeypatch.setattr(store.database, "read", counted)
    told, log, tells = store.read_log("s", 0, 0)
    assert len(reads) > 3
    assert (told, [row.number for row in log], tells) == (3, list(range(1, 8)), whole[2])
    assert [row.told for row in log] == [row.told for row in whole[1]]
    monkeypatch.undo()
    assert [row.number for row in store.read_log("s", 7, 3)[2]] == [5]


def test_26_a_row_that_cannot_be_told_is_failed_with_the_error(store: Store) -> None:
    opened(store)
    added(store, 1)
    store.dispatch("s", 9)
    store.finish([succeeded(claimed(store)[0])], 3)
    [row] = store.to_tell("s", 1)
    store.tell("s", 0, lambda: [Told(row.id, 1, "failed", None, 0.0, 1.0, "the sampler raised")], True)
    assert status(store, 1) is S.FAILED
    assert column(store, 1, "message") == "the sampler raised"


# -- steering --------------------------------------------------------------------------------------


def test_70_a_result_after_a_cancellation_or_removal_is_discarded(store: Store) -> None:
    opened(store)
    added(store, 3)
    store.dispatch("s", 2)
    [row] = claimed(store)
    assert store.cancel("s", None) == 3
    assert store.renew("w", [row.key], 1000) == set()
    assert store.finish([succeeded(row)], 3) == set()
    assert store.remove("s")
    assert not store.remove("s")
    assert store.finish([succeeded(row)], 3) == set()


def test_23_a_retry_begins_anew(store: Store) -> None:
    opened(store)
    added(store, 2)
    store.dispatch("s", 9)
    first, second = claimed(store, 2)
    store.finish([End(first.id, 1, S.FAILED, failure="FAILED", message="no"), succeeded(second)], 3)
    tell_all(store)
    assert store.end("s", SearchEnd.TOTAL)
    assert store.retry("s", [2]) == 0
    assert store.retry("s", None) == 1
    assert status(store, 1) is S.PENDING
    assert column(store, 1, "told") is None
    assert store.search("s").state is SearchState.RUNNING  # type: ignore[union-attr]


def test_a_search_is_paused_drained_ended_and_opened_again(store: Store) -> None:
    opened(store)
    added(store, 3)
    store.dispatch("s", 2)
    [row] = claimed(store)
    assert store.set_state("s", SearchState.PAUSED)
    assert not store.set_state("s", SearchState.PAUSED)
    assert store.set_state("s", SearchState.RUNNING)
    assert store.drain("s", SearchEnd.COST, "spent")
    assert not store.drain("s", SearchEnd.TIME)
    assert [status(store, n) for n in (2, 3)] == [S.CANCELLED, S.CANCELLED]
    assert not store.end("s")
    store.finish([succeeded(row)], 3)
    assert not store.end("s")
    tell_all(store)
    assert store.end("s")
    ended = store.search("s")
    assert ended is not None
    assert (ended.state, ended.reason) == (SearchState.ENDED, SearchEnd.COST)
    store.reopen("s")
    assert store.search("s").state is SearchState.RUNNING  # type: ignore[union-attr]


def test_the_view_counts_by_one_statement(store: Store) -> None:
    opened(store)
    added(store, 4)
    store.dispatch("s", 3)
    store.finish([succeeded(claimed(store)[0])], 3)
    claimed(store)
    view = store.view("s")
    assert view is not None
    counts = view.counts
    assert (counts.pending, counts.queued, counts.running, counts.to_tell) == (1, 1, 1, 1)
    assert counts.unfinished == store.count_unfinished("s") == 3


def test_every_move_leaves_a_line(store: Store) -> None:
    opened(store)
    added(store, 1)
    store.dispatch("s", 9)
    store.finish([succeeded(claimed(store)[0])], 3)
    query = select(evolution_moves.c.status).order_by(evolution_moves.c.id)
    moves = store.database.read(lambda c: list(c.execute(query).scalars()))
    assert moves == ["PENDING", "QUEUED", "RUNNING", "SUCCEEDED"]
    assert (
        store.database.read(lambda c: c.execute(select(func.count()).select_from(evolution_moves)).scalar())
        == 4
    )


def test_time_that_two_schedulers_count_together_counts_once(store: Store) -> None:
    opened(store)
    for _ in range(3):
        store.spend_time("s", 60_000)  # three of them, of the same minute
    search = store.search("s")
    assert search is not None
    assert 60_000 <= search.active_ms < 90_000


def test_12_a_scheduler_that_stands_still_in_a_transaction_holds_no_other_up(
    postgresql_url: str,
) -> None:
    """As long as PostgreSQL lets it: ten seconds (tests/database), here less."""
    database = Database(postgresql_url)
    migrate(database, MIGRATIONS)
    store = opened(Store(database))
    with database._engine.connect() as frozen:
        frozen.execute(text("SET idle_in_transaction_session_timeout = '300ms'"))
        frozen.execute(text("SELECT * FROM searches WHERE id = 's' FOR UPDATE"))
        assert isinstance(store.add("s", new(1), ANY), Added)
        with pytest.raises(DBAPIError):
            frozen.execute(text("UPDATE searches SET told = 99"))
        frozen.invalidate()
    search = store.search("s")
    assert search is not None
    assert (search.scheduled, search.told) == (1, 0)
    database.close()
