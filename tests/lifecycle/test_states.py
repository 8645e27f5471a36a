"""The state table and `transition`."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import IllegalTransition
from tenuto.lifecycle.states import (
    TRANSITIONS,
    JobFailureStatus,
    JobState,
    StateRecord,
    TransientMode,
    transition,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)

LEGAL = {
    "UNSCHEDULED": {"WAITING", "DONE", "ERROR", "RUNNING"},
    "WAITING": {"READY", "ERROR", "UNSCHEDULED"},
    "READY": {"SCHEDULED", "WAITING", "ERROR"},
    "SCHEDULED": {"RUNNING", "DONE", "ERROR", "WAITING"},
    "RUNNING": {"DONE", "ERROR", "WAITING"},
    "DONE": {"WAITING"},
    "ERROR": {"WAITING"},
}


def test_the_numbers_of_the_states_are_those_of_the_seed() -> None:
    assert [(s.name, s.value) for s in JobState] == [
        ("UNSCHEDULED", 0),
        ("WAITING", 1),
        ("READY", 2),
        ("SCHEDULED", 3),
        ("RUNNING", 4),
        ("DONE", 5),
        ("ERROR", 6),
    ]


@pytest.mark.parametrize(("state", "to"), [*itertools.product(JobState, JobState)])
def test_only_what_the_table_allows_happens(state: JobState, to: JobState) -> None:
    if to.name in LEGAL[state.name]:
        assert transition(StateRecord(state), to, NOW).state is to
    else:
        with pytest.raises(IllegalTransition, match=f"{state.name} to {to.name}"):
            transition(StateRecord(state), to, NOW)


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        TRANSITIONS[JobState.DONE][JobState.ERROR] = "because"  # type: ignore[index]


def test_waiting_sets_the_submit_time_and_clears_the_others() -> None:
    ended = StateRecord(JobState.DONE, submittime=NOW, starttime=NOW, endtime=NOW)
    again = transition(ended, JobState.WAITING, LATER)
    assert (again.submittime, again.starttime, again.endtime) == (LATER, None, None)


def test_running_sets_the_start_time() -> None:
    assert transition(
        StateRecord(JobState.SCHEDULED, submittime=NOW), JobState.RUNNING, LATER
    ) == StateRecord(JobState.RUNNING, submittime=NOW, starttime=LATER)


@pytest.mark.parametrize("to", [JobState.DONE, JobState.ERROR])
def test_a_final_state_sets_the_end_time(to: JobState) -> None:
    ended = transition(StateRecord(JobState.RUNNING, submittime=NOW, starttime=NOW), to, LATER)
    assert (ended.submittime, ended.starttime, ended.endtime) == (NOW, NOW, LATER)


def test_ready_and_scheduled_leave_the_times_alone() -> None:
    waiting = StateRecord(JobState.WAITING, submittime=NOW)
    ready = transition(waiting, JobState.READY, LATER)
    assert transition(ready, JobState.SCHEDULED, LATER) == waiting._replace(state=JobState.SCHEDULED)


def test_an_error_has_a_reason_and_nothing_else_has() -> None:
    running = StateRecord(JobState.RUNNING)
    assert transition(running, JobState.ERROR, NOW).reason is JobFailureStatus.FAILED
    timed_out = transition(running, JobState.ERROR, NOW, JobFailureStatus.TIMEOUT, "2 h")
    assert (timed_out.reason, timed_out.message) == (JobFailureStatus.TIMEOUT, "2 h")
    assert transition(timed_out, JobState.WAITING, NOW) == StateRecord(JobState.WAITING, submittime=NOW)
    with pytest.raises(IllegalTransition):
        transition(running, JobState.DONE, NOW, JobFailureStatus.FAILED)


@given(st.lists(st.sampled_from(JobState)))
def test_times_are_always_those_of_the_state(wishes: list[JobState]) -> None:
    record = StateRecord()
    for wish in wishes:
        if wish in TRANSITIONS[record.state]:
            record = transition(record, wish, NOW)
    state = record.state
    assert (record.endtime is not None) == state.finished()
    assert (record.reason is not None) == (state is JobState.ERROR)
    if state is JobState.RUNNING:
        assert record.starttime is not None
    if state is JobState.WAITING:
        assert record.starttime is None


@pytest.mark.parametrize("state", JobState)
def test_the_helpers_agree_with_the_states(state: JobState) -> None:
    assert state.finished() == (state.name in {"DONE", "ERROR"})
    assert state.running() == (state.name in {"SCHEDULED", "RUNNING"})
    assert state.unfinished() == (state.name in {"WAITING", "READY", "SCHEDULED", "RUNNING"})


def test_the_more_conservative_transient_mode_wins() -> None:
    none, transient, remove = TransientMode
    assert remove.merge(transient) is transient
    assert transient.merge(none) is none
    assert none.merge(remove) is none
    assert all(a.merge(b) is b.merge(a) for a, b in itertools.product(TransientMode, TransientMode))


def test_every_value_says_what_it_means() -> None:
    for value in (*JobState, *JobFailureStatus, *TransientMode):
        assert value.meaning
    assert [status.name for status in JobFailureStatus] == (
        "DEPENDENCY FAILED MEMORY TIMEOUT DELETED CANCELLED LOST REJECTED".split()
    )
