"""No exit is missed and nothing is left open (F26)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proof.descriptors import open_files
from tenuto.launchers.protocols import Launcher
from tenuto.testing.contracts.launchers import finished
from tenuto.testing.jobs import JobBench

Until = Callable[..., Any]
Run = Callable[..., Any]
Exited = Callable[..., bool]


@pytest.mark.watchdog(300)
def test_f26_no_exit_is_missed_however_early_it_comes(
    bench: JobBench, launcher: Launcher, run: Run, until: Until, alive: Callable[[int], bool], exited: Exited
) -> None:
    """200 jobs, each looked at only after it has ended."""
    jobs = [bench.command("true") for _ in range(200)]
    before = children()

    async def scenario() -> None:
        for first in range(0, len(jobs), 20):
            batch = jobs[first : first + 20]
            processes = [await launcher.start(job.order) for job in batch]
            living = [process.describe()["pid"] for process in processes]
            until(lambda living=living: not any(map(alive, living)), "their exits")  # not through the loop
            assert all(await asyncio.gather(*(process.confirmed() for process in processes)))
            await asyncio.gather(*(process.wait() for process in processes))
            for job, process in zip(batch, processes, strict=True):
                job.release()
                assert exited(process, 0)
                process.close()

    run(scenario())
    assert all(job.marker().reason is None for job in jobs)
    assert [pid for pid, state in children().items() if state == "Z" and pid not in before] == []


def children() -> dict[int, str]:
    """Pid -> state of each child of this process; those of earlier tests end, and are buried, at any time."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[1]) == os.getpid():
                found[int(name)] = fields[0]
    return found


def test_f26_no_descriptor_is_left_open(bench: JobBench, launcher: Launcher, run: Run) -> None:
    run(finished(launcher, bench.command("true")))
    before = len(open_files())
    for _ in range(20):
        run(finished(launcher, bench.command("true")))
    assert len(open_files()) < before + 20  # threads that other tests left open some too
