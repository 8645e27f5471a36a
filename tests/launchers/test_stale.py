"""Pids, files and locks of the past decide nothing (F05, F06, F07)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tenuto.launchers.protocols import Launcher
from tenuto.launchers.runner.runner_protocol import STALE
from tenuto.testing.contracts.launchers import started, stopped
from tenuto.testing.jobs import JobBench, ReadyJob
from tenuto.workspace.job_directory import read_pid
from tenuto.workspace.markers import Marker

Ended = Callable[[ReadyJob], Marker]
Run = Callable[..., Any]
Exited = Callable[..., bool]


def test_f05_a_reused_pid_is_neither_alive_nor_signalled(
    bench: JobBench, launcher: Launcher, run: Run
) -> None:
    """Another process has the pid of the record: this one."""
    job = bench.command("sleep", "1000000")

    async def scenario() -> None:
        process = await started(launcher, job)
        pid = read_pid(bench.machine.files, job.paths, 1)
        assert pid is not None
        await stopped(job, process)
        mine = bench.machine.processes.own()
        reused = pid._replace(identity=pid.identity._replace(pid=mine.pid))
        assert reused.identity.start_time != mine.start_time
        assert launcher.find(job.paths, job.launch, reused) is None

    run(scenario())


def test_f06_files_of_a_dead_past_do_not_stop_a_start(bench: JobBench, ended: Ended) -> None:
    job = bench.command("true")
    job.release()
    Path(job.paths.pid).write_text("12345")
    Path(job.paths.stop).write_text('{"attempt": 1, "reason": "CANCELLED"')
    Path(job.paths.status).write_text("")
    job.open_attempt()
    assert ended(job).reason is None


def test_a_lock_that_is_not_held_makes_a_runner_stale(
    bench: JobBench, launcher: Launcher, run: Run, exited: Exited
) -> None:
    """F07: the lock file was replaced between the attempt's opening and the start of its runner."""
    job = bench.command("true")
    os.unlink(job.paths.lock)
    Path(job.paths.lock).touch()

    async def scenario() -> None:
        process = await launcher.start(job.order)
        assert not await process.confirmed()
        await process.wait()
        process.close()
        assert exited(process, STALE)

    run(scenario())
    job.release()
    assert not job.has_marker()
