"""The kill matrix sees what it is to see; its cases are played in tests/faults/test_kill_matrix.py."""

from __future__ import annotations

import pytest

from proof.matrix import proving
from proof.matrix.bugs import BUGS
from proof.matrix.cases import Kind
from proof.report import Options, text


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    assert proving.plant(bug).found


def test_the_report_counts_cases_and_blows(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [{"runner": "fork"}, {"runner": "no such step"}]
    monkeypatch.setattr(proving, "KINDS", {"some": Kind("a title", cases, [])})
    report = proving.run(Options(planted=False))
    assert report.good, text(report)
    assert report.cases[0].count == 2
    assert "| some | a title | 2 cases |" in text(report)
    assert report.cases[0].note == "all blows fell in 1"


def test_a_broken_promise_is_a_violation_that_can_be_seen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # A payload that fails for another reason than a blow: nobody may take that for well.
    cases = [{"victim": "nobody", "moment": "start"}]
    monkeypatch.setattr(proving, "KINDS", {"some": Kind("a title", cases, [])})
    report = proving.run(Options(planted=False))
    assert not report.good
    assert "a scheduler failed: ['ERROR FAILED exited with code 1']" in report.violations[0].what
    assert "proof.matrix.theatre" in report.violations[0].again
