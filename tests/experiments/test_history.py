"""Owns which runs are forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenuto.experiments.pruning import FinishedRun, runs_to_prune

DONE = [FinishedRun(f"2025010{day}_000000", False) for day in range(1, 6)]
FAILED = [FinishedRun(f"2025010{day}_120000", True) for day in range(1, 6)]
limits = st.none() | st.integers(0, 6)


def test_the_newest_of_each_kind_stay() -> None:
    pruned = runs_to_prune([*reversed(DONE), *FAILED], max_done=3, max_failed=4)
    assert pruned == ["20250101_000000", "20250101_120000", "20250102_000000"]


def test_none_keeps_all_and_zero_keeps_none() -> None:
    assert runs_to_prune(DONE, max_done=None, max_failed=0) == []
    assert runs_to_prune(DONE[:2], max_done=0, max_failed=None) == [run.run_id for run in DONE[:2]]


def test_a_suffix_is_a_number_not_a_text() -> None:
    runs = [FinishedRun(f"20250101_000000{suffix}", False) for suffix in (".10", "", ".9")]
    assert runs_to_prune(runs, max_done=1, max_failed=1) == ["20250101_000000", "20250101_000000.9"]


def test_a_run_that_must_stay_stays_and_so_does_a_directory_that_is_no_run() -> None:
    runs = [*DONE, FinishedRun("my-notes", False)]
    assert runs_to_prune(runs, max_done=0, max_failed=0, keep=[run.run_id for run in DONE[1:]]) == [
        "20250101_000000"
    ]


@given(st.sets(st.sampled_from(DONE + FAILED)), limits, limits)
def test_the_runs_that_are_left_are_within_the_limits_and_newer(
    runs: set[FinishedRun], max_done: int | None, max_failed: int | None
) -> None:
    pruned = set(runs_to_prune(runs, max_done=max_done, max_failed=max_failed))
    for failed, limit in ((False, max_done), (True, max_failed)):
        of_kind = sorted(run.run_id for run in runs if run.failed is failed)
        left = [run_id for run_id in of_kind if run_id not in pruned]
        expected = len(of_kind) if limit is None else min(limit, len(of_kind))
        assert left == of_kind[len(of_kind) - expected :]
