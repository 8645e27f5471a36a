"""The two vocabularies of the job service."""

from __future__ import annotations

from typing import Any

import pytest

from tenuto.errors import IllegalTransition
from tenuto.lifecycle.service import (
    ACTIVE,
    ENDED,
    PAYLOAD_TRANSITIONS,
    SERVICE_TRANSITIONS,
    PayloadState,
    ServiceState,
)
from tenuto.lifecycle.states import check_move

TABLES = [(ServiceState, SERVICE_TRANSITIONS), (PayloadState, PAYLOAD_TRANSITIONS)]


@pytest.mark.parametrize(("states", "table"), TABLES)
def test_every_state_has_a_row_and_a_meaning(states: Any, table: Any) -> None:
    assert set(table) == set(states)
    assert all(state.meaning for state in states)


@pytest.mark.parametrize(("states", "table"), TABLES)
def test_every_state_can_be_reached_and_leads_to_cleaned(states: Any, table: Any) -> None:
    first = next(iter(states))
    reached = {first}
    while more := {to for state in reached for to in table[state]} - reached:
        reached |= more
    assert reached == set(states)
    assert table[states.CLEANED] == {}
    ends = {states.CLEANED}
    while more := {state for state in states if set(table[state]) & ends} - ends:
        ends |= more
    assert ends == set(states)


@pytest.mark.parametrize(("states", "table"), TABLES)
def test_a_final_state_is_only_left_to_be_cleaned(states: Any, table: Any) -> None:
    for state in states:
        if state.is_final and state is not states.CLEANED:
            assert set(table[state]) == {states.CLEANED}


def test_every_state_is_queued_active_ended_or_cleaned() -> None:
    assert not ACTIVE & ENDED
    assert set(ServiceState) - ACTIVE - ENDED == {ServiceState.QUEUED, ServiceState.CLEANED}
    assert all(state.is_active == (state in ACTIVE) for state in ServiceState)


def test_a_killed_job_never_runs_again() -> None:
    with pytest.raises(
        IllegalTransition, match="cannot go from Killed to Running; from there it can go to: Cleaned"
    ):
        check_move(SERVICE_TRANSITIONS, ServiceState.KILLED, ServiceState.RUNNING)
    with pytest.raises(IllegalTransition, match=r"payload cannot go from Cleaned to Running.*: nothing"):
        check_move(PAYLOAD_TRANSITIONS, PayloadState.CLEANED, PayloadState.RUNNING)
    check_move(SERVICE_TRANSITIONS, ServiceState.QUEUED, ServiceState.KILLED)


def test_a_job_that_a_node_may_have_never_goes_back_to_the_queue() -> None:
    """Started at most once: only the one that was certainly not sent is queued again."""
    back = [state for state in ServiceState if ServiceState.QUEUED in SERVICE_TRANSITIONS[state]]
    assert back == [ServiceState.PROCESSING]
