"""Owns how large a benchmark run is: which sizes, and what is left out for want of time."""

from __future__ import annotations

import pytest

from bench.scale import Budget, Limits, Scale, Sizes


def budget(total_s: float = 100.0, cell_s: float = 10.0, slowness: float = 1.0) -> Budget:
    return Budget(Limits(total_s, cell_s), slowness=slowness, now=0.0)


def test_the_large_scale_adds_to_the_full_one() -> None:
    sizes = Sizes((1,), (2,), (3, 4), (5,))
    assert [sizes.at(scale) for scale in Scale] == [(1,), (2,), (3, 4), (3, 4, 5)]


def test_what_the_rest_of_the_time_does_not_allow_is_left_out_and_named() -> None:
    run = budget(total_s=100)
    assert run.affords("W1", "warm", 10, 50, now=40)
    assert not run.affords("W1", "warm", 1_000, 61, now=40)
    assert not run.affords("W1", "spawn", 10, 61, now=40)
    assert run.left_out == ["W1, no time was left: warm (1,000); spawn (10)"]


def test_on_a_slow_machine_less_fits() -> None:
    assert not budget(slowness=3.0).affords("W1", "warm", 10, 40, now=0)
    assert budget(slowness=0.5).affords("W1", "warm", 10, 100, now=0)


def test_a_workload_has_a_share_which_only_its_smallest_size_may_exceed() -> None:
    run = budget(total_s=100)
    run.begin(0.2, now=50)
    assert run.affords("W1", "warm", 1_000, 19, now=50)
    assert not run.affords("W1", "warm", 1_000, 10, now=61)
    assert run.affords("W1", "spawn", 10, 10, smallest=True, now=61)
    assert not run.affords("W1", "spawn", 10, 10, smallest=True, now=91)


@pytest.mark.parametrize(
    ("job_s", "fitting", "left_out"),
    [
        (0.001, [100, 1_000], []),
        (0.01, [10, 100], ["W2, takes more than 10 s: slow (1,000)"]),
        (0.2, [10], ["W2, takes more than 10 s: slow (1,000, 100)"]),
        (9.0, [], ["W2, takes more than 10 s: slow (1,000, 100, 10)"]),
    ],
)
def test_a_peer_runs_at_the_two_largest_sizes_that_fit(
    job_s: float, fitting: list[int], left_out: list[str]
) -> None:
    run = budget(cell_s=10)
    found = run.fitting("W2", "slow", (10, 100, 1_000), start_s=0.1, job_s=job_s, repetitions=3)
    assert found == fitting
    assert run.left_out == left_out


def test_a_workload_without_a_size_is_named_alone() -> None:
    run = budget()
    run.leave_out("W3", "does not remember what it did", "Dask")
    run.leave_out("W3", "does not remember what it did", "submitit")
    assert run.left_out == ["W3, does not remember what it did: Dask; submitit"]
