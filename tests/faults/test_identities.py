"""Processes that are not what a file says: reused pids, other boots, stale files (F05, F06, F10)."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.workspace.job_directory import look, read_pid, write_pid
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import Liveness, Machine
from tenuto.workspace.processes import SystemProcesses

from .builders import (
    WAIT_S,
    Bench,
    SchedulerProcess,
    child_process,
    eventually,
    is_alive,
    ledger,
    lines,
    oracle,
    runner_pid,
)

S = JobState
LAST_PID = Path("/proc/sys/kernel/ns_last_pid")


def abandoned(tmp_path: Path, job_id: str = "job") -> Bench:
    """A job whose scheduler and runner were killed while it ran."""
    started = tmp_path / "started"
    jobs = {job_id: ["/bin/sh", "-c", 'echo $$ >> "$0"; exec sleep 600', str(started)]}
    bench = Bench(tmp_path / "ws")
    with SchedulerProcess(tmp_path / "ws", jobs) as scheduler:
        scheduler.submitted()
        eventually(lambda: lines(started), "the job to begin")
        runner = runner_pid(bench.paths(job_id))
    os.kill(runner, signal.SIGKILL)
    eventually(lambda: not is_alive(runner), "the runner to die")
    payload = int(lines(started)[0])
    eventually(lambda: not is_alive(payload), "the payload to die with its runner")
    return bench


def test_a_pid_that_was_given_to_another_process_is_not_the_runner(tmp_path: Path) -> None:
    """F05, with a forged record: the pid is in use, by a process that started at another time."""
    with abandoned(tmp_path) as bench, child_process("sleep", "600") as innocent:
        paths = bench.paths("job")
        record = read_pid(bench.machine.files, paths, 1)
        assert record is not None
        write_pid(
            bench.machine.files, paths, record._replace(identity=record.identity._replace(pid=innocent.pid))
        )
        assert look(bench.machine, paths).evidence.liveness is Liveness.DEAD
        job = bench.command("job", *oracle(tmp_path / "ran"))
        bench.scheduler.cancel(job)
        bench.wait()
        again = bench.command("job", *oracle(tmp_path / "ran"))
        assert again.wait(WAIT_S) is S.DONE
        assert innocent.poll() is None


@pytest.mark.skipif(not os.access(LAST_PID, os.W_OK), reason="the kernel's next pid cannot be chosen here")
def test_a_reused_pid_is_not_the_runner(tmp_path: Path) -> None:
    """F05, for real: another process gets the very pid that the runner had."""
    with abandoned(tmp_path) as bench:
        paths = bench.paths("job")
        record = read_pid(bench.machine.files, paths, 1)
        assert record is not None
        wanted = record.identity.pid
        with process_with_pid(wanted) as innocent:
            assert look(bench.machine, paths).evidence.liveness is Liveness.DEAD
            assert bench.machine.processes.open(record.identity) is None
            job = bench.command("job", *oracle(tmp_path / "ran"))
            assert job.wait(WAIT_S) is S.DONE
            assert job.attempt == 2
            assert innocent.poll() is None


class process_with_pid:
    """A process that sleeps, under a chosen pid."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def __enter__(self) -> subprocess.Popen[bytes]:
        def tried() -> subprocess.Popen[bytes] | None:
            LAST_PID.write_text(str(self._pid - 1))
            process = subprocess.Popen(["sleep", "600"], start_new_session=True)
            if process.pid == self._pid:
                return process
            process.kill()  # somebody else on this machine forked at the same time
            process.wait()
            return None

        self._process: subprocess.Popen[bytes] = eventually(tried, f"pid {self._pid}")
        return self._process

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()


def rebooted(machine: Machine) -> Machine:
    """The same machine, which believes that it was started again."""
    return machine._replace(processes=SystemProcesses(boot_id="another-boot"))


def test_after_a_reboot_nothing_runs_whatever_the_files_say(tmp_path: Path) -> None:
    """F10: the pid may even be in use, by a process with the same start time."""
    with abandoned(tmp_path), child_process("sleep", "600") as innocent:
        machine = rebooted(this_machine())
        with Bench(tmp_path / "ws", machine=machine) as bench:
            paths = bench.paths("job")
            identity = this_machine().processes.identify(innocent.pid)
            record = read_pid(machine.files, paths, 1)
            assert identity is not None
            assert record is not None
            write_pid(machine.files, paths, record._replace(identity=identity))
            found = look(machine, paths).derived
            assert (found.state, found.reason) == (S.ERROR, JobFailureStatus.LOST)
            assert (found.message or "").startswith("REBOOT")
            job = bench.command("job", *oracle(tmp_path / "ran"))
            assert job.wait(WAIT_S) is S.DONE
            assert job.attempt == 2
            assert innocent.poll() is None


def test_files_that_somebody_left_stop_nobody(tmp_path: Path) -> None:
    """F06: a lock file that nobody has locked, and the pid record of a process that is gone."""
    with abandoned(tmp_path) as bench:
        paths = bench.paths("job")
        assert Path(paths.lock).exists()
        assert Path(paths.pid).exists()
        job = bench.command("job", *oracle(tmp_path / "ran"))
        assert job.wait(WAIT_S) is S.DONE
    assert ledger(tmp_path / "ran") == ["start", "end"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda paths: Path(paths.pid).write_bytes(b""),
        lambda paths: Path(paths.pid).write_bytes(b'{"pid": 1}'),
        lambda paths: Path(paths.pid).unlink(),
        lambda paths: Path(paths.lock).write_bytes(b"locked by pid 1\n"),
        lambda paths: Path(paths.stop).write_bytes(b"garbage"),
        lambda paths: Path(paths.locks).write_bytes(b"[]"),
    ],
    ids=[
        "empty pid",
        "half a pid",
        "no pid",
        "words in the lock file",
        "unreadable stop",
        "unreadable locks",
    ],
)
def test_damaged_files_of_a_lost_attempt_stop_nobody(tmp_path: Path, damage: Callable[..., object]) -> None:
    """F06."""
    with abandoned(tmp_path) as bench:
        damage(bench.paths("job"))
        job = bench.command("job", *oracle(tmp_path / "ran"))
        assert job.wait(WAIT_S) is S.DONE
        assert job.attempt == 2
