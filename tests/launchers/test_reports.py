"""Owns how the reports of a task reach the journal: thinned out, of the first rank only, and harmless."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenuto.launchers import results
from tenuto.launchers.payload import python_task
from tenuto.launchers.payload.assignment import Assignment
from tenuto.launchers.payload.progress_reports import RANK_VARIABLES, ProgressReports, rank
from tenuto.launchers.payload.report import ReportWriter, open_report, read_report
from tenuto.lifecycle.events import JobProgressEvent
from tenuto.testing.clock import FakeClock
from tenuto.testing.jobs import TASK_ID, JobBench, ReadyJob
from tenuto.workspace.flags import RESULT_NOT_KEPT
from tenuto.workspace.journal import EventReader

TaskBuilder = Callable[..., ReadyJob]


@pytest.fixture(autouse=True)
def no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def reports(bench: JobBench, clock: FakeClock) -> ProgressReports:
    job = bench.command("true")
    job.release()
    return ProgressReports(
        Assignment(
            job.paths.directory,
            job.paths.script_name,
            bench.layout.root,
            TASK_ID,
            job.job_id,
            job.launch.attempt,
            machine=bench.machine._replace(clock=clock),
        )
    )


@pytest.fixture
def heard(bench: JobBench) -> Callable[[], list[tuple[float, int]]]:
    def heard() -> list[tuple[float, int]]:
        entries = EventReader(
            bench.machine.files, bench.layout.job_journal(TASK_ID, bench.jobs[-1].job_id)
        ).read()
        return [
            (entry.event.progress, entry.event.level)
            for entry in entries
            if isinstance(entry.event, JobProgressEvent)
        ]

    return heard


def test_reports_are_thinned_out_and_the_last_one_is_kept(
    reports: ProgressReports, heard: Any, clock: FakeClock
) -> None:
    for step in range(1000):
        reports.report(step / 1000, 0, None)
        clock.advance(0.001)
    reports.close()
    assert [value for value, _ in heard()] == [0.0, 0.2, 0.4, 0.6, 0.8, 0.999]


def test_an_inner_loop_that_ends_over_and_over_is_thinned_out_too(
    reports: ProgressReports, heard: Any, clock: FakeClock
) -> None:
    for _ in range(500):
        reports.report(1.0, 1, None)
        clock.advance(0.002)
    assert 4 <= len(heard()) <= 6


def test_the_end_is_told_at_once_and_once(reports: ProgressReports, heard: Any) -> None:
    for value in (0.5, 1.0, 1.0, 1.0):
        reports.report(value, 0, None)
    assert heard() == [(0.5, 0), (1.0, 0)]


@pytest.mark.slow
def test_the_journal_of_a_job_of_many_days_stays_small(
    reports: ProgressReports, heard: Any, clock: FakeClock
) -> None:
    for step in range(3 * 24 * 360):
        reports.report(step / 1e6, 0, None)
        clock.advance(5.0)
        reports.report(step / 1e6, 0, None)
        clock.advance(5.0)
    assert len(heard()) < 3 * 24 * 360 + 2000


def test_an_outer_loop_is_found_behind_many_reports_of_an_inner_one(
    reports: ProgressReports, heard: Any, clock: FakeClock
) -> None:
    reports.report(0.25, 0, "epoch")
    for step in range(100):
        reports.report(step / 100, 1, "batch")
        clock.advance(0.3)
    assert heard()[-21:].count((0.25, 0)) >= 1
    assert heard()[-1] == (0.99, 1)


@pytest.mark.parametrize(("value", "told"), [(-1, 0.0), (7, 1.0), (float("nan"), 0.0), (True, 1.0)])
def test_any_number_is_taken(reports: ProgressReports, heard: Any, value: float, told: float) -> None:
    reports.report(value, 0, None)
    assert heard() == [(told, 0)]


@pytest.mark.parametrize("name", RANK_VARIABLES)
def test_only_the_first_process_of_a_distributed_job_reports(
    reports: ProgressReports, heard: Any, monkeypatch: pytest.MonkeyPatch, name: str, clock: FakeClock
) -> None:
    monkeypatch.setenv(name, "3")
    reports.report(0.5, 0, None)
    reports.close()
    assert heard() == []
    monkeypatch.setenv(name, "0")
    clock.advance(1.0)
    reports.report(0.75, 0, None)
    assert heard() == [(0.75, 0)]


def test_the_rank_in_the_whole_program_outranks_that_on_a_node() -> None:
    assert rank({"RANK": "0", "LOCAL_RANK": "2", "SLURM_PROCID": "1"}) == 0
    assert rank({"RANK": "", "SLURM_PROCID": "4"}) == 4
    assert rank({"RANK": "first", "OMPI_COMM_WORLD_RANK": "²"}) == 0
    assert rank({}) == 0


def test_a_job_started_as_another_rank_says_nothing(
    task: TaskBuilder, ended: Callable[..., Any], heard: Any
) -> None:
    body = """
    from tenuto import progress, tqdm
    progress(0.5)
    return list(tqdm([1, 2]))
    """
    assert ended(task(body, environment={"RANK": "1"})).result == [1, 2]
    assert heard() == []
    assert ended(task(body, environment={"RANK": "0"})).result == [1, 2]
    assert heard() != []


def test_a_result_that_nobody_could_read_again_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A task that returned 300 MB was done, and its result raised for ever."""
    monkeypatch.setattr("tenuto.launchers.payload.report.STORED_RESULT_LIMIT", 1000)
    fd = open_report()
    try:
        reporter = ReportWriter(fd)
        with pytest.raises(ValueError, match="at most 1,000 are kept: write it to a file"):
            reporter.done(["x" * 2000])
        assignment = Assignment(str(tmp_path), "task", str(tmp_path), TASK_ID, "ab12", 1)
        python_task._report_result(
            assignment, reporter, object(), ["x" * 2000], python_task._Cancellation(assignment)
        )
        said = read_report(fd)
        assert said.done
        assert said.flags == (RESULT_NOT_KEPT,)
        assert "at most 1,000 are kept" in str(said.message)
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("error", "why"), [(OSError(errno.ENOSPC, "No space"), "DISK_FULL: "), (MemoryError(), "MemoryError")]
)
def test_a_result_that_the_machine_does_not_take_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    """The job failed, with all its work done."""

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(results.Encoder, "_in_file", refuse)
    fd = open_report()
    try:
        assignment = Assignment(str(tmp_path), "task", str(tmp_path), TASK_ID, "ab12", 1)
        cancellation = python_task._Cancellation(assignment)
        python_task._report_result(assignment, ReportWriter(fd), object(), {1j: object()}, cancellation)
        said = read_report(fd)
        assert (said.done, said.flags) == (True, (RESULT_NOT_KEPT,))
        assert f"returned something that cannot be kept: {why}" in str(said.message)
    finally:
        os.close(fd)
