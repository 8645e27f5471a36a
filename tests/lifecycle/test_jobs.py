"""`BaseJob`: what a change of state sets in motion."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import IllegalTransition
from tenuto.lifecycle.base_job import BaseJob, CounterChange
from tenuto.lifecycle.states import TRANSITIONS, JobFailureStatus, JobState, StateRecord
from tenuto.testing import FakeClock


class CountedJob(BaseJob):
    """A job that keeps what its hooks are called with."""

    def __init__(self) -> None:
        super().__init__("ab12", "task", FakeClock())
        self.unfinished = 0
        self.failed = 0
        self.heard: list[tuple[JobState, JobState, tuple[int, int], int | None]] = []
        self.reasons: list[str | None] = []

    def counts(self) -> tuple[int, int]:
        return self.unfinished, self.failed

    def _count(self, change: CounterChange) -> None:
        self.unfinished += change.unfinished
        self.failed += change.failed

    def _changed(self, before: StateRecord, now: datetime, attempt: int | None) -> None:
        assert now == self.clock.now()
        self.heard.append((before.state, self.state, self.counts(), attempt))

    def _explained(self, now: datetime) -> None:
        self.reasons.append(self.state_record.message)


def a_job() -> CountedJob:
    return CountedJob()


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


def test_unfinished_and_failed_jobs_are_counted() -> None:
    job = a_job()
    follow(job, *RUN)
    assert job.counts() == (1, 0)
    job.set_state(JobState.ERROR, JobFailureStatus.MEMORY, "64 GB")
    assert job.counts() == (0, 1)
    assert (job.failure_status, job.state_record.message) == (JobFailureStatus.MEMORY, "64 GB")
    follow(job, JobState.WAITING)
    assert job.counts() == (1, 0)
    follow(job, *RUN[1:], JobState.DONE)
    assert job.counts() == (0, 0)


def test_a_retry_does_not_touch_the_counters() -> None:
    job = a_job()
    follow(job, *RUN, JobState.WAITING)
    assert job.counts() == (1, 0)


def test_a_job_found_done_never_counted_as_unfinished() -> None:
    job = a_job()
    job.state = JobState.DONE
    assert job.counts() == (0, 0)


@given(st.lists(st.sampled_from(JobState)))
def test_the_counters_always_say_what_the_state_says(wishes: list[JobState]) -> None:
    job = a_job()
    for wish in wishes:
        if wish in TRANSITIONS[job.state]:
            job.state = wish
    assert job.counts() == (job.state.unfinished(), job.state is JobState.ERROR)


def test_a_change_is_told_when_all_of_it_is_done() -> None:
    job = a_job()
    follow(job, JobState.WAITING)
    assert job.heard == [(JobState.UNSCHEDULED, JobState.WAITING, (1, 0), None)]
    follow(job, JobState.READY)
    job.set_state(JobState.SCHEDULED, attempt=7)
    assert job.heard[-1] == (JobState.READY, JobState.SCHEDULED, (1, 0), 7)


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
    job.explain("gpu: 0 of 4 free")
    assert job.state_record.message == "gpu: 0 of 4 free"
    assert job.reasons == ["gpu: 0 of 4 free"], "to say the same again is no news"
    follow(job, JobState.READY)
    assert job.state_record.message is None


def test_how_long_a_job_ran_does_not_follow_a_clock_that_is_set() -> None:
    clock = FakeClock()
    job = BaseJob("ab12", "a.Task", clock)
    for state in (JobState.WAITING, JobState.READY, JobState.SCHEDULED, JobState.RUNNING):
        job.state = state
    clock.advance(5.0)
    clock.jump(-3600.0)
    job.state = JobState.DONE
    assert job.starttime is not None
    assert job.endtime is not None
    assert (job.endtime - job.starttime).total_seconds() == 5.0
