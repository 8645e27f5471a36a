"""Owns that an agent does its tasks within their budgets, by the commands of the skill."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.agents import TASKS, Budget, Outcome, done

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(300)]


@pytest.mark.parametrize("task", TASKS)
def test_a_task_takes_no_more_than_its_budget(task: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o711)
    outcome = done(task, tmp_path)
    assert outcome.is_good, outcome
    assert outcome.size > 0


def test_a_task_over_its_budget_or_broken_is_not_good() -> None:
    assert Outcome("t", 1, 100, Budget(1, 100)).is_good
    assert not Outcome("t", 2, 100, Budget(1, 100)).is_good
    assert not Outcome("t", 1, 101, Budget(1, 100)).is_good
    assert not Outcome("t", 1, 1, Budget(1, 100), "Missed: not told").is_good


def test_there_are_twelve_tasks() -> None:
    assert len(TASKS) == 12
