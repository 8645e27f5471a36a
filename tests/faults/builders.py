"""What the fault tests build: jobs that run commands, and schedulers in processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tenuto.launchers.instructions import Command, Limits
from tenuto.launchers.protocols import Launcher
from tenuto.launchers.spawn import SpawnLauncher
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.decisions import RetryLimits
from tenuto.scheduler.entries import JobDependency
from tenuto.scheduler.jobs import Job, TaskWork, Work
from tenuto.scheduler.scheduler import Scheduler
from tenuto.scheduler.tokens import TokenDependency
from tenuto.tasks.identity import identity
from tenuto.tasks.live import seal
from tenuto.tasks.schema import schema_of
from tenuto.testing.jobs import FakeOwner
from tenuto.workspace.job_directory import look
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import Liveness, Machine
from tenuto.workspace.records import PidRecord

HERE = Path(__file__).parent
ORACLE = HERE.parents[1] / "proof" / "matrix" / "oracle.py"
TASK_ID = "fault"
WAIT_S = 60.0


class CommandWork:
    """A `Work` that runs a command."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.arguments = tuple(arguments)
        self.environment = environment or {}

    def params(self, layout: Layout, paths: JobPaths) -> bytes:
        return b"{}"

    def command(self) -> Command:
        return Command(self.arguments)


class Bench:
    """A workspace with a scheduler, which `with` closes."""

    def __init__(
        self,
        root: Path,
        *,
        slots: int = 4,
        machine: Machine | None = None,
        launcher: Launcher | None = None,
        **options: Any,
    ) -> None:
        self.layout = Layout(str(root))
        self.machine = machine or this_machine()
        self.scheduler = Scheduler(self.machine, **options)
        self.launcher: Launcher = launcher or SpawnLauncher(self.machine, slots=slots)
        self.owner = FakeOwner()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *error: object) -> None:
        self.scheduler.close()
        self.launcher.close()

    def command(self, job_id: str, *arguments: str, **options: Any) -> Job:
        """A job that runs a command, submitted."""
        return self.submit(TASK_ID, job_id, CommandWork(arguments), **options)

    def shell(self, job_id: str, script: str, *arguments: object, **options: Any) -> Job:
        """A job that runs a line of shell, with ``$1`` and so on."""
        return self.command(job_id, "/bin/sh", "-c", script, "sh", *map(str, arguments), **options)

    def task(self, task: Any, **options: Any) -> Job:
        """A job that runs a task of Python, submitted."""
        seal(task)
        return self.submit(schema_of(type(task)).id, identity(task), TaskWork(task), **options)

    def submit(
        self,
        task_id: str,
        job_id: str,
        work: Work,
        *,
        needs: Sequence[Job] = (),
        retries: int = 0,
        max_retries: int = 0,
        limits: Limits | None = None,
        callbacks: Sequence[Callable[[Job], Any]] = (),
        tokens: Sequence[TokenDependency] = (),
    ) -> Job:
        job = Job(
            task_id,
            job_id,
            layout=self.layout,
            launcher=self.launcher,
            work=work,
            clock=self.machine.clock,
            dependencies=[JobDependency(needed) for needed in needs],
            tokens=tokens,
            limits=limits,
            retry=RetryLimits(resumable=max_retries > 0, max_retries=max_retries, max_lost_retries=retries),
        )
        for callback in callbacks:
            job.on_completed(callback)
        return self.scheduler.submit(job, self.owner)

    def wait(self, timeout_s: float = WAIT_S) -> None:
        self.scheduler.wait(self.owner, timeout_s)

    def paths(self, job_id: str) -> JobPaths:
        return self.layout.job(TASK_ID, job_id)


class SchedulerProcess:
    """A scheduler in a process of its own: `scheduler_process.py`."""

    def __init__(
        self, root: Path, jobs: Mapping[str, Sequence[str]], *, slots: int = 4, retries: int = 0
    ) -> None:
        self.jobs = jobs
        spec = {"root": str(root), "jobs": jobs, "slots": slots, "retries": retries}
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "scheduler_process.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(spec))
        self._process.stdin.close()
        self.pid = self._process.pid

    def __enter__(self) -> SchedulerProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def submitted(self) -> None:
        """Returns once all jobs were submitted."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "submitted\n"

    def results(self) -> dict[str, dict[str, Any]]:
        """What became of each job, once all ended."""
        assert self._process.stdout is not None
        found = [json.loads(line) for line in self._process.stdout if line != "submitted\n"]
        assert self._process.wait(WAIT_S) == 0
        return {job.pop("job_id"): job for job in found}

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def stop(self) -> None:
        """SIGSTOP; returns once the process stands still."""
        self.signal(signal.SIGSTOP)
        eventually(lambda: state_of(self.pid) == "T", "the scheduler to stop")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def oracle(directory: Path) -> list[str]:
    """The command that keeps a ledger in this directory (see `proof.matrix.oracle`)."""
    directory.mkdir(exist_ok=True)
    return [sys.executable, "-I", "-S", str(ORACLE), str(directory), "job", "", ""]


def ledger(directory: Path) -> list[str]:
    """What the payloads in this directory did: start, end, overlap."""
    file = directory / "ledger"
    return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []


def eventually(condition: Callable[[], Any], what: str = "") -> Any:
    """What the condition gives, once that is true; fails after a minute."""
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited too long for {what or condition}"
        time.sleep(0.005)
    return found


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def state_of(pid: int) -> str:
    """The kernel's letter for the state of a process; empty if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return text[text.rindex(")") + 2]


def is_alive(pid: int, below: Path) -> bool:
    """Whether a payload still runs; it works below this directory, and a later owner of its pid does not."""
    try:
        return state_of(pid) not in ("", "Z", "X") and os.readlink(f"/proc/{pid}/cwd").startswith(str(below))
    except (FileNotFoundError, ProcessLookupError):
        return False


def runner_pid(job: Job | JobPaths, machine: Machine | None = None) -> int:
    """The pid of a job's runner, once it has written it."""
    paths = job.paths if isinstance(job, Job) else job

    def found() -> int | None:
        pid = look(machine or this_machine(), paths).evidence.pid
        return pid.identity.pid if isinstance(pid, PidRecord) else None

    pid: int = eventually(found, "a pid record")
    return pid


def failure(job: Job) -> tuple[JobFailureStatus | None, str]:
    """Why a job failed, once it has."""
    assert job.wait(WAIT_S) is JobState.ERROR
    return job.failure_status, job.state_record.message or ""


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
    paths = bench.paths(job_id)
    eventually(lambda: look(bench.machine, paths).evidence.liveness is Liveness.DEAD, "the runner to die")
    payload = int(lines(started)[0])
    eventually(lambda: not is_alive(payload, tmp_path), "the payload to die with its runner")
    return bench


@contextlib.contextmanager
def child_process(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with any job, killed at the end."""
    process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def mounted_tmpfs(path: Path, options: str) -> Iterator[Path]:
    """A small disk of its own; for root."""
    path.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
