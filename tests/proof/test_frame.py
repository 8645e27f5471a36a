"""The report is honest: a violation or an unseen planted bug fails a proof, and tells how to see it again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proof import __main__ as frame
from proof import report
from proof.report import Case, Options, Planted, Report, Violation

CASE = Case("start", "two schedulers", 12_345, "states", 1.5, "a | note")
BUG = Planted("start", "no lock", "forgets the lock", found=True, how="twice at once, after 7 steps")
GOOD = Report("models", "Model checks", (CASE, CASE), planted=(BUG,))


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (
            Report("x", "X", (CASE,), violations=(Violation("start", "lost", "a\nb", "python x"),)),
            "again: python x",
        ),
        (Report("x", "X", (CASE,), planted=(Planted("start", "no lock", "a slip", found=False),)), "| NO |"),
        (Report("x", "X", ()), "nothing was tried"),
    ],
)
def test_what_fails_is_said_to_fail(bad: Report, said: str) -> None:
    assert not bad.good
    assert "FAILS" in report.text(bad)
    assert said in report.text(bad)
    assert "FAILS" in report.summary([GOOD, bad])


def test_a_report_says_what_was_tried_and_what_was_found() -> None:
    text = report.text(GOOD)
    assert "HOLDS: 24,690 states; 0 violations; planted bugs found: 1 of 1" in text
    assert "| start | two schedulers | 12,345 states | 1.5 | a / note |" in text
    assert "twice at once, after 7 steps" in text


def test_the_raw_numbers_are_kept(tmp_path: Path) -> None:
    page = report.write([GOOD], report.circumstances(Options()), tmp_path / "results")
    raw = json.loads(page.with_suffix(".json").read_text())
    assert raw["reports"][0]["cases"][0]["count"] == 12_345
    assert page.read_text().startswith("| Proof |")


@pytest.mark.parametrize("good", [True, False])
def test_the_exit_code_tells(
    good: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[Options] = []

    def run(options: Options) -> Report:
        given.append(options)
        return GOOD if good else Report("models", "Model checks", ())

    monkeypatch.setattr(frame, "proof", lambda name: run)
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    code = frame.main(["--only", "models", "--small", "--seeds", "7", "--minutes", "0.5", "--no-planted"])
    assert code == (0 if good else 1)
    assert (given[0].small, given[0].seeds, given[0].minutes, given[0].planted) == (True, 7, 0.5, False)
    assert "| models |" in capsys.readouterr().out


def test_an_unknown_proof_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        frame.main(["--only", "astrology"])
    assert "there is no proof astrology" in capsys.readouterr().err
