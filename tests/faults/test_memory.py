"""Jobs that take too much memory (F27)."""

from __future__ import annotations

from pathlib import Path

from tenuto.launchers.instructions import Limits
from tenuto.lifecycle.states import JobFailureStatus, JobState

from .builders import WAIT_S, Bench, failure
from .tasks_for_faults import Greedy

MEGABYTE = 1 << 20


def test_a_job_over_its_memory_limit_fails_for_that_reason(tmp_path: Path) -> None:
    """By a control group where one can be made, else by a limit on the process."""
    with Bench(tmp_path / "ws") as bench:
        task = Greedy.C(megabytes=600, started=tmp_path / "started")
        job = bench.task(task, limits=Limits(memory_bytes=150 * MEGABYTE), retries=2)
        assert failure(job)[0] is JobFailureStatus.MEMORY
        assert (tmp_path / "started").exists()
        assert job.attempt == 1


def test_a_job_within_its_memory_limit_is_left_alone(tmp_path: Path) -> None:
    with Bench(tmp_path / "ws") as bench:
        task = Greedy.C(megabytes=20, started=tmp_path / "started")
        job = bench.task(task, limits=Limits(memory_bytes=300 * MEGABYTE))
        assert job.wait(WAIT_S) is JobState.DONE
