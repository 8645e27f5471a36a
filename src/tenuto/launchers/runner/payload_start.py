"""The start of a payload, forked or in a fresh interpreter: waits for the job's turn, and for a process.
What happens in that process is the payload's own: `payload.run_payload`, or `assignment.be_payload`.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable

from tenuto.errors import WorkspaceError
from tenuto.launchers.instructions import Instructions
from tenuto.launchers.kernel import fork_quietly
from tenuto.launchers.payload.assignment import Assignment
from tenuto.launchers.payload.payload import Payload, added_variables
from tenuto.launchers.runner.runner_protocol import ENDING, ENTRY, FRESH_SIGNALS, PLAIN, SIGNALS, Inherited
from tenuto.launchers.runner.verdict import PASSING
from tenuto.light import signal
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.ports import LockHandle, Machine

STOPPED = -1
WITHDRAWN = -2
_START_AGAIN_S = 0.5
_LOOK_AGAIN_S = 0.05
"""How soon a runner asks again for the turn of its job."""
_PATIENCE_S = 60.0
"""How long a runner waits for the machine to have a process for its payload."""
_TURNS = (1 << 61) - 1
_NOT_OURS_TO_WRITE = (errno.EACCES, errno.EPERM, errno.EROFS)
_READ_AT_START = ("PYTHON", "LD_", "GLIBC_", "MALLOC_", "LANG", "LC_", "TZ")
"""Variables that an interpreter or the C library reads at its start: too late for a child."""


def start_patiently(payload: Payload, inherited: Inherited) -> int:
    """Start the payload; while the machine has no process left for it, or another runner has the job, wait.

    Returns `STOPPED` if a stop is asked for meanwhile, `WITHDRAWN` if the wait was in vain.
    """
    clock = payload.machine.clock
    give_up = clock.monotonic() + _PATIENCE_S
    turn = Turn(payload.machine, payload.paths, payload.instructions)
    while True:
        pause_s = _START_AGAIN_S
        try:
            if payload.launch.external or turn.take():
                return _start(payload, inherited)
            pause_s = _LOOK_AGAIN_S
        except OSError as error:
            if error.errno not in PASSING:
                raise
        if signal.sigtimedwait(ENDING, pause_s) is not None:
            return STOPPED
        if clock.monotonic() >= give_up:
            # The pid record first: a job with one may have run, and its attempt is a try.
            payload.machine.files.remove(payload.paths.pid)
            if not payload.launch.external:  # else the exit code tells: another attempt may be there by now
                record = payload.launch._replace(withdrawn=True).encode()
                payload.machine.files.replace(payload.paths.launch, record, durable=False)
            return WITHDRAWN


def _start(payload: Payload, inherited: Inherited) -> int:
    """Start the payload; returns, in one that was forked, 0."""
    if payload.instructions.program is not None:
        return fork_quietly()
    is_forkable = inherited.is_forkable and not _needs_a_fresh_one(payload.instructions.environment)
    if inherited.preloaded is not None or is_forkable:
        return os.fork()
    ahead = None if inherited.spare is None else inherited.spare.take_over(payload)
    return _start_afresh(payload, inherited.python) if ahead is None else ahead


class Turn:
    """What one runner of a job has at a time, whatever becomes of the job's directory.

    Not the job's lock, which lies in that directory: with the directory deleted, another runner has another
    lock. A turn is one byte of a file of the workspace, which the kernel frees with the runner.
    """

    def __init__(self, machine: Machine, paths: JobPaths, instructions: Instructions) -> None:
        self._machine = machine
        self._path = instructions.layout(paths).turns
        name = f"{instructions.task_id}/{instructions.job_id}"
        self._byte = int.from_bytes(name.encode(), "big") % _TURNS
        self._lock: LockHandle | None = None

    def take(self) -> bool:
        """False while another runner has the job; that one ends when it sees that its directory is gone.

        Where the workspace cannot have such a file there are no turns, and only the job's lock decides.
        """
        if self._lock is not None or sys.platform != "linux":
            return True
        try:
            self._lock = self._machine.locks.try_lock(self._path, self._byte)
        except WorkspaceError:
            return True
        except OSError as error:
            if error.errno in _NOT_OURS_TO_WRITE:
                return True
            raise
        return self._lock is not None


def _needs_a_fresh_one(variables: Iterable[str]) -> bool:
    """True if a job is given a variable that only an interpreter which starts with it would heed."""
    return any(name.startswith(_READ_AT_START) for name in variables)


def _start_afresh(payload: Payload, python: str) -> int:
    """Start the interpreter, with nothing of the runner's but what the payload is to have."""
    passed = (payload.report, payload.descendants)
    return os.posix_spawn(
        python,
        payload_arguments(
            python,
            payload.assignment,
            runner=payload.parent,
            report=payload.report,
            descendants=payload.descendants,
            memory_bytes=payload.instructions.limits.memory_bytes,
            nonce=payload.launch.nonce,
        ),
        {**os.environ, **added_variables(payload.instructions, payload.launch, payload.paths)},
        file_actions=[
            *((os.POSIX_SPAWN_DUP2, log, standard) for standard, log in enumerate(payload.logs, start=1)),
            *((os.POSIX_SPAWN_DUP2, fd, fd) for fd in passed),  # or they would be closed
        ],
        setpgroup=0,
        setsigmask=SIGNALS,  # a signal that comes before the task can take it is kept for it
        setsigdef=FRESH_SIGNALS,
    )


def payload_arguments(
    python: str,
    assignment: Assignment,
    *,
    runner: int,
    report: int,
    descendants: int,
    memory_bytes: int | None,
    nonce: str,
) -> list[str]:
    """The command line of a payload in a fresh interpreter, as `be_payload` reads it."""
    memory = "" if memory_bytes is None else memory_bytes
    settling = map(str, (runner, report, descendants, memory, nonce))
    return [python, *PLAIN, ENTRY, "--payload", *settling, assignment.argument()]
