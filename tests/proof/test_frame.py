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
def test_a_failing_report_is_said_to_fail(bad: Report, said: str) -> None:
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


def _kept(directory: Path, name: str, **around: object) -> Path:
    made = Report(name, name.title(), (CASE,), planted=(BUG,), seconds=2.0)
    page = report.write([made], {**report.circumstances(Options(), "c0ffee"), **around}, directory)
    return page.with_suffix(".json")


def test_the_parts_of_a_run_are_joined_in_the_order_of_the_proofs(tmp_path: Path) -> None:
    late = _kept(tmp_path / "b", "models", started="2026-01-02T00:00:00+00:00")
    early = _kept(tmp_path / "a", "soak", started="2026-01-01T00:00:00+00:00")
    assert frame.main(["--join", str(early), str(late), "--results", f"{tmp_path}/deep/results"]) == 0
    raw = json.loads((tmp_path / "deep/results/20260101T000000.json").read_text())
    assert [fields["name"] for fields in raw["reports"]] == ["models", "soak"]
    assert raw["circumstances"]["commit"] == "c0ffee"
    assert report.read(raw["reports"][0]).planted == (BUG,)


def test_results_of_other_commits_and_twice_the_same_proof_are_not_joined(tmp_path: Path) -> None:
    one, other = _kept(tmp_path / "a", "models"), _kept(tmp_path / "b", "soak", commit="decaf")
    with pytest.raises(ValueError, match="differ in commit: c0ffee, decaf"):
        report.joined([one, other], ["models", "soak"], tmp_path)
    with pytest.raises(ValueError, match="the same proof"):
        report.joined([one, one], ["models"], tmp_path)


def test_a_run_that_is_ended_early_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(options: Options) -> Report:
        if list(tmp_path.glob("*.json")):
            raise KeyboardInterrupt
        return GOOD

    monkeypatch.setattr(frame, "proof", lambda name: run)
    with pytest.raises(KeyboardInterrupt):
        frame.main(["--only", "models,nth", "--results", str(tmp_path)])
    [kept] = tmp_path.glob("*.json")
    assert [fields["name"] for fields in json.loads(kept.read_text())["reports"]] == ["models"]


def test_an_unknown_proof_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        frame.main(["--only", "astrology"])
    assert "there is no proof astrology" in capsys.readouterr().err
