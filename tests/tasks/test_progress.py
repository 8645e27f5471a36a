"""Owns what a task may say of its progress."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tenuto import progress, tqdm
from tenuto.tasks.ports import JobContext, current_job


class Heard:
    """A job that remembers what it was told."""

    def __init__(self) -> None:
        self.said: list[tuple[float, int, str | None]] = []

    def progress(self, value: float, level: int, desc: str | None) -> None:
        self.said.append((value, level, desc))


@pytest.fixture
def heard() -> Any:
    job = Heard()
    token = current_job.set(cast("JobContext", job))
    yield job
    current_job.reset(token)


def test_outside_of_a_job_progress_is_heard_by_nobody() -> None:
    progress(0.5)
    assert list(tqdm([1, 2])) == [1, 2]


def test_progress_reaches_the_job(heard: Heard) -> None:
    progress(0.25, desc="epoch 1")
    progress(0.5, 1)
    assert heard.said == [(0.25, 0, "epoch 1"), (0.5, 1, None)]


def test_a_loop_reports_what_is_done(heard: Heard) -> None:
    assert list(tqdm("ab", "letters", level=1)) == ["a", "b"]
    assert heard.said == [(0.0, 1, "letters"), (0.5, 1, "letters"), (1.0, 1, "letters")]


def test_a_loop_without_a_length_reports_nothing_unless_told(heard: Heard) -> None:
    assert list(tqdm(iter("ab"))) == ["a", "b"]
    assert heard.said == []
    assert list(tqdm(iter("ab"), total=4)) == ["a", "b"]
    assert [value for value, _, _ in heard.said] == [0.0, 0.25, 0.5]
