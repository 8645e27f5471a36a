"""Owns the promise that the pages with figures show those of a kept result, as they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench import age, docs
from bench.measure import Cost, Measured, summarise
from bench.results import RESULTS, Result, read
from bench.rows import FLOOR, OURS, missing, plain, refs_each, timed

PAGE = docs.PAGE.read_text(encoding="utf-8")
SLURM_PAGE = docs.SLURM_PAGE.read_text(encoding="utf-8")
AROUND = {
    "started": "2026-11-15T10:11:12+00:00",
    "scale": "full",
    "python": "3.11.7",
    "load_before": 0.1,
    "cores": 2,
}


def measured(wall_s: float) -> Measured:
    return Measured(summarise([Cost(1.0, wall_s)]), summarise([Cost(0.01, 0.006)]), load=0.5)


def test_the_page_shows_the_result_that_it_names() -> None:
    path = docs.named(PAGE)
    assert path is not None
    assert docs.fresh(PAGE, read(path)) == PAGE, "docs/performance.md is stale; run: python -m bench.docs"


def test_the_page_on_slurm_shows_the_result_that_it_names() -> None:
    path = docs.named(SLURM_PAGE)
    assert path is not None
    assert docs.fresh(SLURM_PAGE, read(path), docs.slurm_figures) == SLURM_PAGE, "run: python -m bench.docs"


def test_the_figures_begin_with_their_commit_and_what_changed_since() -> None:
    path = docs.named(PAGE)
    assert path is not None
    around = read(path).around
    first = docs.figures(read(path)).splitlines()[0]
    assert around["commit"][:12] in first
    assert f"{around['changed_lines']:,} lines" in first
    assert not age.is_outdated(around, age.MEASURED), "much has changed since; run: python -m bench.docs"


def test_each_page_shows_the_newest_kept_result_that_has_its_figures(require: Callable[[str], None]) -> None:
    require("git")
    if not (RESULTS.parents[1] / ".git").exists():
        pytest.skip("not a checkout, so nobody can tell which results are kept")
    assert docs.named(PAGE) == docs.newest("W1")
    assert docs.named(SLURM_PAGE) == docs.newest("W12")


def test_the_comparison_is_sorted_and_takes_the_largest_size_of_each() -> None:
    rows = [
        timed("W1", "warm", OURS, 100, measured(0.9)),
        timed("W1", "warm", OURS, 1_000, measured(1.2)),
        timed("W1", "no-op job", "slow", 10, measured(9.0)),
        missing("W1", "no-op job", "gone", 10, "absent: no wheel"),
        timed("W1", "no-op job", "quick", 1_000, measured(0.6)),
    ]
    lines = docs.compared(rows).splitlines()[2:]
    assert [line.split(" | ")[1] for line in lines] == ["quick", "**tenuto: warm**", "slow", "gone"]
    assert "absent: no wheel" in lines[-1]


def test_what_a_system_takes_for_each_workload_is_in_one_line() -> None:
    rows = [
        timed("W1", "no-op task, warm", OURS, 1_000, measured(1.2)),
        timed("W2", "chain, warm", OURS, 100, measured(0.2)),
        timed("W3", "all done before", OURS, 1_000, measured(0.3)),
        timed("W2", "chain", "peer", 100, measured(0.4)),
        timed("W1", "no-op job", "peer", 100, measured(0.6), note="fresh interpreter; whole process"),
    ]
    ours, peer = docs.compared(rows).splitlines()[2:]
    assert "**tenuto: no-op task, warm** | 1,000 | 1.2 ms | 2 ms | 300 us |" in ours
    assert peer.endswith("| peer | 100 | 6 ms | 4 ms | – | fresh interpreter |")


def test_the_page_names_the_targets_that_are_missed() -> None:
    rows = [
        timed("W1", "no-op task, warm", OURS, 1_000, measured(9.0), refs_each(0.4)),
        plain("W4", "jobs waiting", OURS, 1_000, "MB", [30.0], 0.5, "<= 35 MB", 35.0),
    ]
    said = docs.judged(rows)
    assert said.startswith("1 of 2 figures with a target hit it; missed: W1 no-op task, warm at 1,000.")
    assert said.endswith("30 MB for jobs waiting at 1,000.")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, ""), ({"scale": "quick"}, "`quick`"), ({"load_before": 5.0}, "load 5.0")],
)
def test_figures_that_mean_little_say_so(changes: dict[str, object], expected: str) -> None:
    said = docs.warning(Result({**AROUND, **changes}, ()))
    assert (expected in said) if expected else said == ""


def test_the_figures_have_a_part_for_each_kind_of_row() -> None:
    rows = (
        timed("floor", "fork", FLOOR, 100, measured(0.1)),
        timed("W1", "warm", OURS, 1_000, measured(1.2), refs_each(0.4)),
        timed("W1", "no-op job", "peer", 100, measured(1.2)),
    )
    text = docs.figures(Result(AROUND, rows, ("W6, why: peers",)))
    for heading in ("Against the targets", "Beside others"):
        assert f"### {heading}" in text
    alone = docs.figures(Result(AROUND, rows[1:2]))
    assert "Beside others" not in alone
    assert text.count("Python 3.11.7") == text.count("README's script") == 1
