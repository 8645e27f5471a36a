"""The directory vanishes, or the disk is full (F08, F12)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenuto.launchers.protocols import Launcher
from tenuto.launchers.runner.runner_protocol import UNRECORDED
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.testing.contracts.launchers import finished
from tenuto.testing.jobs import JobBench
from tenuto.workspace.markers import Durability

Run = Callable[..., Any]
Exited = Callable[..., bool]


def test_f08_a_vanished_directory_ends_the_runner_and_nothing_else(
    bench: JobBench, launcher: Launcher, run: Run, exited: Exited
) -> None:
    # At once: a runner that sees half of it gone ends `rm` too, and the other half stays.
    here = job_dir(bench)
    job = bench.command("sh", "-c", f'mv "{here}" "{here}.gone" && rm -rf "{here}.gone"')
    process = run(finished(launcher, job))
    assert exited(process, UNRECORDED)
    assert not Path(job.paths.directory).exists()


def job_dir(bench: JobBench) -> str:
    return bench.layout.job("bench.work", "job-1").directory


@pytest.fixture
def small_disk(require: Callable[[str], None], tmp_path: Path) -> Iterator[Path]:
    require("tmpfs")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_f12_a_job_that_fills_the_disk_fails_with_a_marker(
    small_disk: Path, bench: JobBench, launcher: Launcher, run: Run
) -> None:
    bench = JobBench(str(small_disk), bench.machine)
    job = bench.command("sh", "-c", "cat /dev/zero > big; cat /dev/zero > more", durability=Durability.MARKER)
    run(finished(launcher, job))
    marker = job.marker()
    assert marker.reason is JobFailureStatus.FAILED
    assert os.statvfs(small_disk).f_bavail == 0


def test_f12_a_task_on_a_full_disk_says_so(
    small_disk: Path,
    module: Callable[[str], Any],
    bench: JobBench,
    launcher: Launcher,
    run: Run,
    tmp_path: Path,
) -> None:
    bench = JobBench(str(small_disk), bench.machine)
    source = """
    class Fill(Task):
        def execute(self):
            try:
                with open("big", "wb", buffering=0) as big:
                    while True:
                        big.write(bytes(4096))
            except OSError:
                pass
            print("x" * 100_000)
    """
    path = [str(tmp_path / "code"), *sys.path]
    job = bench.task(module(source).Fill.C(), import_path=path)
    run(finished(launcher, job))
    assert job.marker().reason is JobFailureStatus.FAILED
    assert (job.marker().message or "").startswith("DISK_FULL: ")


def test_f12_a_runner_that_cannot_write_its_pid_record_says_so_and_leaves_no_marker(
    small_disk: Path, bench: JobBench, launcher: Launcher, run: Run
) -> None:
    bench = JobBench(str(small_disk), bench.machine)
    job = bench.command("true")
    fill(small_disk)

    async def scenario() -> None:
        process = await launcher.start(job.order)
        with pytest.raises(OSError, match="No space left"):
            await process.confirmed()
        await process.wait()
        process.close()

    run(scenario())
    job.release()
    assert not os.path.exists(job.paths.done)
    assert not os.path.exists(job.paths.failed)


def test_f12_a_result_that_does_not_fit_the_disk_leaves_its_job_done_and_says_so(
    small_disk: Path,
    module: Callable[[str], Any],
    bench: JobBench,
    launcher: Launcher,
    run: Run,
    tmp_path: Path,
) -> None:
    bench = JobBench(str(small_disk), bench.machine)
    source = """
    class Large(Task):
        def execute(self):
            return "x" * 3_000_000
    """
    job = bench.task(module(source).Large.C(), import_path=[str(tmp_path / "code"), *sys.path])
    run(finished(launcher, job))
    marker = job.marker()
    assert (marker.reason, marker.result, marker.flags) == (None, None, ("result_not_kept",))
    assert "its result could not be written" in (marker.message or "")


def fill(disk: Path) -> None:
    subprocess.run(["sh", "-c", f'cat /dev/zero > "{disk}/filler"'], check=False, stderr=subprocess.DEVNULL)
    assert os.statvfs(disk).f_bavail == 0
