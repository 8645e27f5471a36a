"""32: each hot query uses its partial index, on both databases; the statements are those the store sends."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import event, text

from tenuto.search.store import Store
from tests.search.builders import ANY, new, opened

FILL = """
INSERT INTO evolution_jobs (id, search_id, number, status, created_at, scheduled_at, task_id, job_id, params,
                            proposal, asked_after, lease_until, told, completed_at)
SELECT CAST(n AS VARCHAR(32)), 's', n,
       CASE WHEN n % 50 = 0 THEN 'PENDING' WHEN n % 50 = 1 THEN 'QUEUED' WHEN n % 50 = 2 THEN 'RUNNING'
            ELSE 'SUCCEEDED' END,
       n, n, 't', CAST(n AS VARCHAR(32)), '', '', 0, 9999999999999, n, CASE WHEN n % 50 > 2 THEN n END
FROM """
SERIES = {
    True: "(WITH RECURSIVE c(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM c WHERE n < 4000) SELECT n FROM c)",
    False: "generate_series(2, 4000) AS g(n)",
}
CALLS: dict[str, Callable[[Store], object]] = {
    "dispatch": lambda store: store.dispatch("s", 5),
    "claim": lambda store: store.claim("w", 5, 1000),
    "unfinished": lambda store: store.count_unfinished("s"),
    "lease": lambda store: store.recover(3),
    "to_tell": lambda store: store.to_tell("s", 5),
    "known": lambda store: store.add("s", new(1, 0, "other"), ANY),
}


def sent(store: Store, call: str) -> list[tuple[str, object]]:
    """The statements of a call."""
    found: list[tuple[str, object]] = []

    def note(connection: object, cursor: object, statement: str, parameters: object, *rest: object) -> None:
        found.append((statement, parameters))

    event.listen(store.database._engine, "before_cursor_execute", note)
    CALLS[call](store)
    event.remove(store.database._engine, "before_cursor_execute", note)
    return found


@pytest.mark.parametrize("call", CALLS)
def test_32_a_hot_query_uses_its_partial_index(store: Store, call: str) -> None:
    opened(store)
    is_sqlite = store.database.is_sqlite
    store.database.write(lambda c: c.execute(text(FILL + SERIES[is_sqlite])))
    if not is_sqlite:  # where autovacuum would do it; SQLite never does by itself
        store.database.write(lambda c: c.execute(text("ANALYZE evolution_jobs")))
    explain = "EXPLAIN QUERY PLAN " if is_sqlite else "EXPLAIN "
    plans = [
        store.database.read(lambda c, s=statement, p=parameters: str(c.exec_driver_sql(explain + s, p).all()))
        for statement, parameters in sent(store, call)
        if statement.lstrip().startswith(("SELECT", "INSERT INTO evolution_jobs"))
        and "evolution_jobs" in statement
    ]
    wanted = [f"evolution_jobs_{call}"]
    if call == "to_tell":  # as good: only what is in flight is not told
        wanted.append("(search_id=? AND told=?)")
    assert any(name in plan for plan in plans for name in wanted), plans
    scans = ("SCAN evolution_jobs", "Seq Scan on evolution_jobs")
    assert not any(scan in plan for plan in plans for scan in scans), plans


def test_32_a_candidate_is_added_by_three_statements(store: Store) -> None:
    opened(store)
    statements = [text for text, _ in sent(store, "known") if not text.startswith("BEGIN")]
    # Beside it the line of its move, which SQLite gets from the driver alone.
    assert len(statements) == 3 - store.database.is_sqlite, statements
    again = [text for text, _ in sent(store, "dispatch") if not text.startswith("BEGIN")]
    assert len(again) <= 5, again  # for all that are due: select, update, moves, counter, wake-up
