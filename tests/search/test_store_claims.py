"""The rows of a search as workers change them, by one suite on SQLite and PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tenuto.lifecycle.evolution import EvolutionStatus, SearchState
from tenuto.search.claimed_rows import DEATHS_AN_ATTEMPT
from tenuto.search.rows import End
from tenuto.search.store import Store
from tests.search.builders import (
    added,
    claimed,
    column,
    execute,
    opened,
    status,
    succeeded,
)

S = EvolutionStatus


def test_a_claim_takes_the_best_rows_of_all_running_searches(store: Store) -> None:
    for name in "stu":
        opened(store, name)
        added(store, 2, name)
        store.dispatch(name, 9)
    store.set_priority("t", 2, 9)
    store.set_state("u", SearchState.PAUSED)
    rows = store.claim("w", 3, 60_000)
    assert (rows[0].search_id, rows[0].number) == ("t", 2)
    assert {row.search_id for row in rows} == {"s", "t"}
    assert [row.attempt for row in rows] == [1, 1, 1]
    assert rows[0].definition == {"task": "t"}
    assert [row.search_id for row in store.claim("w", 9, 60_000, only=["u"])] == []
    assert len(store.claim("w", 9, 60_000)) == 1


def test_a_row_is_claimed_once(store: Store) -> None:
    opened(store)
    added(store, 40)
    store.dispatch("s", 99)

    def take(worker: int) -> list[int]:
        mine: list[int] = []
        while rows := store.claim(f"w{worker}", 3, 60_000):
            mine += [row.number for row in rows]
        return mine

    with ThreadPoolExecutor(4) as threads:
        taken = [number for numbers in threads.map(take, range(4)) for number in numbers]
    assert sorted(taken) == list(range(1, 41))


def test_a_tree_that_another_worker_evaluates_is_waited_for(store: Store) -> None:
    opened(store)
    added(store, 4)
    store.dispatch("s", 9)
    first, second = claimed(store, 2, "w1")
    third, fourth = claimed(store, 2, "w2")
    tree = "jobs/t/a"
    assert store.begin_evaluation(third.key, tree) == (None, False)
    assert store.begin_evaluation(second.key, tree) == (None, True)
    assert store.begin_evaluation(fourth.key, tree) == (None, False)  # one worker runs the job once anyway
    assert store.begin_evaluation(third.key, tree) == (None, False)  # who began waits for none that waits
    assert store.begin_evaluation(first.key, "jobs/t/b") == (None, False)
    store.give_back([third.key, fourth.key])
    assert store.begin_evaluation(second.key, tree) == (None, False)
    store.dispatch("s", 9)
    again = claimed(store, 1, "w3")[0]
    assert store.begin_evaluation(again.key, tree) == (None, True)
    end = succeeded(second)
    store.finish([replace(end, directory=tree)], 3)
    assert store.begin_evaluation(again.key, tree) == (end.outcome, False)
    assert store.begin_evaluation(second.key, tree) == (None, False)  # it ended: no attempt runs


def test_trees_that_begin_at_once_are_evaluated_by_one_worker(store: Store) -> None:
    opened(store)
    added(store, 6)
    store.dispatch("s", 9)
    rows = [claimed(store, 1, f"w{at}")[0] for at in range(6)]
    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(lambda row: store.begin_evaluation(row.key, "jobs/t/a"), rows))
    assert sorted(answers) == [(None, False)] + [(None, True)] * 5


def test_an_end_is_taken_once_and_only_of_the_attempt_that_runs(store: Store) -> None:
    opened(store)
    added(store, 1)
    store.dispatch("s", 9)
    [row] = claimed(store)
    stale = succeeded(row)
    assert store.finish([End(row.id, row.attempt + 1, S.SUCCEEDED)], 3) == set()
    assert store.finish([stale], 3) == {row.key}
    assert store.finish([stale], 3) == set()
    assert status(store, 1) is S.SUCCEEDED


def test_13_a_lost_job_is_tried_again_until_it_was_lost_too_often(store: Store) -> None:
    opened(store)
    added(store, 1)
    for attempt in (1, 2, 3):
        store.dispatch("s", 9)
        [row] = claimed(store)
        assert row.attempt == attempt
        store.finish([End(row.id, attempt, S.FAILED, failure="LOST", job_attempt=attempt)], 3)
        assert status(store, 1) is (S.PENDING if attempt < 3 else S.FAILED)
    assert column(store, 1, "failure") == "LOST"
    assert column(store, 1, "job_attempt") == 3


def test_58_rows_whose_lease_is_over_go_back_and_the_old_worker_is_fenced(store: Store) -> None:
    opened(store)
    added(store, 2)
    store.dispatch("s", 9)
    first, second = claimed(store, 2, lease_ms=60_000)
    assert store.recover(3) == 0
    execute(store, "UPDATE evolution_jobs SET lease_until = 0 WHERE number = 1")
    assert store.recover(3) == 1
    assert status(store, 1) is S.PENDING
    assert store.renew("w", [first.key, second.key], 60_000) == {second.key}
    assert store.own("w") == {second.key}
    store.dispatch("s", 9)
    [again] = claimed(store, worker="other")
    assert again.attempt == 2
    assert store.finish([succeeded(first)], 3) == set()
    assert store.finish([succeeded(again)], 3) == {again.key}
    assert store.recover(3, dead=["w"]) == 1


def test_61_a_row_whose_workers_die_each_time_fails(store: Store) -> None:
    opened(store)
    added(store, 1)
    for _ in range(5):  # of this workspace: its job is adopted, and that costs no attempt
        store.dispatch("s", 9)
        claimed(store)
        assert store.recover(3, dead=["w"]) == 1
    for _ in range(3):
        assert status(store, 1) is S.PENDING
        store.dispatch("s", 9)
        claimed(store, lease_ms=-1)
        assert store.recover(3) == 1
    assert status(store, 1) is S.FAILED
    assert column(store, 1, "failure") == "LOST"
    assert [row.number for row in store.to_tell("s", 9)] == [1]


def test_13_a_row_that_ends_each_of_its_workers_comes_to_an_end(store: Store) -> None:
    opened(store)
    added(store, 2)
    for death in range(1, DEATHS_AN_ATTEMPT + 1):
        store.dispatch("s", 9)
        rows = claimed(store, 2)
        assert [row.attempt for row in rows if row.number == 1] == [1]
        if death == 1:  # the other one, which had a worker that died, ends well
            assert store.recover(1, dead=["w"]) == 2
            continue
        store.finish([succeeded(row) for row in rows if row.number == 2], 1)
        assert store.recover(1, dead=["w"]) == 1
    assert (status(store, 1), status(store, 2)) == (S.FAILED, S.SUCCEEDED)
    assert (column(store, 1, "failure"), column(store, 1, "message")) == ("LOST", "its worker died 10 times")
    assert store.retry("s", [1]) == 1
    store.dispatch("s", 9)
    claimed(store)
    assert store.recover(1, dead=["w"]) == 1
    assert status(store, 1) is S.PENDING, "a person's retry begins to count anew"


def test_a_row_that_is_given_back_costs_no_attempt(store: Store) -> None:
    opened(store)
    added(store, 1)
    store.dispatch("s", 9)
    [row] = claimed(store)
    assert store.give_back([row.key]) == 1
    assert store.give_back([row.key]) == 0
    assert status(store, 1) is S.PENDING
    store.dispatch("s", 9)
    [again] = claimed(store)
    assert again.attempt == 1
