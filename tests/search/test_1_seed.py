"""1: every statement of the seed's page about the job scheduler, a test each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from loguru import logger
from sqlalchemy import text

from tenuto.database import Database, migrate
from tenuto.errors import SearchError
from tenuto.lifecycle.evolution import EvolutionStatus
from tenuto.search import (
    Evolution,
    EvolutionScheduler,
    JobScheduler,
    MapElites,
    MapElitesSampler,
    RandomSearch,
    Real,
)
from tenuto.search.opening import MIGRATIONS
from tenuto.search.rows import Caps, Refusal
from tenuto.search.search_loop import Dispatcher, SearchLoop
from tenuto.search.store import Store
from tenuto.settings import Settings
from tenuto.settings.search import SearchSettings
from tenuto.testing.clock import FakeClock
from tenuto.testing.contracts.queues import FakeQueue
from tenuto.workspace.machine import this_machine
from tests.search.builders import Console, added, claimed, column, new, opened, status, succeeded
from tests.search.tasks_for_search import Square


class ListSampler:
    """Makes rows in the store, as many as there are."""

    def __init__(self, store: Store, count: int = 99) -> None:
        self.store = store
        self.left = count
        self.calls: list[str] = []
        self.refusal: Refusal | None = None

    def schedule_job(self, *, experiment_id: str, priority: int | None = None) -> Any:
        self.calls.append(experiment_id)
        if self.left == 0:
            return None
        self.left -= 1
        search = self.store.search(experiment_id)
        assert search is not None
        number = search.scheduled + 1
        result = self.store.add(experiment_id, new(number, search.told, f"x{number}"), Caps())
        assert not isinstance(result, Refusal)
        return type("Made", (), {"job_id": result.id, "number": number, "reused": False})


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Store]:
    database = Database(tmp_path / "a.db")
    migrate(database, MIGRATIONS)
    yield opened(Store(database))
    database.close()


def scheduler(store: Store, sampler: Any = None, **search: Any) -> tuple[JobScheduler, Console, FakeQueue]:
    console, queue = Console(), FakeQueue()
    settings = replace(Settings(), search=SearchSettings(**{"max_unfinished_jobs": 4, **search}))
    made = JobScheduler(settings, console, sampler or ListSampler(store), "s", store=store, queue=queue)
    return made, console, queue


def test_1_unfinished_are_pending_queued_and_running(sqlite: Store) -> None:
    jobs, _, _ = scheduler(sqlite)
    added(sqlite, 5)
    sqlite.dispatch("s", 3)
    running, ended = claimed(sqlite, 2)
    sqlite.finish([succeeded(ended)], 3)
    assert running
    assert jobs.count_unfinished_jobs() == 4


def test_1_no_more_are_unfinished_than_may_be(sqlite: Store) -> None:
    jobs, _, _ = scheduler(sqlite)
    assert jobs.schedule_jobs(0, total_scheduled_jobs=0) == 4
    assert jobs.schedule_jobs(4, total_scheduled_jobs=4) == 0
    assert jobs.schedule_jobs(3, total_scheduled_jobs=4) == 1


def test_1_no_more_are_scheduled_than_may_be_in_all(sqlite: Store) -> None:
    jobs, console, _ = scheduler(sqlite, max_total_jobs=6)
    assert jobs.schedule_jobs(0, total_scheduled_jobs=4) == 2
    for _ in range(3):
        assert jobs.schedule_jobs(0, total_scheduled_jobs=6) == 0
    assert len([line for line in console.lines if "all 6" in line]) == 1


def test_1_the_sampler_is_asked_with_the_experiment(sqlite: Store) -> None:
    sampler = ListSampler(sqlite)
    scheduler(sqlite, sampler)[0].schedule_jobs(2, total_scheduled_jobs=0)
    assert sampler.calls == ["s", "s"]


def test_1_a_batch_bounds_how_many_are_made(sqlite: Store) -> None:
    jobs, _, _ = scheduler(sqlite, schedule_batch_size=3)
    assert jobs.schedule_jobs(0, total_scheduled_jobs=0) == 3


def test_1_new_jobs_are_queued_and_sent_in_the_same_call(sqlite: Store) -> None:
    jobs, _, queue = scheduler(sqlite)
    jobs.schedule_jobs(2, total_scheduled_jobs=0)
    assert len(queue.sent) == 2
    assert [status(sqlite, number) for number in (1, 2)] == [EvolutionStatus.QUEUED] * 2


def test_1_a_sampler_without_a_job_is_told_in_yellow_and_touches_no_row(sqlite: Store) -> None:
    jobs, console, queue = scheduler(sqlite, ListSampler(sqlite, 0))
    before = sqlite.view("s")
    assert jobs.schedule_jobs(0, total_scheduled_jobs=0) == 0
    after = sqlite.view("s")
    assert before is not None
    assert after is not None
    assert console.lines == ["[yellow]Sampler returned no job[/]"]
    assert queue.sent == []
    assert replace(before, now=0) == replace(after, now=0)


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """What Loguru is told."""
    lines: list[str] = []
    sink = logger.add(lines.append, format="{level} {message}")
    yield lines
    logger.remove(sink)


def test_26_a_sampler_that_raises_is_told_in_red_and_logged(sqlite: Store, logged: list[str]) -> None:
    class Broken:
        def schedule_job(self, **_: Any) -> None:
            raise ValueError("no [idea]")

    jobs, console, _ = scheduler(sqlite, Broken())
    assert jobs.schedule_jobs(0, total_scheduled_jobs=0) == 0
    assert console.lines == [r"[red]s: the sampler failed: ValueError: no \[idea][/]"]
    (line,) = logged
    assert line.startswith("ERROR s: the sampler failed\nTraceback")


def test_1_dispatch_sends_in_order_and_stamps_the_time(sqlite: Store) -> None:
    jobs, _, queue = scheduler(sqlite, dispatch_batch_size=2)
    made = added(sqlite, 3)
    sqlite.set_priority("s", 3, 5)
    sqlite.database.write(
        lambda c: c.execute(text("UPDATE evolution_jobs SET scheduled_at = 1, created_at = 1"))
    )
    assert jobs.dispatch_pending_jobs() == 2
    assert queue.sent == [made[2].id, made[0].id]
    assert int(str(column(sqlite, 3, "scheduled_at"))) > 1
    assert jobs.dispatch_pending_jobs() == 1
    assert jobs.dispatch_pending_jobs() == 0


def test_1_one_send_that_fails_is_logged_told_and_no_obstacle(sqlite: Store, logged: list[str]) -> None:
    jobs, console, queue = scheduler(sqlite)
    made = added(sqlite, 3)
    queue.refused = {made[1].id}
    assert jobs.dispatch_pending_jobs() == 2
    assert queue.sent == [made[0].id, made[2].id]
    assert ["[red]" in line and "candidate 2" in line for line in console.lines] == [True]
    assert ["candidate 2 could not be sent" in line for line in logged] == [True]
    assert status(sqlite, 2) is EvolutionStatus.PENDING


def test_a_broker_that_is_down_is_told_once(sqlite: Store) -> None:
    jobs, console, queue = scheduler(sqlite, max_unfinished_jobs=40)
    queue.is_down = True
    for _ in range(4):
        jobs.schedule_jobs(0, total_scheduled_jobs=0)
        jobs.dispatch_pending_jobs()
    told = [line for line in console.lines if "could not be sent" in line]
    assert ["candidate 1 and 39 more" in line for line in told] == [True]
    queue.is_down = False
    sqlite.database.write(lambda c: c.execute(text("UPDATE evolution_jobs SET not_before = 0")))
    assert jobs.dispatch_pending_jobs() == 64
    queue.is_down = True
    assert jobs.dispatch_pending_jobs() == 0
    assert len([line for line in console.lines if "could not be sent" in line]) == 2


def test_54_a_broker_that_is_down_costs_time_only(sqlite: Store) -> None:
    jobs, _, queue = scheduler(sqlite)
    added(sqlite, 3)
    queue.is_down = True
    assert jobs.dispatch_pending_jobs() == 0
    queue.is_down = False
    assert jobs.dispatch_pending_jobs() == 0  # not before the back-off is over
    sqlite.database.write(lambda c: c.execute(text("UPDATE evolution_jobs SET not_before = 0")))
    assert jobs.dispatch_pending_jobs() == 3


def test_26_known_names_lead_to_the_parts_of_the_loop(tmp_path: Path) -> None:
    evolution = search(tmp_path)
    sampler, ticking = evolution.sampler, evolution.scheduler(Console(), FakeQueue())
    assert isinstance(sampler, MapElitesSampler)
    assert isinstance(ticking, EvolutionScheduler)
    assert isinstance(ticking.dispatcher, JobScheduler)
    assert not isinstance(ticking, JobScheduler)
    assert (EvolutionScheduler.__bases__, JobScheduler.__bases__) == ((SearchLoop,), (Dispatcher,))
    job = sampler.schedule_job(experiment_id="s", priority=3)
    assert job is not None
    assert (job.number, job.reused) == (1, False)
    with pytest.raises(SearchError, match="makes jobs of s"):
        sampler.schedule_job(experiment_id="other")
    with pytest.raises(SearchError, match="priority"):
        sampler.schedule_job(experiment_id="s", priority=1 << 31)
    assert ticking.dispatcher.count_unfinished_jobs() == 1
    evolution.close()


def search(tmp_path: Path, **options: Any) -> Evolution:
    given = {"sampler": RandomSearch(), "max_unfinished_jobs": 3, **options}
    return Evolution("s", Square, space={"x": Real(0, 1)}, workdir=tmp_path, **given)


def test_1_the_order_of_a_tick(tmp_path: Path) -> None:
    evolution = search(tmp_path)
    ticking = evolution.scheduler(Console(), FakeQueue())
    counts = ticking.tick()
    assert list(counts) == ["ingested", "recovered", "unfinished", "scheduled", "dispatched"]
    assert counts == {"ingested": 0, "recovered": 0, "unfinished": 0, "scheduled": 3, "dispatched": 0}
    store = evolution.open().store
    store.finish([succeeded(row) for row in claimed(store, 2)], 3)
    assert ticking.tick() == {"ingested": 2, "recovered": 0, "unfinished": 1, "scheduled": 2, "dispatched": 0}
    assert ticking.tick() == {"ingested": 0, "recovered": 0, "unfinished": 3, "scheduled": 0, "dispatched": 0}
    evolution.close()


def test_26_a_stage_that_raises_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evolution = search(tmp_path)
    console, queue = Console(), FakeQueue()
    ticking = evolution.scheduler(console, queue)
    store = evolution.open().store
    ticking.tick()
    looks = []

    def broken(name: str) -> Any:
        looks.append(name)
        if len(looks) == 2:  # the count, after what came was told
            raise OSError("no count")
        return type(store).view(store, name)

    store.finish([succeeded(row) for row in claimed(store, 1)], 3)
    store.give_back(row.key for row in claimed(store, 1))  # one waits to be dispatched
    queue.sent.clear()
    with monkeypatch.context() as patched:
        patched.setattr(store, "view", broken)
        counts = ticking.tick()
        assert (counts["ingested"], counts["scheduled"], counts["dispatched"]) == (1, 0, 1)
        assert len(queue.sent) == 1  # dispatch went on
        assert any("no count" in line for line in console.lines)
    assert ticking.tick()["scheduled"] == 1
    evolution.close()


def test_26_a_row_that_cannot_be_told_is_set_apart_after_three_tries(tmp_path: Path) -> None:
    class Picky:
        def ask(self, number: int, rng: Any, in_flight: Any) -> Any:
            return RandomSearch().begin(setup).ask(number, rng, in_flight)

        def tell(self, number: int, proposal: Any, outcome: Any) -> Any:
            if number == 2 and outcome is not None:
                raise ValueError("not this one")
            return RandomSearch().begin(setup).tell(number, proposal, outcome)

    from tenuto.search.proposals import Setup
    from tenuto.search.spaces import Space

    setup = Setup(Space({"x": Real(0, 1)}))
    evolution = search(tmp_path, sampler=Picky(), max_total_jobs=3)
    console = Console()
    ticking = evolution.scheduler(console, FakeQueue())
    ticking.tick()
    store = evolution.open().store
    store.finish([succeeded(row) for row in claimed(store, 3)], 3)
    for _ in range(6):
        ticking.tick()
    assert status(store, 2) is EvolutionStatus.FAILED
    assert "not this one" in str(column(store, 2, "message"))
    search_row = store.search("s")
    assert search_row is not None
    assert (search_row.told, search_row.state.value) == (3, "ENDED")
    evolution.close()


def test_4_two_schedulers_beside_each_other_number_without_a_gap(tmp_path: Path) -> None:
    first = search(tmp_path, max_total_jobs=12, sampler=MapElites([5], [(0, 1)], start=4))
    second = search(tmp_path, max_total_jobs=12, sampler=MapElites([5], [(0, 1)], start=4))
    ticking: list[EvolutionScheduler] = [one.scheduler(Console(), FakeQueue()) for one in (first, second)]
    store = first.open().store
    for _ in range(40):
        for one in ticking:
            one.tick()
            assert store.count_unfinished("s") <= 3
        store.finish([succeeded(row) for row in claimed(store, 1)], 3)
    result = second.result()
    assert (result.scheduled, result.succeeded, result.state) == (12, 12, "ENDED")
    assert [row["number"] for row in result.rows()] == list(range(1, 13))
    first.close()
    second.close()


def test_4_a_candidate_that_another_scheduler_told_meanwhile_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (search(tmp_path, max_total_jobs=6) for _ in range(2))
    one, other = (evolution.scheduler(Console(), FakeQueue()) for evolution in (first, second))
    store = first.open().store

    def evaluate() -> None:
        store.finish([succeeded(row, cost=1.0) for row in claimed(store, 3)], 3)

    one.tick()
    evaluate()
    assert other.tick()["scheduled"] == 3  # which the first scheduler has not read
    evaluate()
    replica = first.open().maker.replica
    read_on = replica.read_on

    def late() -> None:
        other.tick()  # tells what the first one is about to tell
        read_on()

    with monkeypatch.context() as patched:
        patched.setattr(replica, "read_on", late)
        one.tick()
    assert sorted(row["order"] for row in first.result().rows()) == [1, 2, 3, 4, 5, 6]
    assert first.result().cost == 6.0
    first.close()
    second.close()


def test_12_the_clock_of_a_scheduler_does_not_matter(tmp_path: Path) -> None:
    evolution = search(tmp_path, max_total_jobs=3)
    ahead = FakeClock(datetime.now().astimezone() + timedelta(minutes=10))
    opened_search = evolution.open()
    wrong = EvolutionScheduler(
        evolution.settings,
        Console(),
        evolution.sampler,
        "s",
        store=opened_search.store,
        queue=FakeQueue(),
        machine=this_machine()._replace(clock=ahead),
    )
    assert wrong.tick()["scheduled"] == 3
    rows = claimed(opened_search.store, 3)
    assert [row.attempt for row in rows] == [1, 1, 1]
    for _ in range(3):
        ahead.advance(600)
        assert wrong.tick()["recovered"] == 0
    opened_search.store.finish([succeeded(row) for row in rows], 3)
    assert wrong.tick()["ingested"] == 3
    evolution.close()


def test_17_a_replica_that_is_rebuilt_from_the_rows_asks_for_the_same(tmp_path: Path) -> None:
    """At each of fifty points, in two searches of the same process; another seed differs."""
    sampler = MapElites([5], [(0, 1)], start=8)
    evolution = search(tmp_path, max_total_jobs=200, sampler=sampler)
    ticking = evolution.scheduler(Console(), FakeQueue())
    store, differing = evolution.open().store, set()
    for point in range(50):
        ticking.tick()
        rows = claimed(store, 1 + point % 2)
        store.finish([succeeded(row, objective=float(row.number % 7)) for row in rows], 3)
        mine = evolution.open().maker.replica
        mine.read_on()
        fresh = search(tmp_path, max_total_jobs=200, sampler=sampler)
        replica = fresh.open().maker.replica
        replica.read_on()
        assert (replica.scheduled, replica.told) == (mine.scheduled, mine.told)
        proposals = list(islice(mine.proposals(), 3))
        assert list(islice(replica.proposals(), 3)) == proposals
        differing.add(str(proposals[0]))
        fresh.close()
    assert len(differing) >= 50
    evolution.close()
