"""What is decided from what a directory shows, without any directory."""

from __future__ import annotations

import pytest

from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.decisions import (
    MAX_BLAMELESS,
    MAX_UNSTARTED,
    Arrival,
    RetryLimits,
    Tries,
    after_attempt,
    is_told,
    on_arrival,
    tries_to_come,
)
from tenuto.workspace.derive import Derived
from tenuto.workspace.derive_table import Action
from tenuto.workspace.markers import Marker


def derived(
    state: JobState,
    action: Action = Action.KEEP,
    reason: JobFailureStatus | None = None,
    *,
    marked: bool = True,
    ran: bool = True,
) -> Derived:
    marker = Marker(attempt=1, nonce="n", reason=reason) if marked else None
    return Derived(state, action, "row", reason, marker=marker, attempt=1, payload_may_have_run=ran)


def lost(*, ran: bool) -> Derived:
    return derived(JobState.ERROR, Action.START, JobFailureStatus.LOST, marked=False, ran=ran)


TIMED_OUT = derived(JobState.ERROR, reason=JobFailureStatus.TIMEOUT)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (derived(JobState.DONE), Arrival.REUSE),
        (derived(JobState.ERROR, reason=JobFailureStatus.FAILED), Arrival.RUN),
        (derived(JobState.RUNNING, Action.WATCH, marked=False), Arrival.ADOPT),
        (derived(JobState.SCHEDULED, Action.WATCH, marked=False), Arrival.ADOPT),
        (derived(JobState.UNSCHEDULED, Action.START, marked=False), Arrival.RUN),
        (lost(ran=True), Arrival.RUN),
        (derived(JobState.ERROR, Action.SWEEP, JobFailureStatus.LOST, marked=False), Arrival.RUN),
    ],
)
def test_what_a_submission_finds_decides_what_it_needs(found: Derived, expected: Arrival) -> None:
    assert on_arrival(found) is expected


def test_the_loss_of_an_attempt_that_was_told_is_no_answer() -> None:
    assert is_told(lost(ran=True), 1)
    assert not is_told(lost(ran=True), 2)
    assert not is_told(lost(ran=True), 1, once=True)
    assert not is_told(Derived(JobState.UNSCHEDULED, Action.START, "nothing there"), 0)


def test_a_cancellation_in_the_cluster_is_an_answer_unless_it_was_wished_before() -> None:
    cancelled = derived(JobState.ERROR, Action.START, JobFailureStatus.CANCELLED, marked=False)
    assert not is_told(cancelled, 1)
    assert is_told(cancelled, 1, was_stopped=True)


def test_a_done_job_is_final() -> None:
    verdict = after_attempt(derived(JobState.DONE), Tries(), RetryLimits(True, 5, 5))
    assert verdict.state is JobState.DONE
    assert verdict.tries is None


def test_a_timeout_is_tried_again_as_often_as_allowed() -> None:
    limits = RetryLimits(resumable=True, max_retries=2)
    assert after_attempt(TIMED_OUT, Tries(0), limits).tries == Tries(1)
    assert after_attempt(TIMED_OUT, Tries(1), limits).tries == Tries(2)
    assert after_attempt(TIMED_OUT, Tries(2), limits).tries is None


def test_a_timeout_of_a_task_that_cannot_resume_is_final() -> None:
    assert after_attempt(TIMED_OUT, Tries(), RetryLimits(resumable=False, max_retries=9)).tries is None


def test_a_failure_is_never_tried_again() -> None:
    failed = derived(JobState.ERROR, reason=JobFailureStatus.FAILED)
    assert after_attempt(failed, Tries(), RetryLimits(True, 9, 9)).tries is None


def test_a_lost_job_is_tried_again_only_if_that_is_allowed() -> None:
    assert after_attempt(lost(ran=True), Tries(), RetryLimits()).tries is None
    assert after_attempt(lost(ran=True), Tries(), RetryLimits(max_lost_retries=1)).tries == Tries(0, 1)
    assert after_attempt(lost(ran=True), Tries(0, 1), RetryLimits(max_lost_retries=1)).tries is None


def test_a_runner_lost_before_the_task_began_is_started_again_a_few_times() -> None:
    counts = [
        after_attempt(lost(ran=False), Tries(0, n), RetryLimits()).tries for n in range(MAX_UNSTARTED + 1)
    ]
    assert counts == [*(Tries(0, n + 1) for n in range(MAX_UNSTARTED)), None]


def test_an_attempt_that_was_withdrawn_costs_no_try() -> None:
    withdrawn = Tries(1, 3, 2, withdrawn=True)
    assert after_attempt(lost(ran=False), withdrawn, RetryLimits()).tries == Tries(1, 3, 2)
    assert after_attempt(lost(ran=True), withdrawn, RetryLimits()).tries is None


def test_an_attempt_for_which_its_cluster_had_no_machine_costs_no_try() -> None:
    untried = lost(ran=False)._replace(untried=True, blameless=True)
    assert after_attempt(untried, Tries(1, 3), RetryLimits()).tries == Tries(1, 3)


@pytest.mark.parametrize("ran", [True, False])
def test_the_losses_of_a_cluster_and_those_of_the_job_are_counted_apart(ran: bool) -> None:
    by_cluster, of_its_own = lost(ran=ran)._replace(blameless=True), lost(ran=True)
    limits = RetryLimits(max_lost_retries=1)
    for lost_count in (0, 1):
        counts = [
            after_attempt(by_cluster, Tries(0, lost_count, n), limits).tries for n in range(MAX_BLAMELESS + 1)
        ]
        assert counts == [*(Tries(0, lost_count, n + 1) for n in range(MAX_BLAMELESS)), None]
    for blameless_count in (0, MAX_BLAMELESS):
        assert after_attempt(of_its_own, Tries(0, 0, blameless_count), limits).tries == Tries(
            0, 1, blameless_count
        )
        assert after_attempt(of_its_own, Tries(0, 1, blameless_count), limits).tries is None


def test_a_job_marked_as_lost_stays_lost() -> None:
    marked = derived(JobState.ERROR, reason=JobFailureStatus.LOST)
    assert after_attempt(marked, Tries(), RetryLimits(max_lost_retries=9)).tries is None


def test_the_tries_of_a_scheduler_that_was_killed_are_not_forgotten() -> None:
    limits = RetryLimits(resumable=True, max_retries=2, max_lost_retries=1)
    assert tries_to_come(TIMED_OUT, Tries(1), limits) == Tries(2)
    assert tries_to_come(lost(ran=True), Tries(2), limits) == Tries(2, 1)


def test_a_job_that_ended_for_good_has_all_its_tries_when_it_is_submitted_again() -> None:
    limits = RetryLimits(resumable=True, max_retries=2, max_lost_retries=1)
    failed = derived(JobState.ERROR, reason=JobFailureStatus.FAILED)
    assert tries_to_come(TIMED_OUT, Tries(2), limits) == Tries()
    assert tries_to_come(failed, Tries(1, 1), limits) == Tries()
    assert tries_to_come(lost(ran=True), Tries(1, 1), limits) == Tries()
