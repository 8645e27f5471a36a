"""An operator sets the clock while jobs run (F20): nothing times out, nothing is reordered."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tenuto.clock import SystemClock
from tenuto.launchers.instructions import Limits
from tenuto.lifecycle.states import JobState
from tenuto.workspace.machine import this_machine

from .builders import WAIT_S, Bench, eventually, ledger, lines, oracle

S = JobState
DAY_S = 86_400.0


class JumpingClock(SystemClock):
    """The clock of this machine, set wrong by so much; time itself goes on as it does."""

    def __init__(self) -> None:
        self.wrong_by_s = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.wrong_by_s)


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S, 3600.0, -3600.0])
def test_a_clock_that_jumps_while_a_job_runs_changes_nothing(tmp_path: Path, jump_s: float) -> None:
    started, gate = tmp_path / "started", tmp_path / "gate"
    os.mkfifo(gate)
    clock = JumpingClock()
    with Bench(tmp_path / "ws", machine=this_machine()._replace(clock=clock)) as bench:
        limits = Limits(walltime_s=50.0)
        job = bench.shell("job", 'echo $$ >> "$1"; cat < "$2"', started, gate, limits=limits)
        dependent = bench.command("dependent", *oracle(tmp_path / "dependent"), needs=[job])
        eventually(lambda: lines(started), "the job to begin")
        eventually(lambda: job.state is S.RUNNING, "the job to run")
        clock.wrong_by_s = jump_s
        later = bench.command("later", *oracle(tmp_path / "later"))
        assert later.wait(WAIT_S) is S.DONE
        assert (job.state, dependent.state) == (S.RUNNING, S.WAITING)
        with gate.open("w"):
            pass
        bench.wait()
        bench.scheduler.drain()
        assert (job.state, dependent.state) == (S.DONE, S.DONE)
        assert bench.owner.history["dependent"][-1] is S.DONE
        assert job.attempt == dependent.attempt == 1
        assert job.starttime is not None
        assert job.endtime is not None
        assert 0.0 <= (job.endtime - job.starttime).total_seconds() < WAIT_S


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S])
def test_a_scheduler_with_another_clock_adopts_and_retries_all_the_same(
    tmp_path: Path, jump_s: float
) -> None:
    """Attempts are told apart by number and nonce, and processes by the kernel's ticks, not by the time."""
    clock = JumpingClock()
    with Bench(tmp_path / "ws") as bench:
        assert bench.shell("failed", "exit 1").wait(WAIT_S) is S.ERROR
        assert bench.command("done", *oracle(tmp_path / "done")).wait(WAIT_S) is S.DONE
    clock.wrong_by_s = jump_s
    with Bench(tmp_path / "ws", machine=this_machine()._replace(clock=clock)) as bench:
        again = bench.shell("failed", "exit 0")
        done = bench.command("done", *oracle(tmp_path / "done"))
        assert again.wait(WAIT_S) is S.DONE
        assert done.wait(WAIT_S) is S.DONE
        assert (again.attempt, done.attempt) == (2, 1)
    assert ledger(tmp_path / "done") == ["start", "end"]
