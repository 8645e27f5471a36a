"""Owns the verdicts of a wait: what ends it, what fails it, and what is no news."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tenuto.cli.commands.wait import Awaited, Came, Waiting, WaitState
from tenuto.clock import SystemClock
from tenuto.jobs.row import Group, Row
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobState
from tenuto.testing.fake_source import FakeSource, fake_row

RUN, SEARCH = "experiments:sweep/1", "search:packing"


@pytest.fixture
def source() -> FakeSource:
    made = FakeSource()
    made.put_group(Group(RUN, Door.EXPERIMENTS, "sweep", "1", "running", True))
    return made


def job(job_id: str, state: JobState) -> Row:
    return fake_row(RUN, "my.Train", job_id, state, attempt=1)


def end_run(source: FakeSource, state: str = "done") -> None:
    source.put_group(Group(RUN, Door.EXPERIMENTS, "sweep", "1", state, False))


def wait(source: FakeSource, *keys: str, timeout_s: float = 20.0, **how: bool) -> Came:
    awaited = Awaited(source.groups()[0], frozenset(keys) or None)
    return Waiting(lambda _: source, [awaited], SystemClock()).run(timeout_s=timeout_s, **how)


def later(act: Callable[[], object]) -> None:
    threading.Timer(0.3, act).start()


def test_a_run_is_awaited_until_its_driver_has_closed_it(source: FakeSource) -> None:
    source.put(job("a", JobState.DONE))
    assert wait(source, timeout_s=0.2).state is WaitState.WORKING
    later(lambda: end_run(source))
    assert wait(source).state is WaitState.DONE


def test_a_run_with_a_failed_job_or_a_failed_script_has_failed(source: FakeSource) -> None:
    failed = source.put(job("a", JobState.ERROR))
    end_run(source, "failed")
    assert wait(source).failed == (failed,)
    source.put(job("a", JobState.DONE))
    assert wait(source).state is WaitState.FAILED


def test_a_run_without_a_driver_ends_the_wait_once_nothing_runs(source: FakeSource) -> None:
    source.put(job("a", JobState.UNSCHEDULED))
    source.put(job("b", JobState.RUNNING))
    end_run(source, "interrupted")
    source.is_driven = False
    assert wait(source, timeout_s=0.2).state is WaitState.WORKING
    later(lambda: source.put(job("b", JobState.DONE)))
    came = wait(source)
    assert (came.state, came.take_up) == (WaitState.UNATTENDED, ("tenuto run SCRIPT",))
    assert [row.id for row in came.left] == ["a"]


def test_a_job_is_awaited_alone(source: FakeSource) -> None:
    source.put(job("other", JobState.RUNNING))
    row = source.put(job("a", JobState.RUNNING))
    later(lambda: source.put(job("a", JobState.DONE)))
    came = wait(source, row.key)
    assert (came.state, came.counts) == (WaitState.DONE, {JobState.DONE: 1})


def test_a_failed_attempt_that_is_tried_again_is_no_end(source: FakeSource) -> None:
    row = source.put(job("a", JobState.ERROR))
    source.most_attempts[row.key] = 2
    later(lambda: source.put(job("a", JobState.DONE)._replace(attempt=2)))
    assert wait(source, row.key).state is WaitState.DONE
    source.put(job("a", JobState.ERROR)._replace(attempt=2))
    assert wait(source, row.key).state is WaitState.FAILED


def test_the_first_end_of_a_group_is_one_that_comes(source: FakeSource) -> None:
    source.put(job("old", JobState.ERROR))
    source.put(job("a", JobState.RUNNING))
    later(lambda: source.put(job("a", JobState.DONE)._replace(ended=datetime.now(UTC))))
    came = wait(source, first_end=True)
    assert (came.state, [row.id for row in came.about]) == (WaitState.DONE, ["a"])


def test_a_change_is_told_and_a_failure_before_others(source: FakeSource) -> None:
    source.put(job("a", JobState.RUNNING))
    source.put(job("b", JobState.RUNNING))
    later(lambda: source.put(job("b", JobState.ERROR)))
    came = wait(source, changes=True)
    assert (came.state, came.event, [row.id for row in came.about]) == (WaitState.FAILED, "failed", ["b"])


@pytest.mark.parametrize(
    ("state", "candidates", "expected"),
    [
        ("ENDED (BUDGET)", [JobState.DONE, JobState.ERROR], WaitState.DONE),
        ("ENDED (FAILING)", [JobState.DONE], WaitState.FAILED),
        ("ENDED (STOPPED)", [JobState.DONE], WaitState.FAILED),
        ("ENDED (BUDGET)", [JobState.ERROR], WaitState.FAILED),
    ],
)
def test_a_search_fails_by_its_own_end_and_not_by_candidates(
    state: str, candidates: list[JobState], expected: WaitState
) -> None:
    source = FakeSource(Door.SEARCH)
    source.put_group(Group(SEARCH, Door.SEARCH, "packing", state=state, ended=datetime.now(UTC)))
    for number, one in enumerate(candidates):
        source.put(fake_row(SEARCH, "packing", str(number), one, attempt=1))
    assert wait(source).state is expected


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize("left", [JobState.RUNNING, JobState.SCHEDULED])
def test_a_search_without_a_driver_ends_the_wait_whatever_its_rows_say(
    left: JobState, is_named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenuto.cli.commands.wait.STILL_S", 0.3)
    source = FakeSource(Door.SEARCH)
    source.put_group(Group(SEARCH, Door.SEARCH, "packing", state="RUNNING", live=True))
    row = source.put(fake_row(SEARCH, "packing", "1", left, attempt=1))
    source.is_driven, source.has_payloads = False, True
    keys = [row.key] if is_named else []
    assert wait(source, *keys, timeout_s=0.2).state is WaitState.WORKING
    source.has_payloads = False
    assert wait(source, *keys).state is WaitState.UNATTENDED


def test_a_driver_that_is_seen_again_was_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server is started again, or the clock of the machine was set."""
    monkeypatch.setattr("tenuto.cli.commands.wait.STILL_S", 3.0)
    source = FakeSource(Door.SERVICE)
    source.put_group(Group("service:dock", Door.SERVICE, "dock", state="offered", live=True))
    row = source.put(fake_row("service:dock", "dock", "1", JobState.SCHEDULED, attempt=1))
    source.is_driven, source.has_payloads = False, False
    later(lambda: setattr(source, "is_driven", True))
    assert wait(source, row.key, timeout_s=5.0).state is WaitState.WORKING
