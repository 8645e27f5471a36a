"""Schedulers, runners and payloads killed before each of their operations (F01, F02, F04, F35).

`proof.matrix` has the steps, the cases and the judge; `make prove` plays all of them, and this a part.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proof.matrix import cases as matrix
from proof.matrix.cases import KINDS, Fields
from proof.matrix.proving import SMALL, play, strikes, traced
from proof.matrix.steps import (
    ADOPTING,
    FRESH_PAYLOAD,
    FRESH_RUNNER,
    OVERTAKING,
    PARENT,
    PAYLOAD,
    QUEUED_SCHEDULER,
    RECOVERING,
    RUNNER,
    SCHEDULER,
    SCHEDULER_AGAIN,
    SPARE_PAYLOAD,
    SPARE_RUNNER,
    TAKING_OVER,
    TOKEN_PARENT,
    TOKEN_PAYLOAD,
    TOKEN_SCHEDULER,
    TOKEN_WARM_SCHEDULER,
    WARM_RUNNER,
    WARM_SCHEDULER,
)

PLAYED = [case for cases in matrix.sampled(SMALL).values() for case in cases]
CERTAIN = [case for kind in KINDS.values() for case in kind.certain()]
PARTS = 6
BOTH = pytest.mark.parametrize("launcher", ["direct", "warm"])


def problems(cases: list[Fields], results: list[dict[str, Any]]) -> str:
    """The results of cases that went wrong, as text."""
    assert len(results) == len(cases)
    wrong = [
        {**result, "case": {name: value for name, value in result["case"].items() if value}}
        for result in results
        if result["problems"]
    ]
    return "\n".join(json.dumps(result, indent=1) for result in wrong)


# -- the tables -------------------------------------------------------------------------------------


@BOTH
def test_the_tables_name_every_step_there_is(tmp_path: Path, launcher: str) -> None:
    steps = traced({"launcher": launcher}, tmp_path)
    is_warm = launcher == "warm"
    assert steps("scheduler-parent") == (WARM_SCHEDULER if is_warm else SCHEDULER)
    assert steps("runner-parent") == (WARM_RUNNER if is_warm else RUNNER)
    assert sorted(steps("runner-child")) == sorted(PAYLOAD)  # in the order of the descriptors' numbers
    if is_warm:
        assert steps("runner-warm") == PARENT


def test_the_tables_name_every_step_of_a_task_in_a_fresh_interpreter(tmp_path: Path) -> None:
    steps = traced({"launcher": "spawn"}, tmp_path)
    assert steps("scheduler-parent") == WARM_SCHEDULER
    assert steps("runner-warm") == PARENT
    assert steps("runner-parent") == FRESH_RUNNER
    assert steps("runner-child") == FRESH_PAYLOAD


def test_the_tables_name_every_step_of_a_task_that_starts_from_a_spare(tmp_path: Path) -> None:
    steps = traced({"launcher": "spare"}, tmp_path)
    assert steps("scheduler-parent") == SCHEDULER
    assert steps("runner-parent") == SPARE_RUNNER
    assert steps("runner-child") == SPARE_PAYLOAD


def test_the_tables_name_every_step_of_another_attempt(tmp_path: Path) -> None:
    steps = traced({"again": True}, tmp_path)
    assert steps("scheduler-parent") == SCHEDULER_AGAIN
    assert steps("runner-parent") == RUNNER
    assert steps("runner-child") == PAYLOAD


@BOTH
def test_the_tables_name_every_step_of_a_job_with_a_token(tmp_path: Path, launcher: str) -> None:
    steps = traced({"launcher": launcher, "token": True}, tmp_path)
    is_warm = launcher == "warm"
    assert steps("scheduler-parent") == (TOKEN_WARM_SCHEDULER if is_warm else TOKEN_SCHEDULER)
    assert steps("runner-parent") == (WARM_RUNNER if is_warm else RUNNER)
    assert sorted(steps("runner-child")) == sorted(TOKEN_PAYLOAD)  # in the order of the descriptors' numbers
    if is_warm:
        assert steps("runner-warm") == TOKEN_PARENT


def test_the_tables_name_every_step_of_a_job_that_queues_for_a_token(tmp_path: Path) -> None:
    steps = traced({"token": True, "busy": True}, tmp_path)
    assert steps("scheduler-parent") == QUEUED_SCHEDULER


@pytest.mark.parametrize("more", [{}, {"launcher": "warm"}, {"token": True}], ids=str)
def test_the_tables_name_every_step_of_an_adoption(tmp_path: Path, more: Fields) -> None:
    steps = traced({**matrix.AT_WORK, **more}, tmp_path)
    assert steps("second-parent") == ADOPTING


def test_the_tables_name_every_step_after_a_runner_is_lost_that_was_adopted(tmp_path: Path) -> None:
    steps = traced(matrix.LOST, tmp_path)("second-parent")
    assert [step for step in steps if not step.startswith(("read", "look"))] == RECOVERING


def test_the_tables_name_every_step_of_a_start_that_another_began(tmp_path: Path) -> None:
    steps = traced({"scheduler": "posix_spawn"}, tmp_path)
    assert steps("second-parent") == TAKING_OVER


def test_the_tables_name_every_step_of_a_scheduler_that_overtakes_another(tmp_path: Path) -> None:
    steps = traced({"scheduler": "mkdir .tenuto #3", "blow": "pause"}, tmp_path)
    assert steps("second-parent") == OVERTAKING


def test_the_matrix_is_as_large_as_promised() -> None:
    everything = [case for kind in KINDS.values() for case in kind.all()]
    assert len(matrix.different(everything)) >= 4_000
    assert SMALL - len(KINDS) < len(matrix.different(PLAYED)) == len(PLAYED) <= SMALL
    assert min(map(len, matrix.sampled(SMALL).values())) >= 5, "cases of every kind"
    assert [case for case in CERTAIN if case not in PLAYED] == []
    assert {name for name, kind in KINDS.items() if kind.certain()} == set(KINDS)


def test_the_played_cases_of_the_matrix_strike_every_operation_of_every_process() -> None:
    everything = [case for kind in KINDS.values() for case in kind.all()]
    assert {blow for case in PLAYED for blow in matrix.blows(case)} == {
        blow for case in everything for blow in matrix.blows(case)
    }


# -- the cases --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.watchdog(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_job_survives_a_kill_at_every_step(part: int, tmp_path: Path) -> None:
    """And the blows fall that are certain to."""
    cases = PLAYED[part::PARTS]
    results = play(cases, tmp_path, 1)
    assert problems(cases, results) == ""
    missed = [
        case for case, one in zip(cases, results, strict=True) if len(one["struck"]) < len(strikes(one))
    ]
    assert [case for case in missed if case in CERTAIN] == []
