"""The tables of a candidate's status and of a search's state."""

from __future__ import annotations

import pytest

from tenuto.errors import IllegalTransition
from tenuto.lifecycle.evolution import (
    EVOLUTION_TRANSITIONS,
    SEARCH_TRANSITIONS,
    EvolutionStatus,
    SearchState,
)
from tenuto.lifecycle.states import check_move, origins


def test_every_status_and_state_is_in_its_table() -> None:
    assert set(EVOLUTION_TRANSITIONS) == set(EvolutionStatus)
    assert set(SEARCH_TRANSITIONS) == set(SearchState)


def test_final_statuses_are_left_only_by_a_retry() -> None:
    for status in EvolutionStatus:
        if status.finished():
            assert set(EVOLUTION_TRANSITIONS[status]) <= {EvolutionStatus.PENDING}
    assert EVOLUTION_TRANSITIONS[EvolutionStatus.SUCCEEDED] == {}


def test_a_move_that_the_table_forbids_is_refused() -> None:
    check_move(EVOLUTION_TRANSITIONS, EvolutionStatus.PENDING, EvolutionStatus.QUEUED)
    with pytest.raises(IllegalTransition, match="nothing"):
        check_move(EVOLUTION_TRANSITIONS, EvolutionStatus.SUCCEEDED, EvolutionStatus.PENDING)
    with pytest.raises(IllegalTransition, match="QUEUED"):
        check_move(EVOLUTION_TRANSITIONS, EvolutionStatus.PENDING, EvolutionStatus.RUNNING)


def test_where_a_status_comes_from() -> None:
    assert origins(EVOLUTION_TRANSITIONS, EvolutionStatus.RUNNING) == (EvolutionStatus.QUEUED,)
    assert EvolutionStatus.RUNNING in origins(EVOLUTION_TRANSITIONS, EvolutionStatus.PENDING)
