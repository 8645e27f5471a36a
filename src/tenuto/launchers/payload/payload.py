"""The payload's side of the fork: close the runner's descriptors, apply the limits, run the task or command.
Loads nothing for a Python task before the fork; `python_task` is loaded here, in the child, by name.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

from tenuto.launchers.instructions import Command, Instructions
from tenuto.launchers.leftovers import STAMP
from tenuto.launchers.payload.assignment import (
    CANNOT_EXECUTE,
    NOT_FOUND,
    Assignment,
    Preloaded,
    live_no_longer_than,
    settle_in,
)
from tenuto.launchers.payload.limits import MemoryLimit, confine
from tenuto.launchers.payload.report import ReportWriter, disk_message
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.light import NamedTuple, late, signal
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.modes import directory_mode, file_mode
from tenuto.workspace.ports import Machine
from tenuto.workspace.records import LaunchRecord

if TYPE_CHECKING:
    from tenuto.launchers.payload import python_task
else:
    python_task = late("tenuto.launchers.payload.python_task")

METRICS_FILE = "JOB_METRICS"
"""Names the file to which a program may append lines of metrics."""
ATTEMPT = "JOB_ATTEMPT"
"""The variable that tells a command which try at the job it is, from 1; a Python task asks its job."""
_COPY_BYTES = 1 << 20


class Payload(NamedTuple):
    """What the two sides of the fork share."""

    machine: Machine
    paths: JobPaths
    launch: LaunchRecord
    instructions: Instructions
    logs: tuple[int, int]
    report: int
    descendants: int
    deadline: float | None
    """When the walltime ends, on the monotonic clock."""
    memory: MemoryLimit | None
    parent: int
    preloaded: Preloaded | None = None
    walltime_s: float | None = None
    """How long it may run, of which `deadline` is the end."""
    beat_s: float | None = None
    """How often its runner beats, if a cluster started that."""
    lock: int | None = None
    """The runner's descriptor of the lock file; the payload closes its own."""
    earlier: tuple[str, ...] = ()
    """Where requests to stop the jobs would lie that the runner ran before."""

    @property
    def is_command(self) -> bool:
        return self.instructions.command is not None

    @property
    def assignment(self) -> Assignment:
        """What the process of a Python task is told."""
        return Assignment(
            self.paths.directory,
            self.paths.script_name,
            self.instructions.layout(self.paths).root,
            self.instructions.task_id,
            self.instructions.job_id,
            self.launch.attempt,
            self.deadline,
            self.machine,
            self.preloaded,
            self.launch.owner,
        )


def run_payload(payload: Payload) -> int:
    """In the forked child: become the job. Returns its exit code, unless it becomes another program."""
    live_no_longer_than(payload.parent)
    reporter = ReportWriter(payload.report)
    try:
        _settle_in(payload)
    except OSError as error:
        reporter.failed(JobFailureStatus.FAILED, f"EXEC: {disk_message(error)}")
        return CANNOT_EXECUTE
    program = payload.instructions.program
    if program is not None:
        variables = added_variables(payload.instructions, payload.launch, payload.paths)
        return run_command(program, reporter, variables, payload.parent)
    return python_task.run_task(payload.assignment, reporter)


def _settle_in(payload: Payload) -> None:
    os.setpgid(0, 0)
    for standard, log in enumerate(payload.logs, start=1):
        os.dup2(log, standard)
    os.environ.update(added_variables(payload.instructions, payload.launch, payload.paths))
    settle_in(
        payload.paths.directory, memory=payload.memory, report=payload.report, descendants=payload.descendants
    )


def added_variables(instructions: Instructions, launch: LaunchRecord, paths: JobPaths) -> dict[str, str]:
    """The variables that the job has besides the inherited ones."""
    variables = {**instructions.environment, STAMP: launch.nonce}
    if instructions.command is not None:
        variables[ATTEMPT] = str(launch.attempt)
        if instructions.program is not None and instructions.program.confinement is None:
            variables.setdefault(METRICS_FILE, paths.metrics)
    return variables


def release_signals() -> None:
    """Let signals through again, each with the effect that a program expects at its start."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored by Python
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def run_command(
    command: Command,
    reporter: ReportWriter | None,
    variables: Mapping[str, str] | None = None,
    runner: int | None = None,
) -> int:
    """Become the command, from within the job's directory.

    `variables`: those that the job has besides the inherited ones; a confined command has no others.
    `runner`: the process that the command must not outlive. Returns an exit code, as a shell's, only if the
    command cannot be run.
    """
    try:
        if command.directory is not None:
            os.chdir(command.directory)
        for name, source in command.files.items():
            _place(source, name)
        release_signals()
        _execute(command, variables or {}, runner)
    except (OSError, ValueError, OverflowError) as error:
        problem = disk_message(error) if isinstance(error, OSError) else str(error)
        message = f"EXEC: {command.arguments[0]:.200} cannot be run: {problem}"
        if reporter is not None:
            reporter.failed(JobFailureStatus.FAILED, message)
        os.write(2, f"tenuto: {message}\n".encode())
        return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_EXECUTE


def _execute(command: Command, variables: Mapping[str, str], runner: int | None) -> NoReturn:
    if command.confinement is None:
        os.execvp(command.arguments[0], command.arguments)
    given = {name: os.environ[name] for name in command.confinement.passed or () if name in os.environ}
    environment = {**given, **variables}
    os.get_exec_path(environment)  # or `execvpe` loads a module for it, which the command's user may not read
    confine(command.confinement)
    if runner is not None:
        # Once more: to become another user took the first promise back, and the payload of a runner that was
        # killed then ran on.
        live_no_longer_than(runner)
    os.execvpe(command.arguments[0], command.arguments, environment)


def _place(source: str, name: str) -> None:
    """Copy an input file into the job's directory, executable if it was."""
    directory = os.path.dirname(name)
    if directory:
        os.makedirs(directory, directory_mode(directory), exist_ok=True)
    with open(source, "rb") as original:
        is_program = os.fstat(original.fileno()).st_mode & 0o100
        mode = directory_mode(name) if is_program else file_mode(name)
        target = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        with open(target, "wb") as copy:
            while chunk := original.read(_COPY_BYTES):
                copy.write(chunk)
