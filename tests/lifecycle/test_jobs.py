"""`BaseJob`: what a change of state sets in motion."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import IllegalTransition
from tenuto.lifecycle.jobs import BaseJob
from tenuto.lifecycle.states import TRANSITIONS, JobFailureStatus, JobState, Standing
from tenuto.testing import FakeClock


class Owner:
    def __init__(self) -> None:
        self.unfinishedJobs = 0
        self.failedJobs = 0

    def counts(self) -> tuple[int, int]:
        return self.unfinishedJobs, self.failedJobs


def a_job(*owners: Owner) -> BaseJob:
    job = BaseJob("ab12", "task", FakeClock())
    for owner in owners:
        job.add_owner(owner)
    return job


def follow(job: BaseJob, *states: JobState) -> None:
    for state in states:
        job.state = state


RUN = (JobState.WAITING, JobState.READY, JobState.SCHEDULED, JobState.RUNNING)


def test_assigning_the_state_is_a_checked_transition() -> None:
    job = a_job()
    job.state = JobState.WAITING
    assert job.submittime == job.clock.now()
    with pytest.raises(IllegalTransition):
        job.state = JobState.DONE
    assert job.state is JobState.WAITING


def test_every_owner_counts_what_is_unfinished_and_what_failed() -> None:
    one, two = Owner(), Owner()
    job = a_job(one, two)
    follow(job, *RUN)
    assert one.counts() == two.counts() == (1, 0)
    job.set_state(JobState.ERROR, JobFailureStatus.MEMORY, "64 GB")
    assert one.counts() == two.counts() == (0, 1)
    assert (job.failure_status, job.standing.message) == (JobFailureStatus.MEMORY, "64 GB")
    follow(job, JobState.WAITING)
    assert one.counts() == (1, 0)
    follow(job, *RUN[1:], JobState.DONE)
    assert one.counts() == (0, 0)


def test_a_retry_does_not_touch_the_counters() -> None:
    owner = Owner()
    job = a_job(owner)
    follow(job, *RUN, JobState.WAITING)
    assert owner.counts() == (1, 0)


def test_a_job_found_done_never_counted_as_unfinished() -> None:
    owner = Owner()
    a_job(owner).state = JobState.DONE
    assert owner.counts() == (0, 0)


def test_an_owner_that_comes_later_counts_the_job_as_it_stands_and_once() -> None:
    job = a_job()
    follow(job, JobState.WAITING)
    late = Owner()
    job.add_owner(late)
    job.add_owner(late)
    assert late.counts() == (1, 0)
    job.remove_owner(late)
    job.remove_owner(late)
    assert late.counts() == (0, 0)
    follow(job, JobState.READY)
    assert late.counts() == (0, 0)


@given(st.lists(st.sampled_from(JobState)))
def test_the_counters_always_say_what_the_state_says(wishes: list[JobState]) -> None:
    owner = Owner()
    job = a_job(owner)
    for wish in wishes:
        if wish in TRANSITIONS[job.state]:
            job.state = wish
    assert owner.counts() == (job.state.unfinished(), job.state is JobState.ERROR)


def test_listeners_hear_of_a_change_when_all_of_it_is_done() -> None:
    owner = Owner()
    job = a_job(owner)
    heard = []
    job.listeners += (lambda job, before: heard.append((before.state, job.state, owner.counts())),)
    follow(job, JobState.WAITING)
    assert heard == [(JobState.UNSCHEDULED, JobState.WAITING, (1, 0))]


def test_a_listener_that_raises_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    job = a_job()
    heard = []

    def broken(job: BaseJob, before: Standing) -> None:
        raise RuntimeError("broken listener")

    job.listeners += (broken, lambda job, before: heard.append(job.state))
    with caplog.at_level(logging.ERROR):
        follow(job, JobState.WAITING)
    assert heard == [JobState.WAITING]
    assert "broken listener" in caplog.text


def test_the_future_is_reset_only_when_a_finished_job_waits_again() -> None:
    class Job(BaseJob):
        resets = 0

        def _reset_final_state(self) -> None:
            self.resets += 1

    job = Job("ab12", "task", FakeClock())
    follow(job, *RUN, JobState.WAITING, *RUN[1:], JobState.DONE)
    assert job.resets == 0
    follow(job, JobState.WAITING)
    assert job.resets == 1


def test_a_waiting_job_can_say_why_it_waits() -> None:
    job = a_job()
    follow(job, JobState.WAITING)
    job.explain("gpu: 0 of 4 free")
    assert job.standing.message == "gpu: 0 of 4 free"
    follow(job, JobState.READY)
    assert job.standing.message is None


def test_what_a_predecessor_recorded_can_be_taken_over() -> None:
    job = a_job()
    follow(job, JobState.WAITING)
    clock = FakeClock()
    job.restore(Standing(JobState.DONE, submittime=clock.now(), starttime=clock.now()))
    assert job.state is JobState.WAITING
    assert job.starttime == clock.now()
