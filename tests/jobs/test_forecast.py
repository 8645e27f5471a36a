"""Owns the guess of how long work will take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.experiments.overview import ForecastJob, Running, makespan, remaining_s


@pytest.mark.parametrize(
    ("steps", "slots", "expected"),
    [
        ([], 2, 0),
        ([ForecastJob("a", 3), ForecastJob("b", 2)], 2, 3),
        ([ForecastJob("a", 3), ForecastJob("b", 2)], 1, 5),
        ([ForecastJob("a", 3), ForecastJob("b", 2, ("a",))], 2, 5),
        ([ForecastJob("a", 3), ForecastJob("b", 2, ("done before",))], 2, 3),
        (
            [
                ForecastJob("a", 1),
                ForecastJob("b", 5),
                ForecastJob("c", 1, ("a",)),
                ForecastJob("d", 1, ("b", "c")),
            ],
            2,
            6,
        ),
    ],
)
def test_work_is_scheduled_in_thought(steps: list[ForecastJob], slots: int, expected: float) -> None:
    assert makespan(steps, {"": slots}) == expected


def test_each_launcher_has_slots_of_its_own() -> None:
    steps = [
        ForecastJob("a", 3, launcher="x"),
        ForecastJob("b", 3, launcher="y"),
        ForecastJob("c", 3, launcher="y"),
    ]
    assert makespan(steps, {"x": 1, "y": 1}) == 6


@given(
    st.lists(st.tuples(st.integers(0, 100), st.lists(st.integers(0, 20), max_size=3)), max_size=20),
    st.integers(1, 5),
)
def test_a_forecast_lies_between_the_critical_path_and_one_after_the_other(
    work: list[tuple[int, list[int]]], slots: int
) -> None:
    steps = [
        ForecastJob(str(i), float(took), tuple(str(n) for n in needs if n < i))
        for i, (took, needs) in enumerate(work)
    ]
    longest: dict[str, float] = {}
    for step in steps:
        longest[step.key] = step.duration_s + max((longest[need] for need in step.needs), default=0.0)
    total = sum(step.duration_s for step in steps)
    least = max([total / slots, *longest.values()])
    assert least - 1e-6 <= makespan(steps, {"": slots}) <= total + 1e-6


def test_many_jobs_are_no_problem() -> None:
    chain = [ForecastJob(str(i), 1.0, (str(i - 1),) if i % 2 else ()) for i in range(10_000)]
    assert makespan(chain, {"": 100}) == 100


@pytest.mark.parametrize(
    ("unstarted", "running", "expected", "slots", "left"),
    [
        ({}, [], {}, 2, None),
        ({"a": 4}, [], {"a": None}, 2, None),
        ({"a": 4}, [], {"a": 3.0}, 2, 6.0),
        ({"a": 2, "b": 2}, [], {"a": 3.0, "b": None}, 1, 12.0),
        ({}, [Running("a", 2.0)], {"a": 10.0}, 4, 8.0),
        ({}, [Running("a", 12.0)], {"a": 10.0}, 4, 0.0),
        ({"a": 1}, [Running("a", 5.0, left_s=5.0)], {"a": None}, 1, 15.0),
        ({"a": 1}, [Running("b", 0.0, left_s=90.0)], {"a": 1.0, "b": 2.0}, 8, 90.0),
    ],
)
def test_the_time_left_is_guessed_from_jobs_that_ended_and_jobs_that_run(
    unstarted: dict[str, int],
    running: list[Running],
    expected: dict[str, float | None],
    slots: int,
    left: float | None,
) -> None:
    assert remaining_s(unstarted, running, expected, slots) == left
