"""36: the model of candidates, schedulers, workers and a broker; `proof/models/search.py`."""

from __future__ import annotations

import pytest

from proof.models.checker import check
from proof.models.search import PLANTED, CandidatesOfASearch, OneCandidate


def test_36_the_model_holds_while_two_processes_freeze_or_die() -> None:
    assert check(OneCandidate(faults=2)).found is None


@pytest.mark.prove("the full space")
def test_36_the_full_space_holds() -> None:
    assert check(OneCandidate(faults=4)).found is None
    assert check(CandidatesOfASearch(candidates=2, faults=1)).found is None


@pytest.mark.parametrize("planted", PLANTED)
def test_36_a_planted_bug_is_found(planted: str) -> None:
    assert check(OneCandidate(faults=2, planted=planted)).found is not None


def test_36_eight_bugs_are_planted() -> None:
    assert len(PLANTED) >= 8
