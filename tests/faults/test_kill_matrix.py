"""Schedulers, runners and payloads killed before each of their operations (F01, F02, F04, F35).

`proof.matrix` has the steps, the cases and the judge; `make prove` plays all of them, and this a part.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proof.matrix import cases as matrix
from proof.matrix.case import FAILED
from proof.matrix.cases import KINDS
from proof.matrix.external_cases import CLUSTER, LOST, MENDING, ORDERS, PENDING, RUNNING
from proof.matrix.kinds import AT_WORK, Fields, different
from proof.matrix.proving import SMALL, play, strikes, traced
from proof.matrix.steps import (
    ADOPTING,
    ADOPTING_ELSEWHERE,
    EXTERNAL_PAYLOAD,
    EXTERNAL_RUNNER,
    EXTERNAL_SCHEDULER,
    FAILING_RUNNER,
    FRESH_PAYLOAD,
    FRESH_RUNNER,
    FURTHER_RUNNER,
    LATE_RUNNER,
    OVERTAKING,
    PARENT,
    PAYLOAD,
    QUEUED_SCHEDULER,
    RECOVERING,
    RECOVERING_ELSEWHERE,
    REVOKING_SCHEDULER,
    RUNNER,
    SCHEDULER,
    SCHEDULER_AGAIN,
    SPARE_PAYLOAD,
    SPARE_RUNNER,
    STOPPED_RUNNER,
    STOPPING_SCHEDULER,
    TAKING_OVER,
    TAKING_OVER_ELSEWHERE,
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
    steps = traced({**AT_WORK, **more}, tmp_path)
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


def test_the_tables_name_every_step_of_a_job_that_a_cluster_starts(tmp_path: Path) -> None:
    steps = traced(CLUSTER, tmp_path)
    assert without_mending(steps("scheduler-parent")) == EXTERNAL_SCHEDULER
    assert steps("runner-parent") == EXTERNAL_RUNNER
    assert sorted(steps("runner-child")) == sorted(EXTERNAL_PAYLOAD)  # in the order of descriptors' numbers


@pytest.mark.parametrize(
    ("case", "scheduler", "runner"),
    [
        ({**CLUSTER, "end": FAILED}, EXTERNAL_SCHEDULER, FAILING_RUNNER),
        (RUNNING, STOPPING_SCHEDULER, STOPPED_RUNNER),
    ],
    ids=["failing", "cancelled"],
)
def test_the_tables_name_every_step_of_a_job_in_a_cluster_that_does_not_end_well(
    tmp_path: Path, case: Fields, scheduler: list[str], runner: list[str]
) -> None:
    steps = traced(case, tmp_path)
    assert without_mending(steps("scheduler-parent")) == scheduler
    assert steps("runner-parent")[: len(runner)] == runner, "then come those of the next scheduler's attempt"


def test_the_tables_name_every_step_of_a_job_that_is_cancelled_while_it_is_pending(tmp_path: Path) -> None:
    steps = traced(PENDING, tmp_path)
    assert steps("scheduler-parent") == REVOKING_SCHEDULER


def test_the_tables_name_every_step_of_a_runner_that_takes_a_further_order(tmp_path: Path) -> None:
    steps = traced(ORDERS, tmp_path)
    assert steps("runner-parent") == [*FURTHER_RUNNER, *LATE_RUNNER]


def test_the_tables_name_every_step_of_an_adoption_in_a_cluster(tmp_path: Path) -> None:
    steps = traced({**CLUSTER, **AT_WORK}, tmp_path)
    assert steps("second-parent")[: len(ADOPTING_ELSEWHERE)] == ADOPTING_ELSEWHERE, "then it waits"


def test_the_tables_name_every_step_after_a_runner_of_a_cluster_is_lost_that_was_adopted(
    tmp_path: Path,
) -> None:
    steps = traced({**CLUSTER, **LOST}, tmp_path)("second-parent")
    seen = [step for step in steps if not step.startswith(("read", "look"))]
    assert without_mending(seen) == RECOVERING_ELSEWHERE


def test_the_tables_name_every_step_after_an_attempt_that_no_cluster_has(tmp_path: Path) -> None:
    steps = traced({**CLUSTER, "scheduler": "close manifest"}, tmp_path)
    assert without_mending(steps("second-parent")) == TAKING_OVER_ELSEWHERE


def without_mending(steps: list[str]) -> list[str]:
    """Without the look whether a runner, which has just written its marker, will write the status, too."""
    looked = [steps[at + 1 : at + 2] == MENDING[:1] for at in range(len(steps))]  # before the lock: mkdir
    return [
        step for step, is_before in zip(steps, looked, strict=True) if not is_before and step not in MENDING
    ]


def test_the_matrix_is_as_large_as_promised() -> None:
    everything = [case for kind in KINDS.values() for case in kind.all()]
    assert len(different(everything)) >= 5_000
    assert SMALL - len(KINDS) < len(different(PLAYED)) == len(PLAYED) <= SMALL
    assert min(map(len, matrix.sampled(SMALL).values())) >= 5, "cases of every kind"
    assert [case for case in CERTAIN if case not in PLAYED] == []
    assert {name for name, kind in KINDS.items() if kind.certain()} == set(KINDS)


def test_the_played_cases_of_the_matrix_strike_every_operation_of_every_process() -> None:
    everything = [case for kind in KINDS.values() if kind.few is None for case in kind.all()]
    assert {blow for case in PLAYED for blow in matrix.blows(case)} >= {
        blow for case in everything for blow in matrix.blows(case)
    }


def test_the_played_cases_of_the_matrix_strike_the_claim_of_a_runner_in_a_cluster() -> None:
    played = {blow for case in PLAYED for blow in matrix.blows(case)}
    assert {("runner", step) for step in ("open claim", "write claim", "close claim")} <= played


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
