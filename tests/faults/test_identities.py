"""Processes that are not what a file says: reused pids, other boots, stale files (F05, F06, F10)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.workspace.job_directory import look, read_pid, write_pid
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import Liveness, Machine
from tenuto.workspace.processes import SystemProcesses

from .builders import WAIT_S, Bench, abandoned, child_process, ledger, oracle

S = JobState
PID_NAMESPACE = "unshare --user --map-root-user --pid --fork --mount-proc".split()


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


def test_a_reused_pid_is_not_the_runner(tmp_path: Path, require: Callable[[str], None]) -> None:
    """F05, for real: another process gets the very pid that the runner had.

    In a pid namespace of its own, since to choose the next pid is to have those of others reused too.
    """
    require("pid namespace")
    program = [sys.executable, str(Path(__file__).with_name("reused_pid.py")), str(tmp_path)]
    said = subprocess.run([*PID_NAMESPACE, *program], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (0, "as it should be\n"), said


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


def test_files_that_a_dead_runner_left_stop_no_scheduler(tmp_path: Path) -> None:
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
