"""Owns what is refused as a variable of a job's environment, at the call that gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tenuto import CommandTask, experiment
from tenuto.errors import ParameterError
from tenuto.tasks.arguments import check_variable
from tenuto.tasks.live import seal

BAD = [
    ("", "x"),
    ("A=B", "x"),
    ("A\0", "x"),
    ("A", "x\0y"),
    ("A", None),
    (3, "x"),
    (b"A", "x"),
    ("A", "\ud800"),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_what_no_process_can_have_is_refused_at_the_call(tmp_path: Path, name: Any, value: Any) -> None:
    """Such a job was LOST, with a hint that its runner had been killed."""
    with pytest.raises(ValueError, match=r"variable|text"):
        check_variable(name, value)
    with experiment(tmp_path, "e") as xp, pytest.raises(ParameterError, match="setenv"):
        xp.setenv(name, value)


def test_a_command_with_such_a_variable_is_refused_before_it_is_submitted() -> None:
    with pytest.raises(ParameterError, match="A=B"):
        seal(CommandTask.C(command=["true"], environment={"A=B": "x"}))


def test_other_variables_pass() -> None:
    given = {"A": "", "ÄÖ": "1\n2\udcff"}
    for name, value in given.items():
        check_variable(name, value)
    task = CommandTask.C(command=["true"], environment=given)
    seal(task)
    assert task.environment == given
