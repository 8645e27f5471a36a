"""The proof over real clusters, with few jobs, in each place; no machine goes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proof.clusters.proving import JOBS_IN_TESTS, play
from proof.clusters.script import read
from proof.clusters.systems import PLACES

NEEDS = {"slurm": "slurm", "grid engine": "gridengine", "two hosts by ssh": "sshd"}


@pytest.mark.slow
@pytest.mark.watchdog(600)
@pytest.mark.xdist_group("clusters")
@pytest.mark.parametrize(
    "place",
    [
        pytest.param(one, marks=pytest.mark.prove("a host that is gone is told of after a minute"))
        if one == "two hosts by ssh"
        else one
        for one in PLACES
    ],
)
def test_each_payload_runs_once_whatever_dies(place: str, require: Callable[[str], None]) -> None:
    if place in NEEDS:
        require(NEEDS[place])
    case, violations = play(place, JOBS_IN_TESTS, is_small=True)
    assert not violations
    assert case.count == JOBS_IN_TESTS


def test_a_payload_that_was_killed_while_it_noted_its_begin_noted_nothing() -> None:
    assert [note.name for note in read(["begin a 1 n1", "begin b", "end a 1 n1"])] == ["a", "a"]
