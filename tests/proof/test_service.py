"""Acceptance 6 of the job service: a sample of the pairs of kill points; `make prove` plays all of them."""

from __future__ import annotations

import pytest

from proof.report import Options, text
from proof.service import proving, simulation
from proof.service.case import APART, CASES, EMBEDDED, SAMPLE, Case
from proof.service.points import NODE_POINTS, SERVER_POINTS

ALL = {*SERVER_POINTS, *NODE_POINTS}


def test_every_pair_is_tried_embedded_and_apart() -> None:
    pairs = {(s, n) for s in SERVER_POINTS for n in NODE_POINTS}
    assert {case.points for case in CASES if case.layout == APART} == pairs
    assert {case.points for case in CASES if case.layout == EMBEDDED} == pairs | {(n, s) for s, n in pairs}
    assert set(SAMPLE) <= set(CASES)
    assert len({point for case in SAMPLE for point in case.points}) >= len(ALL) - 3


@pytest.mark.slow
@pytest.mark.watchdog(400)
def test_a_server_and_its_node_survive_a_kill_at_every_point() -> None:
    report = proving.run(Options(small=True, workers=2, planted=False))
    assert report.good, text(report)
    assert sum(case.count for case in report.cases if case.unit == "pairs") == len(SAMPLE)


@pytest.mark.slow
def test_a_seed_leads_to_the_same_world_and_a_planted_bug_is_found_in_it() -> None:
    """Acceptance 12: the seeds themselves are played above."""
    assert simulation.played(3) == simulation.played(3)
    assert proving.plant_in_simulation("no beats").found


@pytest.mark.slow
def test_a_clock_that_jumps_and_comes_back_between_two_looks_ends_no_server() -> None:
    assert simulation.played(303).problems == ()


@pytest.mark.slow
@pytest.mark.parametrize("bug", ["run again", "moved strictly"])
def test_a_planted_bug_is_found(bug: str) -> None:
    assert proving.plant(bug).found


def test_a_broken_promise_is_a_violation_that_can_be_seen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(APART, "S4", "N2")
    result = {"case": case._asdict(), "problems": ["job 1 was started 2 times", "a log"], "seconds": 1.0}
    monkeypatch.setattr(proving, "play", lambda cases, theatres: [result] if case in cases else [])
    monkeypatch.setattr(proving, "SEEDS_IN_TESTS", 1)
    report = proving.run(Options(small=True, planted=False))
    assert not report.good
    assert report.violations[0].what == "job 1 was started 2 times"
    assert report.violations[0].again == "python -m proof.service apart S4 N2"
