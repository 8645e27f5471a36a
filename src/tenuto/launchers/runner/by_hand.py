"""A job run by a person, in the foreground: what ``python {scriptname}.py`` does in a job's directory.
Takes the job's lock, so that it never runs beside a runner; writes no marker, so that it decides nothing.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from tenuto.errors import SerializationError
from tenuto.launchers.instructions import Instructions
from tenuto.launchers.payload.assignment import Assignment
from tenuto.launchers.payload.payload import added_variables, run_command
from tenuto.launchers.payload.python_task import run_task
from tenuto.launchers.payload.report import ReportWriter, open_report, read_report
from tenuto.launchers.runner.runner_protocol import STALE
from tenuto.tasks.serialization import MAX_BYTES, PARAMS_FILE, loads
from tenuto.workspace.job_directory import read_launch, take_lock
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import Machine
from tenuto.workspace.records import LaunchRecord


def main(script: str) -> NoReturn:
    """Run the job in whose directory the script lies."""
    directory, name = os.path.split(os.path.abspath(script))
    sys.exit(run_by_hand(JobPaths(directory, name.removesuffix(".py"))))


def run_by_hand(paths: JobPaths) -> int:
    machine = this_machine()
    launch = read_launch(machine.files, paths) or _never_launched(machine, paths)
    if launch is None:
        return _refused(f"{paths.directory} is not the directory of a job: it has no {PARAMS_FILE}")
    lock = take_lock(machine, paths)
    if lock is None:
        holders = ", ".join(map(str, machine.locks.holders(paths.lock))) or "unknown"
        return _refused(f"the job is running (process {holders}); nothing was started")
    instructions = Instructions.of(launch)
    report = open_report()
    os.environ.update(added_variables(instructions, launch, paths))
    os.chdir(paths.directory)
    os.set_inheritable(lock.fileno(), True)  # a command takes the lock with it
    if instructions.program is not None:
        return run_command(instructions.program, None, added_variables(instructions, launch, paths))
    assignment = Assignment(
        paths.directory,
        paths.script_name,
        instructions.layout(paths).root,
        instructions.task_id,
        instructions.job_id,
        launch.attempt,
        machine=machine,
    )
    exit_code = run_task(assignment, ReportWriter(report))
    said = read_report(report)
    if said.done and said.result is not None:
        print(said.result)  # noqa: T201  a person is looking
    return exit_code


def _never_launched(machine: Machine, paths: JobPaths) -> LaunchRecord | None:
    """What a launch would have recorded, for a job whose directory was only written (`GENERATE_ONLY`)."""
    try:
        document = loads(machine.files.read(paths.params, MAX_BYTES), paths.params)
        task_id = document["objects"][document["value"]["$ref"]]["type"]
    except (OSError, SerializationError, KeyError, TypeError, IndexError):
        return None
    job_id = os.path.basename(paths.directory)
    return LaunchRecord(
        attempt=1,
        nonce=machine.randomness.nonce(),
        launcher="by hand",
        job_name=job_id,
        host=machine.processes.own().host,
        requested=machine.clock.now(),
        instructions=Instructions(task_id, job_id, "../../..").encode(),
    )


def _refused(message: str) -> int:
    print(f"tenuto: {message}", file=sys.stderr)  # noqa: T201  a person is looking
    return STALE
