"""A start that the machine refused is no try, wherever it is refused (F41, F12)."""

from __future__ import annotations

import errno
import os
import signal
import stat
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenuto.launchers.forking_launcher import DirectLauncher
from tenuto.launchers.instructions import Command
from tenuto.launchers.runner import attempt as attempts
from tenuto.launchers.runner import payload_start
from tenuto.launchers.runner.runner_protocol import ENDED, REFUSED, Inherited
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.owners import PlainOwner
from tenuto.scheduler.scheduler import Scheduler
from tenuto.testing.contracts.launchers import locked
from tenuto.testing.jobs import JobBench, ReadyJob
from tenuto.workspace import locks
from tenuto.workspace.attempt_files import read_pid, request_stop
from tenuto.workspace.job_directory import read_launch
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.ports import DESCENDANTS_BYTE, RUNNER_BYTE, Machine
from tenuto.workspace.records import StopRecord

Until = Callable[..., Any]
WAIT_S = 60.0


@pytest.fixture(autouse=True)
def as_in_a_process_without_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler of another test may have asked that children get no locks; these children need them."""
    monkeypatch.setattr(locks._Children, "get_locks", True)


# -- the payload's fork --------------------------------------------------------------------------------


def runner(job: ReadyJob, refusals: int, patience_s: float = 60.0) -> int:
    """Forks the runner of a job, to whom the machine refuses the payload's fork some times; its pid."""
    pid = os.fork()
    if pid:
        job.release()
        return pid
    start, left = payload_start._start, refusals

    def refused(*arguments: Any) -> int:
        nonlocal left
        left -= 1
        if left >= 0:
            raise OSError(errno.EAGAIN, "no process left")
        return start(*arguments)

    payload_start._start, payload_start._PATIENCE_S = refused, patience_s
    payload_start._START_AGAIN_S = 0.05
    locks = (job.order.runner_lock.fileno(), job.order.descendants_lock.fileno())
    paths = job.paths
    _, ready = os.pipe()
    exit_code = attempts.run(
        Inherited(paths.directory, paths.script_name, job.launch.nonce, sys.executable, *locks, ready)
    )
    os._exit(exit_code)


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_runner_waits_for_a_process_for_its_payload(bench: JobBench) -> None:
    """The job was FAILED, though its code had never run."""
    job = bench.command("true")
    assert ended(runner(job, refusals=3)) == ENDED
    assert job.marker().reason is None


def test_a_runner_that_waits_in_vain_leaves_no_try(bench: JobBench, machine: Machine) -> None:
    job = bench.command("true")
    assert ended(runner(job, refusals=1000, patience_s=0.1)) == REFUSED
    launch = read_launch(machine.files, job.paths)
    assert launch is not None
    assert launch.withdrawn
    assert read_pid(machine.files, job.paths, 1) is None
    assert not job.has_marker()
    assert not job.derived().payload_may_have_run
    assert not locked(job)


def test_a_job_is_stopped_while_its_runner_waits_for_a_process(
    bench: JobBench, machine: Machine, until: Until
) -> None:
    job = bench.command("true")
    pid = runner(job, refusals=1000)
    until(lambda: read_pid(machine.files, job.paths, 1), "the pid record")
    stop = StopRecord(1, JobFailureStatus.CANCELLED, machine.clock.now(), "enough")
    request_stop(machine.files, job.paths, stop)
    os.kill(pid, signal.SIGTERM)
    assert ended(pid) == ENDED
    assert (job.marker().reason, job.marker().message) == (JobFailureStatus.CANCELLED, "enough")


# -- under a cluster -----------------------------------------------------------------------------------


def far_runner(job: ReadyJob, **changed: Any) -> int:
    """Forks the runner of an external job as its cluster would, with a changed runner; its pid."""
    pid = os.fork()
    if pid:
        return pid
    for name, value in changed.items():
        (module,) = (one for one in (attempts, payload_start) if hasattr(one, name))
        setattr(module, name, value)
    lock = job.machine.locks.try_lock(job.paths.lock, RUNNER_BYTE)
    descendants = job.machine.locks.try_lock(job.paths.lock, DESCENDANTS_BYTE)
    assert lock is not None
    assert descendants is not None
    locks = lock.fileno(), descendants.fileno()
    place = job.paths.directory, job.paths.script_name, job.launch.nonce, sys.executable
    os._exit(attempts.run(Inherited(*place, *locks, None, beat_s=1.0)))


def short(*_: object) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "changed",
    [
        {"write_pid": short, "_FIRST_STEPS_S": 0.3},
        {"_start": short, "_PATIENCE_S": 0.1, "_START_AGAIN_S": 0.05},
    ],
    ids=["pid record", "payload"],
)
def test_a_runner_that_its_node_refuses_something_leaves_no_try(
    tmp_path: Path, machine: Machine, changed: dict[str, Any]
) -> None:
    """The job was FAILED, though its code had never run; the cluster passes the exit code on."""
    job = JobBench(str(tmp_path / "far"), machine, launcher="slurm", external=True).command("true")
    before = machine.files.read(job.paths.launch, 1 << 16)
    assert ended(far_runner(job, **changed)) == REFUSED
    assert not job.has_marker()
    assert read_pid(machine.files, job.paths, 1) is None
    assert machine.files.read(job.paths.launch, 1 << 16) == before, "only its scheduler writes that"
    assert not locked(job)


# -- the pid record ------------------------------------------------------------------------------------

FULL = """
#!{python}
import errno, os, sys
while sys.argv[1].startswith("-"):
    del sys.argv[1]
del sys.argv[0]
opened = os.open

def open_(path, *arguments, **named):
    if ".pid" in str(path) and os.path.exists({full!r}):
        with opened_file({counted!r}) as stream:
            stream.write("refused\\n")
        raise OSError(errno.ENOSPC, "No space left on device")
    return opened(path, *arguments, **named)

def opened_file(path):
    return os.fdopen(opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "w")

os.open = open_
with open(sys.argv[0]) as program:
    code = compile(program.read(), sys.argv[0], "exec")
exec(code, {{"__name__": "__main__", "__file__": sys.argv[0]}})
"""


class CommandWork:
    """A `Work` that runs a command."""

    environment: dict[str, str] = {}

    def params(self, layout: Layout, paths: JobPaths) -> bytes:
        return b"{}"

    def command(self) -> Command:
        return Command(("sh", "-c", "echo ran $JOB_ATTEMPT"))


def test_a_full_disk_at_the_pid_record_is_no_try(tmp_path: Path, machine: Machine, until: Until) -> None:
    """Starts are paused as for any other shortage, and the job then runs, without a retry to spare."""
    full, counted, python = tmp_path / "full", tmp_path / "counted", tmp_path / "python"
    program = FULL.format(python=sys.executable, full=str(full), counted=str(counted))
    python.write_text(textwrap.dedent(program).strip())
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    full.touch()
    launcher = DirectLauncher(machine, slots=1, python=str(python))
    scheduler = Scheduler(machine)
    layout = Layout(str(tmp_path / "ws"))
    try:
        work: Any = CommandWork()
        job = scheduler.submit(
            Job("work", "0a", layout=layout, launcher=launcher, work=work, clock=machine.clock),
            PlainOwner("search/x"),
        )
        until(lambda: counted.exists() and job.state is JobState.READY, "the pause")
        full.unlink()
        assert job.wait(WAIT_S) is JobState.DONE
        launch = read_launch(machine.files, job.paths)
        assert launch is not None
        assert (launch.lost_count, launch.retry_count) == (0, 0)
    finally:
        scheduler.close()
