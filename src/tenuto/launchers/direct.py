"""Starts each runner in a fresh interpreter: what other launchers do if they have no parent to fork from.
The slowest way, and the one that needs nothing.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from signal import SIGKILL
from typing import TYPE_CHECKING, Self

from tenuto.errors import LaunchRefused
from tenuto.launchers.instructions import Limits
from tenuto.launchers.local import LocalProcess, find_local, sweep_local
from tenuto.launchers.protocols import StartOrder
from tenuto.launchers.runner.terms import BARE, ENTRY, SIGNALS
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.machine import this_machine
from tenuto.workspace.modes import file_mode
from tenuto.workspace.ports import Machine
from tenuto.workspace.processes import PidfdHandle
from tenuto.workspace.records import LaunchRecord, PidRecord

if TYPE_CHECKING:
    from tenuto.launchers.requirements import Alternative

NEVER = (errno.E2BIG, errno.ENOEXEC)
"""What an attempt to start a program answers that waiting will not cure."""
_LOG = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW


class DirectLauncher:
    """Starts each runner in an interpreter of its own, without anything between."""

    name = "direct"
    external = False
    lock_path: str | None = None
    limits: Limits | None = None

    def __init__(
        self, machine: Machine | None = None, *, slots: int | None = None, python: str | None = None
    ) -> None:
        """`python`: by default this interpreter. `slots`: by default the cores this process may use."""
        self._machine = machine or this_machine()
        self._python = python or sys.executable
        self.slots = slots or len(os.sched_getaffinity(0))

    @property
    def pool(self) -> object:
        return self

    def adapted(self, alternative: Alternative) -> Self:
        """This launcher: the limits of a job on this machine go with the job."""
        return self

    async def start(self, order: StartOrder) -> LocalProcess:
        if not os.access(self._python, os.X_OK, effective_ids=True):
            raise LaunchRefused(f"EXEC: the Python interpreter {self._python!r} cannot be run")
        ready, said_ready = os.pipe()
        os.set_blocking(ready, False)
        try:
            pid = self._spawn(order, said_ready)
        except OSError as error:
            os.close(ready)
            if error.errno in NEVER:
                raise LaunchRefused(f"EXEC: {self._python} cannot be run: {error.strerror}") from error
            raise
        except BaseException:
            os.close(ready)
            raise
        finally:
            os.close(said_ready)
        return LocalProcess(
            self.name, self._handle(pid, ready), order.launch.attempt, ready=ready, child=True
        )

    def find(self, paths: JobPaths, launch: LaunchRecord, pid: PidRecord | None) -> LocalProcess | None:
        return find_local(self._machine, self.name, launch, pid)

    async def sweep(self, paths: JobPaths, launch: LaunchRecord | None) -> tuple[int, ...]:
        return await sweep_local(self._machine, paths, launch)

    def close(self) -> None:
        pass

    def _spawn(self, order: StartOrder, said_ready: int) -> int:
        paths = order.paths
        passed = [
            *(lock.fileno() for lock in order.locks),
            said_ready,
            *(token.fileno() for token in order.tokens),
        ]
        if min(passed) <= 2:
            raise LaunchRefused("this process runs without standard streams; start it with /dev/null instead")
        # Every descriptor is closed on exec. To duplicate one onto itself keeps it open in this child alone;
        # making it inheritable here would let a process that another thread starts meanwhile keep the lock.
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (
                os.POSIX_SPAWN_OPEN,
                2,
                paths.err,
                _LOG,
                file_mode(paths.err),
            ),  # where a runner that cannot begin complains
            (os.POSIX_SPAWN_DUP2, 2, 1),
            *((os.POSIX_SPAWN_DUP2, fd, fd) for fd in passed),
        ]
        job = (paths.directory, paths.script_name, order.launch.nonce)
        return os.posix_spawn(
            self._python,
            [self._python, *BARE, ENTRY, *job, self._python, *map(str, passed)],
            os.environ,
            file_actions=actions,
            setsid=True,  # before anything else: a Ctrl-C in the terminal must not reach a runner
            setsigmask=SIGNALS,
            setsigdef=SIGNALS,
        )

    def _handle(self, pid: int, ready: int) -> PidfdHandle:
        try:
            fd = os.pidfd_open(pid)
        except OSError:  # no descriptor left: a runner that cannot be watched must not run
            os.close(ready)
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, SIGKILL)
                os.waitpid(pid, 0)
            raise
        own = self._machine.processes.own()
        return PidfdHandle(self._machine.processes.identify(pid) or own._replace(pid=pid, start_time=0), fd)
