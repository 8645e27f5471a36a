"""Disks that are full, read-only or gone (F08, F12, F13, F14)."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tenuto.errors import DirectoryUnusable
from tenuto.jobs.key import JobKey
from tenuto.jobs.view import JobsView
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.workspace.job_directory import look
from tenuto.workspace.markers import Marker, read_markers
from tenuto.workspace.records import Corrupt

from .builders import (
    WAIT_S,
    Bench,
    eventually,
    failure,
    is_alive,
    ledger,
    lines,
    mounted_tmpfs,
    oracle,
    runner_pid,
)
from .tasks_for_faults import Filler

S = JobState
DISK_BYTES = 4 << 20


@pytest.fixture
def small_disk(tmp_path: Path, require: Callable[[str], None]) -> Iterator[Path]:
    require("right to mount a disk")
    with mounted_tmpfs(tmp_path / "disk", f"size={DISK_BYTES},nr_inodes=400") as disk:
        yield disk


def fill(disk: Path, name: str = "ballast") -> Path:
    """Takes every free byte of a disk."""
    ballast = disk / name
    with ballast.open("wb", buffering=0) as stream:
        for size in (1 << 16, 1):
            while True:
                try:
                    stream.write(bytes(size))
                except OSError:
                    break
    return ballast


def everything_is_readable(bench: Bench, job_id: str) -> bool:
    paths = bench.paths(job_id)
    evidence = look(bench.machine, paths).evidence
    records = (evidence.launch, evidence.pid, *evidence.markers)
    return not any(isinstance(record, Corrupt) for record in records)


def test_a_job_that_fills_the_disk_fails_and_says_so(small_disk: Path, tmp_path: Path) -> None:
    """F12: the marker has its place set aside, so that the failure can be written down."""
    with Bench(small_disk / "ws") as bench:
        script = "import sys; f = open('big', 'wb', buffering=0)\nwhile True: f.write(bytes(4096))"
        job = bench.command("job", sys.executable, "-c", script)
        assert failure(job)[0] is JobFailureStatus.FAILED
        marker = read_markers(bench.machine.files, job.paths).failed
        assert isinstance(marker, Marker)
        assert "No space left" in Path(job.paths.err).read_text() or Path(job.paths.err).stat().st_size == 0
        assert everything_is_readable(bench, "job")


def test_a_task_that_fills_the_disk_fails_with_disk_full(small_disk: Path) -> None:
    """F12, for Python: the exception has a name."""
    with Bench(small_disk / "ws") as bench:
        reason, message = failure(bench.task(Filler.C(name="big")))
        assert reason is JobFailureStatus.FAILED
        assert message.startswith("DISK_FULL")


def test_a_full_disk_pauses_the_starts_until_there_is_room(small_disk: Path, tmp_path: Path) -> None:
    """F12: nothing fails, nothing is lost, and nothing that is half written is taken for whole."""
    with Bench(small_disk / "ws", slots=2) as bench:
        first = bench.command("first", *oracle(tmp_path / "first"))
        assert first.wait(WAIT_S) is S.DONE
        ids = [f"job-{number}" for number in range(4)]
        ballast = fill(small_disk)
        jobs = [bench.command(job_id, *oracle(tmp_path / job_id)) for job_id in ids]
        eventually(lambda: any("DISK_FULL" in (job.state_record.message or "") for job in jobs), "a pause")
        assert not any(job.state.finished() for job in jobs)
        ballast.unlink()
        bench.wait()
        assert {job.state for job in jobs} == {S.DONE}
        assert all(everything_is_readable(bench, job_id) for job_id in ids)
    assert all(ledger(tmp_path / job_id) == ["start", "end"] for job_id in ids)


def test_a_disk_without_inodes_pauses_the_starts_until_there_are_some(
    small_disk: Path, tmp_path: Path
) -> None:
    """F13."""
    with Bench(small_disk / "ws") as bench:
        first = bench.command("first", *oracle(tmp_path / "first"))
        assert first.wait(WAIT_S) is S.DONE
        crowd = small_disk / "crowd"
        crowd.mkdir()
        with contextlib.suppress(OSError):
            for number in range(1000):
                (crowd / str(number)).touch()
        assert os.statvfs(small_disk).f_ffree == 0
        job = bench.command("job", *oracle(tmp_path / "job"))
        eventually(lambda: "DISK_FULL" in (job.state_record.message or ""), "a pause")
        shutil.rmtree(crowd)
        assert job.wait(WAIT_S) is S.DONE
        assert everything_is_readable(bench, "job")


@pytest.mark.parametrize(
    "free_pages", [3, 7, *(pytest.param(pages, marks=pytest.mark.slow) for pages in range(16))]
)
def test_a_disk_that_fills_up_at_any_moment_leaves_nothing_torn(
    small_disk: Path, tmp_path: Path, free_pages: int
) -> None:
    """F12: with room for so many blocks and no more, whatever the attempt comes to, it can be read."""
    with Bench(small_disk / "ws") as bench:
        ballast = fill(small_disk)
        os.truncate(ballast, ballast.stat().st_size - free_pages * 4096)
        job = bench.command("job", *oracle(tmp_path / "job"))

        def paused_or_ended() -> bool:
            return job.state.finished() or "DISK_FULL" in (job.state_record.message or "")

        eventually(paused_or_ended, "a pause, or an end")
        if job.state.finished():
            assert job.state is S.DONE or "DISK_FULL" in failure(job)[1]
        ballast.unlink()
        job.wait(WAIT_S)
        assert everything_is_readable(bench, "job")
        if job.state is S.ERROR:
            job = bench.command("job", *oracle(tmp_path / "job"))
        assert job.wait(WAIT_S) is S.DONE
    assert "overlap" not in ledger(tmp_path / "job")


def test_a_running_job_can_be_cancelled_on_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    """F12: the reason cannot be written down, and the job is stopped all the same."""
    started = tmp_path / "started"
    with Bench(small_disk / "ws") as bench:
        job = bench.shell("job", 'echo $$ >> "$1"; exec sleep 600', started)
        eventually(lambda: lines(started), "the job to begin")
        fill(small_disk)
        bench.scheduler.cancel(job, "enough")
        assert failure(job)[0] is JobFailureStatus.CANCELLED
        assert not is_alive(int(lines(started)[0]), small_disk)


def test_a_read_only_disk_is_refused_at_submit(small_disk: Path) -> None:
    """F14, as root."""
    with Bench(small_disk / "ws") as bench:
        assert bench.command("before", "true").wait(WAIT_S) is S.DONE
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
        with pytest.raises(DirectoryUnusable, match=str(bench.paths("job").directory)):
            bench.command("job", "true")
        assert bench.scheduler.counts(bench.owner).unfinished == 0
        assert bench.command("before", "true").wait(WAIT_S) is S.DONE


NOBODY = """
import os, sys
from pathlib import Path
from builders import Bench
from tenuto.errors import DirectoryUnusable
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
bench = Bench(Path(sys.argv[1]))
try:
    bench.command("job", "true")
except DirectoryUnusable as error:
    print(error)
print(len(bench.scheduler.jobs), bench.scheduler.counts(bench.owner).unfinished)
"""


def test_a_directory_that_may_not_be_written_is_refused_at_submit() -> None:
    """F14, as any user: root, if the tests run as root, becomes another user first."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:  # pytest's own is closed to others
        Path(directory).chmod(0o755)
        workspace = Path(directory) / "ws"
        (workspace / "jobs").mkdir(parents=True)
        (workspace / "jobs").chmod(0o555)
        path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        said = subprocess.run(
            [sys.executable, "-c", NOBODY, str(workspace)],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert f"{workspace}/jobs/fault/job cannot be used: Permission denied" in said.stdout, said
        assert said.stdout.endswith("0 0\n")
        (workspace / "jobs").chmod(0o755)


def test_a_job_whose_directory_is_deleted_while_it_runs_has_failed(tmp_path: Path) -> None:
    """F08: the scheduler lives on, says what happened, and starts nothing by itself."""
    started, gate = tmp_path / "started", tmp_path / "gate"
    os.mkfifo(gate)
    with Bench(tmp_path / "ws") as bench:
        job = bench.shell("job", 'echo $$ >> "$1"; cat < "$2"', started, gate, retries=2)
        eventually(lambda: lines(started), "the job to begin")
        eventually(lambda: job.state is S.RUNNING, "the job to run")
        shutil.rmtree(job.paths.directory)
        reason, message = failure(job)  # its runner notices, and ends it
        assert not Path(f"/proc/{lines(started)[0]}").exists()
        assert reason is JobFailureStatus.DELETED
        assert message.startswith("DIR_GONE")
        assert len(lines(started)) == 1
        assert bench.command("other", "true").wait(WAIT_S) is S.DONE
        again = bench.shell("job", 'echo $$ >> "$1"; cat < "$2"', started, gate)
        with gate.open("w"):
            pass
        assert again.wait(WAIT_S) is S.DONE


def test_a_job_whose_directory_and_runner_are_gone_has_failed(tmp_path: Path) -> None:
    """F08: nobody is left to notice, except the scheduler."""
    started = tmp_path / "started"
    with Bench(tmp_path / "ws") as bench:
        job = bench.shell("job", 'echo $$ >> "$1"; exec sleep 600', started, retries=2)
        eventually(lambda: lines(started), "the job to begin")
        runner = runner_pid(job)
        shutil.rmtree(job.paths.directory)
        os.kill(runner, 9)
        assert failure(job)[1].startswith("DIR_GONE")
        assert len(lines(started)) == 1


def test_a_directory_that_is_a_link_is_refused_at_submit(tmp_path: Path) -> None:
    """The scheduler ran through it and said DONE, and every other command passed it over."""
    with Bench(tmp_path / "ws") as bench:
        assert bench.command("job", "true").wait(WAIT_S) is S.DONE
        directory = Path(bench.paths("job").directory)
        view = JobsView(bench.layout, bench.machine)
    directory.rename(tmp_path / "elsewhere")
    directory.symlink_to(tmp_path / "elsewhere")
    with Bench(tmp_path / "ws") as bench:
        with pytest.raises(DirectoryUnusable, match="is a link"):
            bench.command("job", "true")
        assert bench.scheduler.counts(bench.owner).unfinished == 0
    seen = view.look(JobKey("fault", "job"))
    assert seen.state is S.UNSCHEDULED
    assert "is a link" in str(seen.alarm)
