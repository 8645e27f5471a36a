"""Memory, walltime and lease (F27, F28)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tenuto.launchers.instructions import Instructions, Limits
from tenuto.launchers.payload import limits
from tenuto.launchers.protocols import Launcher
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.testing.contracts.launchers import finished, started, stopped
from tenuto.testing.jobs import JobBench, ReadyJob
from tenuto.workspace.attempt_files import read_stop, request_stop
from tenuto.workspace.markers import Marker
from tenuto.workspace.records import StopRecord

Ended = Callable[[ReadyJob], Marker]
TaskBuilder = Callable[..., ReadyJob]
Run = Callable[..., Any]
Printed = Callable[[ReadyJob], Coroutine[Any, Any, str]]


# The lease.


def lease(tmp_path: Path, lease_s: float) -> Limits:
    (tmp_path / "lease").touch()
    return Limits(lease_path=str(tmp_path / "lease"), lease_s=lease_s, grace_s=1000.0)


def test_a_payload_whose_lease_is_not_renewed_is_killed_at_once(
    task: TaskBuilder, ended: Ended, tmp_path: Path
) -> None:
    """Without grace: another machine may be about to run the job."""
    body = """
    import signal, subprocess
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen(["sleep", "1000000"], start_new_session=True)
    time.sleep(1000000)
    """
    marker = ended(task(body, limits=lease(tmp_path, 1.0)))
    assert (marker.reason, marker.signal) == (JobFailureStatus.LOST, signal.SIGKILL)
    assert marker.message == f"its lease is over: {tmp_path / 'lease'} has not changed for 0.5 s"
    assert marker.usage["wall_s"] >= 0.5


def test_a_lease_that_is_renewed_ends_nothing(
    task: TaskBuilder, launcher: Launcher, run: Run, tmp_path: Path
) -> None:
    job = task("time.sleep(3)", limits=lease(tmp_path, 2.0))

    async def scenario() -> None:
        process = await started(launcher, job)
        renewals = 0
        while not job.has_marker() and renewals < 1000:
            renewals += 1
            os.utime(tmp_path / "lease", ns=(renewals, renewals))  # whatever a clock says
            await asyncio.sleep(0.05)
        await process.wait()

    run(scenario())
    assert job.marker().reason is None


def test_a_lease_whose_file_is_gone_is_over(bench: JobBench, ended: Ended, tmp_path: Path) -> None:
    limits = lease(tmp_path, 0.4)
    (tmp_path / "lease").unlink()
    assert ended(bench.command("sleep", "1000000", limits=limits)).reason is JobFailureStatus.LOST


def test_a_lease_is_a_file_and_a_time() -> None:
    for lease in (Limits(lease_path="x"), Limits(lease_s=3.0), Limits(lease_path="x", lease_s=0.0)):
        with pytest.raises(ValueError, match="lease"):
            Instructions("t", "j", limits=lease).encode()
    assert "lease_s" not in Instructions("t", "j").encode()["limits"]


# Memory and time.


GREEDY = "x = []\nfor n in range(400):\n    x.append(bytearray(1 << 20))\n"


def test_f27_a_task_over_its_memory_limit_fails_for_that_reason(task: TaskBuilder, ended: Ended) -> None:
    marker = ended(task(GREEDY, limits=Limits(memory_bytes=150 << 20)))
    assert marker.reason is JobFailureStatus.MEMORY


def test_f27_a_command_killed_by_its_group_fails_for_that_reason(
    bench: JobBench, ended: Ended, require: Callable[[str], None]
) -> None:
    require("memory cgroups")
    job = bench.command(sys.executable, "-c", GREEDY, limits=Limits(memory_bytes=100 << 20))
    marker = ended(job)
    assert (marker.reason, marker.signal) == (JobFailureStatus.MEMORY, signal.SIGKILL)


def test_f27_a_shell_whose_child_was_killed_fails_for_that_reason(
    bench: JobBench, ended: Ended, require: Callable[[str], None]
) -> None:
    require("memory cgroups")
    program = f"{sys.executable} -c '{GREEDY}'; exit 1"
    marker = ended(bench.command("sh", "-c", program, limits=Limits(memory_bytes=100 << 20)))
    assert (marker.reason, marker.exit_code) == (JobFailureStatus.MEMORY, 1)


def test_f27_a_shell_that_ends_well_though_its_child_was_killed_fails_for_that_reason(
    bench: JobBench, ended: Ended, require: Callable[[str], None]
) -> None:
    require("memory cgroups")
    program = f"{sys.executable} -c '{GREEDY}'; exit 0"
    marker = ended(bench.command("sh", "-c", program, limits=Limits(memory_bytes=100 << 20)))
    assert (marker.reason, marker.exit_code) == (JobFailureStatus.MEMORY, 0)


def test_f27_without_groups_each_process_is_limited(bench: JobBench, run: Run) -> None:
    """In a child of this test, since the limit cannot be taken back."""
    code = (
        f"from tenuto.launchers.payload.limits import ProcessLimit\nProcessLimit(150 << 20).enter()\n{GREEDY}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MemoryError" in done.stderr


def test_no_control_group_is_left_behind(
    bench: JobBench, ended: Ended, require: Callable[[str], None]
) -> None:
    require("memory cgroups")
    from tenuto.launchers.payload.limits import _own_group

    job = bench.command("true", limits=Limits(memory_bytes=100 << 20))
    assert ended(job).reason is None
    place = _own_group()
    assert place is not None
    assert not Path(f"{place[0]}/tenuto-{job.launch.nonce}").exists()


def test_the_group_of_a_killed_runner_is_cleared_by_the_sweep(
    bench: JobBench, launcher: Launcher, run: Run, require: Callable[[str], None]
) -> None:
    require("memory cgroups")
    from tenuto.launchers.payload.limits import _own_group

    job = bench.command("sleep", "1000000", limits=Limits(memory_bytes=100 << 20))
    place = _own_group()
    assert place is not None
    group = f"{place[0]}/tenuto-{job.launch.nonce}"

    async def scenario() -> None:
        process = await started(launcher, job)
        assert "tenuto-" in " ".join(os.listdir(place[0]))
        process.kill()
        await process.wait()
        await launcher.sweep(job.paths, job.launch)

    run(scenario())
    assert not os.path.exists(group)


def test_groups_of_jobs_lie_beside_the_group_of_a_delegated_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With version 2 a group that has processes in it can limit no group below it."""
    unit = tmp_path / "system.slice" / "node.service"
    (unit / "node").mkdir(parents=True)
    (unit / "cgroup.subtree_control").write_text("")
    (tmp_path / "own").write_text("0::/system.slice/node.service/node\n")
    monkeypatch.setattr(limits, "_GROUPS", str(tmp_path))
    monkeypatch.setattr(limits, "_OWN_GROUP", str(tmp_path / "own"))
    assert not limits.counts_together()
    assert (unit / "cgroup.subtree_control").read_text() == ""
    os.setxattr(unit, "user.delegate", b"1")
    limit = limits.limit_memory(1 << 30, "x")  # here no kernel makes the files of a group
    assert isinstance(limit, limits.ProcessLimit)
    assert (unit / "cgroup.subtree_control").read_text() == "+memory"
    (unit / "tenuto-x").mkdir()
    (unit / "tenuto-x" / "cgroup.procs").write_text("7\n")
    assert limits.group_members("x") == [7]
    assert os.listdir(unit / "node") == []


def test_a_limit_that_is_kept_changes_nothing(task: TaskBuilder, ended: Ended) -> None:
    assert ended(task("return 1", limits=Limits(memory_bytes=1 << 30))).result == 1


BEGUN_S = 5.0
"""A walltime within which a payload has begun, also on a busy machine: a younger one is ended at once."""


@pytest.mark.slow
def test_f28_a_task_over_its_walltime_is_cancelled_and_cleans_up(task: TaskBuilder, ended: Ended) -> None:
    body = """
    try:
        time.sleep(1000)
    finally:
        print('cleaned up')
    """
    job = task(body, limits=Limits(walltime_s=BEGUN_S))
    marker = ended(job)
    assert (marker.reason, marker.message) == (JobFailureStatus.TIMEOUT, "it ran longer than 5 s")
    assert Path(job.paths.out).read_text() == "cleaned up\n"
    assert "TaskCancelled: it ran longer than 5 s" in Path(job.paths.err).read_text()


@pytest.mark.slow
def test_f28_a_resumable_task_has_its_grace(task: TaskBuilder, ended: Ended) -> None:
    """It is not interrupted: it finds that no time remains, saves, and gives up itself."""
    body = """
    from tenuto.errors import GracefulTimeout
    while self.remaining_time() > 0:
        time.sleep(0.01)
    time.sleep(0.1)
    Path('checkpoint').write_text('saved')
    raise GracefulTimeout('not enough time')
    """
    job = task(body, base="ResumableTask", limits=Limits(walltime_s=BEGUN_S))
    assert ended(job).reason is JobFailureStatus.TIMEOUT
    assert (Path(job.paths.directory) / "checkpoint").read_text() == "saved"


def test_f28_a_cancelled_resumable_task_is_interrupted(
    task: TaskBuilder, launcher: Launcher, run: Run, printed: Printed
) -> None:
    job = task("print('ready'); time.sleep(1000)", base="ResumableTask", limits=Limits(grace_s=30))

    async def scenario() -> None:
        process = await started(launcher, job)
        await printed(job)
        await stopped(job, process)

    run(scenario())
    assert job.marker().reason is JobFailureStatus.CANCELLED


def test_f28_a_resumable_task_that_ignores_its_walltime_is_killed(task: TaskBuilder, ended: Ended) -> None:
    job = task("time.sleep(1000)", base="ResumableTask", limits=Limits(walltime_s=2.0, grace_s=0.2))
    marker = ended(job)
    assert (marker.reason, marker.signal) == (JobFailureStatus.TIMEOUT, signal.SIGKILL)


def test_a_job_that_is_cancelled_while_its_time_is_up_counts_as_cancelled(
    task: TaskBuilder, launcher: Launcher, run: Run
) -> None:
    """A timeout may be tried again, and what a person was told would stop may not."""
    job = task("time.sleep(1000)", base="ResumableTask", limits=Limits(walltime_s=1.0, grace_s=3.0))

    async def scenario() -> None:
        process = await started(launcher, job)
        while read_stop(job.machine.files, job.paths, 1) is None:  # noqa: ASYNC110  another process writes it
            await asyncio.sleep(0.01)
        await stopped(job, process)

    run(scenario())
    assert job.marker().reason is JobFailureStatus.CANCELLED


def test_a_walltime_does_not_replace_a_wish(task: TaskBuilder, launcher: Launcher, run: Run) -> None:
    job = task("time.sleep(1000)", base="ResumableTask", limits=Limits(walltime_s=1.0, grace_s=0.2))

    async def scenario() -> None:
        process = await started(launcher, job)
        now = job.machine.clock.now()
        request_stop(job.machine.files, job.paths, StopRecord(1, JobFailureStatus.CANCELLED, now, "enough"))
        await process.wait()

    run(scenario())
    marker = job.marker()
    assert (marker.reason, (marker.message or "")[:6]) == (JobFailureStatus.CANCELLED, "enough")


def test_workers_of_a_cancelled_task_end_as_usual(task: TaskBuilder, launcher: Launcher, run: Run) -> None:
    """A forked worker must not inherit the job's handler of TERM, not even for its first moment."""
    body = """
    import multiprocessing
    codes = set()
    for pause in [0.0] * 50 + [0.05]:
        worker = multiprocessing.get_context('fork').Process(target=time.sleep, args=(1000,))
        worker.start()
        time.sleep(pause)
        worker.terminate()
        worker.join()
        codes.add(worker.exitcode)
    return sorted(codes)
    """
    job = task(body)
    run(finished(launcher, job))
    assert job.marker().result == [-signal.SIGTERM]
