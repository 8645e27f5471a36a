"""Work is spread over processes and comes back in its order; a process that dies is told."""

from __future__ import annotations

import os
import time
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

import pytest

from proof import nth, theatres
from proof.report import Options, Report
from proof.spread import spread


def _slow_first(number: int) -> tuple[int, int]:
    if number == 0:
        time.sleep(0.2)
    return number, os.getpid()


def _dying(number: int) -> int:
    os._exit(7)


@pytest.mark.parametrize("workers", [1, 2, 9])
def test_results_come_in_the_order_of_the_work(workers: int) -> None:
    found = list(spread(_slow_first, range(5), workers))
    assert [number for number, _ in found] == list(range(5))
    assert ({pid for _, pid in found} == {os.getpid()}) is (workers == 1)


def test_no_work_needs_no_process() -> None:
    assert list(spread(_slow_first, [], 4)) == []


def test_a_worker_that_dies_is_an_error_and_no_hang() -> None:
    with pytest.raises(BrokenProcessPool):
        list(spread(_dying, range(3), 2))


@pytest.mark.slow
def test_a_proof_says_the_same_however_many_workers_it_has() -> None:
    one, two = (_timeless(nth.run(Options(small=True, planted=False, workers=workers))) for workers in (1, 2))
    assert one == two
    assert one.good


def _timeless(report: Report) -> Report:
    """A report without what differs from run to run: times, and the numbers of processes in messages."""
    return replace(
        report,
        seconds=0.0,
        cases=tuple(replace(case, seconds=0.0) for case in report.cases),
        planted=tuple(replace(bug, seconds=0.0, how="") for bug in report.planted),
    )


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_theatres_tell_of_cases_in_their_order(count: int, tmp_path: Path) -> None:
    cases = [{"number": number} for number in range(5)]
    results = theatres.play("tests.proof.echoing", cases, tmp_path, count, "--loud")
    assert results == [{"number": number, "flags": ["--loud"]} for number in range(5)]


def test_a_theatre_that_fails_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ended with exit code 3"):
        theatres.play("tests.proof.echoing", [{"number": 1}], tmp_path, 1, "--fail")
