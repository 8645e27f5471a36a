"""A payload in a fresh interpreter: how a runner starts it, and how it finds out there what it is to run.
What it does then is the same as in a payload that was forked.
"""

from __future__ import annotations

import os
import signal

from tenuto.launchers.instructions import Instructions
from tenuto.launchers.runner.memory import limit_in_force
from tenuto.launchers.runner.payload import CANNOT_EXECUTE, Payload, added_variables, run_payload
from tenuto.launchers.runner.report import Reporter
from tenuto.launchers.runner.signals import SIGNALS
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.workspace.attempt_files import read_launch
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.machine import this_machine

ENTRY = f"{__file__.rpartition('/')[0]}/__main__.py"
BARE = ("-I", "-S")
"""How an interpreter is started that runs nothing but Tenuto: it needs no packages."""
PLAIN = ("-P",)
"""How one is started that runs what is the user's."""
_FRESH_SIGNALS = (*SIGNALS, signal.SIGPIPE, signal.SIGXFSZ)
_ENDLESS = "-"


def start_afresh(payload: Payload, python: str) -> int:
    """In the runner: start the interpreter, with nothing of the runner's but what the payload is to have."""
    passed = (payload.report, payload.descendants)
    deadline = _ENDLESS if payload.deadline is None else repr(payload.deadline)
    where = (payload.paths.directory, payload.paths.script_name)
    return os.posix_spawn(
        python,
        [python, *PLAIN, ENTRY, "--payload", *where, str(payload.parent), deadline, *map(str, passed)],
        {**os.environ, **added_variables(payload.instructions, payload.launch)},
        file_actions=[
            *((os.POSIX_SPAWN_DUP2, log, standard) for standard, log in enumerate(payload.logs, start=1)),
            *((os.POSIX_SPAWN_DUP2, fd, fd) for fd in passed),  # or they would be closed
        ],
        setpgroup=0,
        setsigmask=SIGNALS,  # what comes before the task can take it is kept for it
        setsigdef=_FRESH_SIGNALS,
    )


def be_payload(directory: str, script_name: str, parent: str, deadline: str, report: str, kept: str) -> int:
    """In that interpreter: become the job; its exit code."""
    machine = this_machine()
    paths = JobPaths(directory, script_name)
    os.set_inheritable(int(report), False)
    launch = read_launch(machine.files, paths)
    if launch is None:
        Reporter(int(report)).failed(JobFailureStatus.FAILED, "EXEC: the job's launch record is gone")
        return CANNOT_EXECUTE
    instructions = Instructions.of(launch)
    return run_payload(
        Payload(
            machine=machine,
            paths=paths,
            launch=launch,
            instructions=instructions,
            logs=(1, 2),
            report=int(report),
            descendants=int(kept),
            deadline=None if deadline == _ENDLESS else float(deadline),
            memory=limit_in_force(instructions.limits.memory_bytes, launch.nonce),
            parent=int(parent),
        )
    )
