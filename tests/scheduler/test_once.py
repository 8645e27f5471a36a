"""Jobs that run once: the attempt that the directory shows is the answer, for every later scheduler."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.decisions import (
    Arrival,
    RetryLimits,
    RetryRules,
    Rule,
    Tries,
    after_attempt,
    on_arrival,
)
from tenuto.scheduler.jobs import Job
from tenuto.testing.jobs import FakeOwner
from tenuto.testing.launcher import Step
from tenuto.workspace import job_directory
from tenuto.workspace.derive import Derived
from tenuto.workspace.derive_table import Action
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.markers import Marker, write_marker
from tenuto.workspace.ports import Files
from tenuto.workspace.records import StatusRecord
from tests.parts.simulation import SimulatedScheduler

from .worlds import HOUR_S, World

GENEROUS = RetryLimits(resumable=True, max_retries=3, max_lost_retries=3)


def submitted(world: World, scheduler: SimulatedScheduler, name: str = "a", **options: Any) -> Job:
    """A job that runs once, submitted and seen through to its end."""
    owner = FakeOwner()
    job = scheduler.submit(world.job(name, **{"once": True, **options}), owner)
    scheduler.wait(owner, HOUR_S)
    return job


def begun(world: World) -> int:
    return world.ledger.count(("begin", "a"))


def later(world: World, first: SimulatedScheduler, after_s: float = 0.0) -> SimulatedScheduler:
    """The scheduler that takes the place of one that is killed."""
    world.loop.run_until_complete(asyncio.sleep(after_s))
    first.kill()
    return world.scheduler()


def runners_die_after_the_marker(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next runner of `a` is killed when it has written its marker, and before it writes the status."""
    world.dies_at["a"] = Step.EXIT

    def finish(files: Files, paths: JobPaths, marker: Marker, _: StatusRecord, *how: Any) -> None:
        write_marker(files, paths, marker, *how[:1])

    monkeypatch.setattr(job_directory, "finish", finish)


def status_of(scheduler: SimulatedScheduler, job: Job) -> JobState:
    status = job_directory.read_status(scheduler.machine.files, job.paths)
    assert status is not None
    return status.state_record.state


@pytest.mark.parametrize("reason", [JobFailureStatus.FAILED, JobFailureStatus.TIMEOUT])
def test_a_failure_is_the_answer_for_a_restarted_scheduler(world: World, reason: JobFailureStatus) -> None:
    world.retry = GENEROUS
    world.payload = world.payload._replace(exit_code=1, reason=reason)
    scheduler = world.scheduler()
    ends = [submitted(world, scheduler)]
    for _ in range(2):
        scheduler = later(world, scheduler)
        ends.append(submitted(world, scheduler))
    assert [(job.state, job.failure_status, job.attempt) for job in ends] == 3 * [(JobState.ERROR, reason, 1)]
    assert begun(world) == 1


def test_a_failure_is_the_answer_when_it_is_submitted_again_to_the_same_scheduler(world: World) -> None:
    world.payload = world.payload._replace(exit_code=3)
    scheduler = world.scheduler()
    first = submitted(world, scheduler)
    again = submitted(world, scheduler)
    assert again is first
    assert (again.state, again.exit_code, again.attempt) == (JobState.ERROR, 3, 1)


def test_a_running_job_is_adopted_and_its_end_taken(world: World) -> None:
    first = world.scheduler()
    first.submit(world.job("a", once=True), FakeOwner())
    job = submitted(world, later(world, first, 2.0))
    assert (job.state, begun(world)) == (JobState.DONE, 1)


@pytest.mark.parametrize("step", [Step.CONCLUDE, Step.WRITE_MARKER])
def test_a_lost_job_stays_lost(world: World, step: Step) -> None:
    world.retry = GENEROUS
    world.dies_at["a"] = step
    scheduler = world.scheduler()
    for _ in range(3):
        job = submitted(world, scheduler)
        assert (job.state, job.failure_status) == (JobState.ERROR, JobFailureStatus.LOST)
        scheduler = later(world, scheduler)
    assert begun(world) == 1


def test_a_job_lost_while_no_scheduler_lived_is_marked_as_lost_by_the_next(world: World) -> None:
    world.retry = GENEROUS
    world.dies_at["a"] = Step.CONCLUDE
    first = world.scheduler()
    first.submit(world.job("a", once=True), FakeOwner())
    world.loop.run_until_complete(asyncio.sleep(1.0))
    first.kill()
    world.loop.run_until_complete(asyncio.sleep(60.0))
    second = world.scheduler()
    job = submitted(world, second)
    assert (job.failure_status, begun(world)) == (JobFailureStatus.LOST, 1)
    assert second.machine.files.stat(job.paths.failed) is not None


@pytest.mark.parametrize("once", [True, False])
def test_a_status_that_a_killed_runner_left_is_mended_when_its_end_is_seen(
    world: World, monkeypatch: pytest.MonkeyPatch, once: bool
) -> None:
    runners_die_after_the_marker(world, monkeypatch)
    scheduler = world.scheduler()
    job = submitted(world, scheduler, once=once)
    assert (job.state, status_of(scheduler, job)) == (JobState.DONE, JobState.DONE)


def test_a_status_that_a_killed_runner_left_is_mended_by_the_next_scheduler(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runners_die_after_the_marker(world, monkeypatch)
    world.payload = world.payload._replace(exit_code=3)
    first = world.scheduler()
    left = first.submit(world.job("a", once=True), FakeOwner())
    world.loop.run_until_complete(asyncio.sleep(1.0))
    first.kill()
    world.loop.run_until_complete(asyncio.sleep(60.0))
    second = world.scheduler()
    assert status_of(second, left) is JobState.SCHEDULED
    job = submitted(world, second)
    assert (job.state, status_of(second, job), begun(world)) == (JobState.ERROR, JobState.ERROR, 1)


@pytest.mark.parametrize("step", [Step.BEGIN, Step.WRITE_PID])
def test_a_job_that_certainly_never_began_is_started(world: World, step: Step) -> None:
    world.dies_at["a"] = step
    job = submitted(world, world.scheduler())
    assert (job.state, job.attempt, begun(world)) == (JobState.DONE, 2, 1)


def test_a_start_that_the_machine_refused_is_made_again(world: World) -> None:
    world.launcher.errors.append(OSError(errno.EAGAIN, "no process left"))
    job = submitted(world, world.scheduler())
    assert (job.state, begun(world)) == (JobState.DONE, 1)


def test_a_cancelled_job_stays_cancelled(world: World) -> None:
    scheduler = world.scheduler()
    job = scheduler.submit(world.job("a", once=True), FakeOwner())
    scheduler.cancel(job)
    scheduler.wait_for_job(job, HOUR_S)
    again = submitted(world, later(world, scheduler))
    assert (again.failure_status, begun(world)) == (JobFailureStatus.CANCELLED, 0)


def test_a_failed_job_is_tried_again_when_it_is_submitted_without_once(world: World) -> None:
    works, world.payload = world.payload, world.payload._replace(exit_code=3)
    scheduler = world.scheduler()
    assert submitted(world, scheduler).state is JobState.ERROR
    world.payload = works
    job = submitted(world, scheduler, once=False)
    assert (job.state, job.attempt, job.once) == (JobState.DONE, 2, False)


def test_an_attempt_that_another_scheduler_made_since_is_the_answer(world: World) -> None:
    """A person retries the job elsewhere: a known failure is looked up again, and not held on to."""
    works, world.payload = world.payload, world.payload._replace(exit_code=3)
    scheduler = world.scheduler()
    assert submitted(world, scheduler).state is JobState.ERROR
    world.payload = works
    assert submitted(world, world.scheduler(), once=False).state is JobState.DONE
    job = submitted(world, scheduler)
    assert (job.state, job.attempt, begun(world)) == (JobState.DONE, 2, 2)


def test_a_job_that_waits_for_one_that_failed_once_is_stranded(world: World) -> None:
    world.payload = world.payload._replace(exit_code=3)
    submitted(world, world.scheduler())
    second, owner = world.scheduler(), FakeOwner()
    needed = second.submit(world.job("a", once=True), owner)
    needing = second.submit(world.job("b", needed), owner)
    second.wait(owner, HOUR_S)
    assert needing.failure_status is JobFailureStatus.DEPENDENCY
    assert owner.history["a"] == [JobState.ERROR]


@pytest.mark.parametrize("ran", [True, False])
@pytest.mark.parametrize("reason", [JobFailureStatus.LOST, JobFailureStatus.TIMEOUT])
def test_only_what_never_began_is_tried_again(reason: JobFailureStatus, ran: bool) -> None:
    found = Derived(JobState.ERROR, Action.START, "row", reason, attempt=1, payload_may_have_run=ran)
    assert on_arrival(found, once=True) is (Arrival.TAKE if ran else Arrival.RUN)
    again = after_attempt(found, Tries(), GENEROUS._replace(once=True)).tries
    assert (again is None) is ran


def test_a_candidate_is_tried_again_by_its_rules_also_after_its_worker_died(world: World) -> None:
    """The end of an attempt that a rule has tried again is no answer; that of the last one is."""
    world.retry = RetryLimits(rules=RetryRules(failed=Rule(2, after_s=60.0)), by_rules=True)
    works, world.payload = world.payload, world.payload._replace(exit_code=3)
    first = world.scheduler()
    first.submit(world.job("a", once=True), FakeOwner())
    second = later(world, first, 30.0)
    assert begun(world) == 1
    job = submitted(world, second)
    assert (job.failure_status, job.attempt, begun(world)) == (JobFailureStatus.FAILED, 3, 3)
    world.payload = works
    assert submitted(world, world.scheduler()).attempt == 3
    assert begun(world) == 3


def test_two_wishes_for_one_job_are_merged_to_the_more_generous() -> None:
    once = GENEROUS._replace(once=True)
    assert once.merged(GENEROUS) == GENEROUS.merged(once) == GENEROUS
    assert once.merged(once).once
    assert once.recorded() == {}
    assert RetryLimits(**GENEROUS.recorded()) == GENEROUS
