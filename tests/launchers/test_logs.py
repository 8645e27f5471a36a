"""Too much output, or output that is not text, on a bounded disk (F21, F22)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenuto.launchers.instructions import Limits
from tenuto.launchers.protocols import Launcher
from tenuto.testing.contracts.launchers import started, stopped
from tenuto.testing.jobs import JobBench, ReadyJob
from tenuto.workspace.markers import Marker

Ended = Callable[[ReadyJob], Marker]
Until = Callable[..., Any]
Run = Callable[..., Any]


def allocated(path: str) -> int:
    return os.stat(path).st_blocks * 512


def test_f21_output_is_bounded_on_disk_and_its_head_and_tail_stay(bench: JobBench, ended: Ended) -> None:
    cap = 1 << 20
    program = "print('the head')\nfor n in range(200): print('x' * (1 << 20), end='')\nprint('the tail')"
    job = bench.command(sys.executable, "-c", program, limits=Limits(log_bytes=cap))
    marker = ended(job)
    assert marker.reason is None
    assert "truncated" in marker.flags
    assert os.stat(job.paths.out).st_size > 200 << 20
    assert allocated(job.paths.out) <= cap + (64 << 10)
    with open(job.paths.out, "rb") as log:
        assert log.read(9) == b"the head\n"
        assert b"[tenuto: what followed here was dropped" in log.read(cap)
        log.seek(-9, os.SEEK_END)
        assert log.read() == b"the tail\n"


WRITES = """
import os, sys, time
while True:
    for _ in range(10): print('y' * (1 << 20), flush=True)
    while os.fstat(1).st_blocks * 512 > int(sys.argv[1]): time.sleep(0.01)
"""
"""Writes on when its log is small again."""


def test_f21_the_disk_is_bounded_while_the_job_runs(
    bench: JobBench, launcher: Launcher, run: Run, until: Until
) -> None:
    cap = 4 << 20
    small = cap + (64 << 10)
    job = bench.command(sys.executable, "-c", WRITES, str(small), limits=Limits(log_bytes=cap))

    async def scenario() -> None:
        process = await started(launcher, job)
        written = lambda: os.stat(job.paths.out).st_size > 100 << 20  # noqa: E731
        await asyncio.to_thread(until, written, "ten times what the log may keep, and more")
        await stopped(job, process)

    run(scenario())
    assert allocated(job.paths.out) <= small


def test_f22_a_small_log_is_left_alone(bench: JobBench, ended: Ended) -> None:
    job = bench.command("sh", "-c", "head -c 20000 /dev/urandom", limits=Limits(log_bytes=1 << 20))
    assert ended(job).flags == ()
    assert os.stat(job.paths.out).st_size == 20000


def test_where_holes_are_impossible_the_job_is_stopped(
    bench: JobBench, ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tenuto.launchers.payload import limits

    def impossible(fd: int, offset: int, length: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(limits, "punch_hole", impossible)
    job = bench.command("true")
    job.release()
    Path(job.paths.out).write_bytes(bytes(200_000))
    Path(job.paths.err).touch()
    bounded = limits.BoundedLogs(job.paths, 100_000)
    with pytest.raises(limits.OutputLimit, match="not supported"):
        bounded.check()
