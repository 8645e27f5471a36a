"""A search on this machine: real jobs, SQLite, no server."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from tenuto import experiment
from tenuto.cli.commands.worker import WorkerProcess
from tenuto.errors import CapReached, RequirementError, SearchDiffers, SearchError
from tenuto.lifecycle.states import JobState, StateRecord
from tenuto.scheduler.scheduler import Scheduler
from tenuto.search import (
    Evolution,
    EvolutionScheduler,
    GridSearch,
    Integer,
    MapElites,
    Median,
    RandomSearch,
    Real,
)
from tenuto.search.worker_loop import WorkerLoop
from tenuto.workspace.job_directory import read_status, write_status
from tenuto.workspace.machine import this_machine
from tenuto.workspace.records import StatusRecord
from tests.search.builders import Console
from tests.search.tasks_for_search import (
    Arrays,
    Device,
    Failing,
    Grows,
    KillsItsRunner,
    Square,
    Unkept,
    Whole,
)
from tests.search.terminal import is_over

ROOT = Path(__file__).parents[2]


def square(tmp_path: Path, **options: Any) -> Evolution:
    given: dict[str, Any] = {
        "space": {"x": Real(-1, 1)},
        "sampler": MapElites([10], [(-1, 1)], start=4),
        "workdir": tmp_path / "w",
        **options,
    }
    name = given.pop("name", "square")
    task = given.pop("task", Square.C(log=str(tmp_path / "log")))
    return Evolution(name, task, **given)


def executions(tmp_path: Path) -> list[str]:
    path = tmp_path / "log"
    return path.read_text().splitlines() if path.exists() else []


def test_5_a_search_goes_on_with_a_larger_cap_and_ends_with_a_smaller_one(tmp_path: Path) -> None:
    result = square(tmp_path, max_total_jobs=10).run(slots=2)
    assert (result.state, result.reason, result.scheduled) == ("ENDED", "TOTAL", 10)
    assert (result.succeeded, result.failed, result.reused) == (10, 0, 0)
    assert len(executions(tmp_path)) == 20
    assert result.best is not None
    assert result.best.objective == max(row["objective"] for row in result.rows())
    again = square(tmp_path, max_total_jobs=12).run(slots=2)
    assert (again.scheduled, again.succeeded, again.reason) == (12, 12, "TOTAL")
    assert len(executions(tmp_path)) == 24
    fewer = square(tmp_path, max_total_jobs=5).run(slots=2)
    assert (fewer.scheduled, fewer.state) == (12, "ENDED")


def test_5_enqueue_at_the_cap_raises_and_leaves_nothing(tmp_path: Path) -> None:
    evolution = square(tmp_path, max_total_jobs=2, max_unfinished_jobs=1)
    assert [evolution.enqueue({"x": x}) for x in (0.1, 0.2)] == [1, 2]
    with pytest.raises(CapReached, match="2"):
        evolution.enqueue({"x": 0.3})
    with pytest.raises(SearchError):
        evolution.enqueue({"x": 0.1})
    assert evolution.open().store.count_unfinished("square") == 2
    evolution.close()


@pytest.mark.parametrize("values", [{"x": 1.5}, {"x": float("nan")}, {}, {"x": 0.5, "y": 1}])
def test_values_outside_the_space_are_not_enqueued(values: dict[str, Any], tmp_path: Path) -> None:
    evolution = square(tmp_path)
    with pytest.raises(SearchError, match=r"x|y"):
        evolution.enqueue(values)
    assert evolution.open().store.count_unfinished("square") == 0
    evolution.close()


@pytest.mark.parametrize(
    "cap",
    [{key: bad} for key in ("max_seconds", "max_cost", "walltime_s") for bad in (-1, 0)]
    + [{key: bad} for key in ("max_total_jobs", "max_unfinished_jobs", "stall") for bad in (-1, 2**31)],
)
def test_a_cap_that_is_not_positive_is_refused(cap: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(SearchError, match=next(iter(cap))):
        square(tmp_path, **cap)
    with pytest.raises(SearchError, match="target"):
        square(tmp_path, target=float("nan"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"target": 10**400}, "target="),
        ({"max_seconds": 10**400}, "max_seconds="),
        ({"workdir": ""}, "workdir"),
        ({"name": "-x"}, "cannot name"),
        ({"metric": "loss"}, "give pruner"),
        ({"metric": "", "pruner": Median()}, "metric"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(given: dict[str, Any], words: str, tmp_path: Path) -> None:
    whole: dict[str, Any] = {"name": "s", "space": {"x": Real(0, 1)}, "workdir": tmp_path, **given}
    with pytest.raises(SearchError, match=words):
        Evolution(whole.pop("name"), Square, **whole)


@pytest.mark.parametrize("form", ["outcome", "mapping", "ordered", "dataclass", "tuple", "names"])
def test_numbers_and_measures_of_an_outcome_may_be_arrays(form: str, tmp_path: Path) -> None:
    result = square(tmp_path, task=Arrays.C(form=form), max_total_jobs=2).run(slots=2)
    assert (result.succeeded, result.failed) == (2, 0), result.rows()
    for row in result.rows():
        assert (row["objective"], row["measures"]) == (1.0, [row["values"]["x"]])


def test_a_candidate_whose_outcome_cannot_be_kept_fails_with_the_reason(tmp_path: Path) -> None:
    (row,) = square(tmp_path, task=Unkept, max_total_jobs=1).run(slots=1).rows()
    assert (row["status"], "object is of no kind that is kept" in row["message"]) == ("FAILED", True)


def test_16_candidates_of_higher_priority_start_next(tmp_path: Path) -> None:
    evolution = square(
        tmp_path,
        task=Whole.C(log=str(tmp_path / "log")),
        space={"n": Integer(0, 99)},
        sampler=GridSearch(1),
        max_total_jobs=13,
    )
    for n in range(10):
        evolution.enqueue({"n": n})
    for n, priority in ((10, 1), (11, 3), (12, 2)):
        evolution.enqueue({"n": n}, priority)
    evolution.close()
    result = evolution.run(slots=1)
    started = [int(line.split()[1]) for line in executions(tmp_path) if line.startswith("start")]
    assert started == [11, 12, 10, *range(10)]
    assert result.succeeded == 13


def test_19_a_small_space_ends_exhausted_and_nothing_runs_twice(tmp_path: Path) -> None:
    result = square(
        tmp_path, task=Whole.C(log=str(tmp_path / "log")), space={"n": Integer(1, 5)}, sampler=GridSearch()
    ).run(slots=2)
    assert (result.reason, result.scheduled) == ("EXHAUSTED", 5)
    assert sorted(set(executions(tmp_path))) == sorted(executions(tmp_path))


def test_19_what_another_search_or_an_experiment_has_done_is_not_run(tmp_path: Path) -> None:
    task = Whole.C(log=str(tmp_path / "log"))
    space = {"n": Integer(1, 4)}
    first = square(tmp_path, task=task, space=space, sampler=GridSearch(), name="one").run(slots=2)
    assert first.succeeded == 4
    again = square(tmp_path, task=task, space=space, sampler=GridSearch(), name="two").run(slots=2)
    assert (again.succeeded, again.reused) == (4, 4)
    with experiment(tmp_path / "w", "xp"):
        done = Whole.C(n=5, log=str(tmp_path / "log")).submit().job
    left = StatusRecord(done.job_id, done.task_id, StateRecord(JobState.SCHEDULED), done.attempt)
    this_machine().files.make_directory(done.paths.private)
    write_status(this_machine().files, done.paths, left)  # as a runner does that is killed after the marker
    third = square(tmp_path, task=task, space={"n": Integer(4, 5)}, sampler=GridSearch(), name="three").run(
        slots=2
    )
    assert third.succeeded == 2
    assert len(executions(tmp_path)) == 10
    mended = read_status(this_machine().files, done.paths)
    assert mended is not None
    assert mended.state_record.state is JobState.DONE


def test_22_target_cost_stall_and_failing_end_a_search(tmp_path: Path) -> None:
    target = square(tmp_path, name="target", target=0.2).run(slots=2)
    assert target.reason == "TARGET"
    assert target.best is not None
    assert target.best.objective >= 0.2
    costly = square(tmp_path, name="cost", task=Square.C(cost=1.0), max_cost=6.0, seed=5).run(slots=2)
    assert costly.reason == "COST"
    assert 6.0 <= costly.cost <= 6.0 + 3
    stalled = square(tmp_path, name="stall", sampler=MapElites([1], [(-1, 1)]), stall=5, seed=6).run(slots=2)
    assert stalled.reason == "STALL"
    failing = square(tmp_path, name="failing", task=Failing, seed=7).run(slots=2)
    assert (failing.reason, failing.succeeded) == ("FAILING", 0)
    assert failing.cost == 0.5 * failing.failed
    for result in (target, costly, stalled, failing):
        ended = [row for row in result.rows() if row["order"] is None]
        assert (result.state, ended) == ("ENDED", [])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"space": {"x": Real(-1, 2)}}, "space.x.high was 1, and is 2"),
        ({"seed": 3}, "seed"),
        ({"direction": "min"}, "direction"),
        ({"sampler": RandomSearch()}, "sampler.kind"),
        ({"task": Failing, "space": {"x": Real(-1, 1)}}, "task"),
    ],
)
def test_25_a_search_that_was_declared_otherwise_is_refused(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    square(tmp_path).open().close()
    with pytest.raises(SearchDiffers, match=words):
        square(tmp_path, **options).open()
    evolution = square(tmp_path)
    evolution.open()
    evolution.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"space": {"y": Real(0, 1)}}, "y"),
        ({"space": {"x": Real(0, 1), "z": Real(0, 1)}}, "z"),
        ({"task": object}, "no task"),
        ({"name": "a/b"}, "name"),
        ({"max_total_jobs": -1}, "max_total_jobs"),
        ({"space": None}, "either"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_at_once(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(Exception, match=words):
        square(tmp_path, **options).open()
    assert not (tmp_path / "w" / "search.db").exists()


@pytest.mark.slow
def test_13_a_candidate_that_kills_its_runner_fails_after_three_tries(tmp_path: Path) -> None:
    result = square(
        tmp_path, task=KillsItsRunner, space={"x": Real(0, 1)}, sampler=GridSearch(3), max_unfinished_jobs=3
    ).run(slots=2)
    rows = {row["number"]: row for row in result.rows()}
    assert [rows[n]["status"] for n in (1, 2, 3)] == ["SUCCEEDED", "SUCCEEDED", "FAILED"]
    assert (rows[3]["failure"], rows[3]["attempt"]) == ("LOST", 3)


def waiting(tmp_path: Path) -> Evolution:
    """A search with one candidate, queued, that takes as long as a test."""
    task = Square.C(log=str(tmp_path / "log"), seconds=300)
    evolution = square(tmp_path, task=task, sampler=RandomSearch(), max_total_jobs=1)
    evolution.scheduler().tick()
    return evolution


def until_executed(tmp_path: Path) -> None:
    deadline = time.monotonic() + 60
    while not executions(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_13_a_machine_that_slept_an_hour_loses_no_attempt(tmp_path: Path) -> None:
    evolution = waiting(tmp_path)
    store, machine = evolution.open().store, this_machine()
    agent = WorkerLoop(store, evolution.settings, tmp_path / "w", machine, slots=1)
    ticking = EvolutionScheduler(
        evolution.settings, Console(), evolution.sampler, "square", store=store, agent=agent
    )
    agent.start()
    until_executed(tmp_path)
    store.database.write(lambda c: c.execute(text("UPDATE evolution_jobs SET lease_until = 1")))
    assert ticking.tick()["recovered"] == 0, "the agent of this process renews before leases are looked at"
    (row,) = evolution.result().rows()
    assert (row["status"], row["attempt"]) == ("RUNNING", 1)
    agent.abandon()
    assert agent.join(90)
    evolution.close()


def test_24_a_second_interrupt_that_overtakes_the_first_still_leaves(tmp_path: Path) -> None:
    evolution = waiting(tmp_path)
    store = evolution.open().store
    agent = WorkerLoop(store, evolution.settings, tmp_path / "w", this_machine(), slots=1)
    ticking = EvolutionScheduler(
        evolution.settings, Console(), evolution.sampler, "square", store=store, agent=agent
    )
    agent.start()
    until_executed(tmp_path)
    ticking.stop(at_once=True)
    ticking.stop()
    running = threading.Thread(target=ticking.run_forever, daemon=True)
    running.start()
    running.join(30)
    assert not running.is_alive(), "it waits for what runs"
    agent.abandon()
    assert agent.join(90)
    evolution.close()


def test_24_a_job_that_is_being_submitted_is_stopped_before_its_row_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evolution = waiting(tmp_path)
    store, machine = evolution.open().store, this_machine()
    handed_in, answered = threading.Event(), threading.Event()
    submit = Scheduler.submit_async

    async def late(*arguments: Any) -> Any:
        job = await submit(*arguments)
        handed_in.set()
        await asyncio.to_thread(answered.wait, 60)
        return job

    monkeypatch.setattr(Scheduler, "submit_async", late)
    agent = WorkerLoop(store, evolution.settings, tmp_path / "w", machine, slots=1)
    agent.start()
    assert handed_in.wait(60)
    until_executed(tmp_path)
    agent.abandon()
    answered.set()
    assert agent.join(90)
    (row,) = evolution.result().rows()
    assert (row["status"], row["attempt"]) == ("PENDING", 0)
    assert all(is_over(record) for record in (tmp_path / "w").rglob("*.pid"))
    evolution.close()


def test_a_worker_with_gpus_gives_each_candidate_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.setenv("TENUTO_TOKENS_PATH", str(tmp_path / "tokens"))
    evolution = square(tmp_path, task=Device, sampler=RandomSearch(), max_total_jobs=3)
    evolution.scheduler().tick()
    said: list[str] = []
    worker = WorkerProcess(evolution.settings, tmp_path / "w", said.append, once=True, with_gpus=True)
    assert worker.run() == 0
    assert said[0].endswith("ready, 2 slots")
    devices = [row["metrics"]["device"] for row in evolution.result().rows()]
    assert len(devices) == 3
    assert set(devices) <= {"3", "5"}
    evolution.close()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(SearchError, match="no GPU is visible"):
        WorkerProcess(evolution.settings, tmp_path / "w", said.append, with_gpus=True)


def grows(tmp_path: Path) -> Evolution:
    given: dict[str, Any] = {"space": {"x": Real(-2, 3)}, "sampler": RandomSearch()}
    return square(tmp_path, task=Grows.C(log=str(tmp_path / "log")), max_total_jobs=3, **given)


def test_28_a_candidate_is_tried_again_as_its_task_says_and_stays_one_row(tmp_path: Path) -> None:
    evolution = grows(tmp_path)
    for x in (2.0, 0.0, -1.0):
        evolution.enqueue({"x": x})
    result = evolution.run(slots=2)
    assert (result.scheduled, result.succeeded, result.failed) == (3, 2, 1)
    worth = {row["x"]: row["objective"] for row in result.rows()}
    assert worth[2.0] == worth[0.0] == 2.0  # the outcome that counts is the last attempt's
    tried = [f"attempt {number} of {x}" for number in (1, 2) for x in (-1, 0, 2)]
    assert sorted(executions(tmp_path)) == tried
    assert grows(tmp_path).run(slots=2).scheduled == 3
    assert len(executions(tmp_path)) == 6  # what failed for good is not tried anew


def test_28_rules_that_cannot_grow_are_refused_before_a_candidate_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Grows, "__retry__", "memory: mem*2 to 50M")
    with pytest.raises(RequirementError, match="the job begins with 100M; raise the bound"):
        grows(tmp_path).run(slots=1)


def test_28_a_candidate_has_as_many_slots_as_its_task_asks_for_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Square, "__requires__", "cpu(cores=2)", raising=False)
    square(tmp_path, task=Square.C(log=str(tmp_path / "log"), seconds=0.1), max_total_jobs=4).run(slots=2)
    assert [line.split()[0] for line in executions(tmp_path)] == ["start", "end"] * 4  # one after another
