"""One spare, seen from the launcher: a runner that waits for a job beside an interpreter that imports ahead.
`spares` decides how many there are, and for which jobs.
"""

from __future__ import annotations

import os
from contextlib import suppress
from signal import SIGKILL
from socket import AF_UNIX, SOCK_SEQPACKET, socket, socketpair

from tenuto.launchers.local import LocalProcess
from tenuto.launchers.protocols import StartOrder
from tenuto.launchers.runner.terms import BARE, ENTRY, SIGNALS
from tenuto.launchers.warm.needs import Needs, ProcessVariables
from tenuto.launchers.warm.parent import changed_variables
from tenuto.launchers.warm.wire import MessageTooLong, receive, send
from tenuto.workspace.ports import Machine
from tenuto.workspace.processes import PidfdHandle

_GONE = (BrokenPipeError, ConnectionResetError)


class Spare:
    """A runner without a job."""

    def __init__(self, machine: Machine, python: str, needs: Needs, environment: ProcessVariables) -> None:
        """Raises `OSError` if it cannot be started."""
        self.needs = needs
        self.environment = environment
        self.changed = needs.changed()
        """When the files of the modules had last been changed, before they are imported."""
        self.size: int | None = None
        """Bytes that it fills, once it has imported everything."""
        self.is_up = False
        """Its interpreter runs: before that, to wait for it is no better than to start another."""
        self.unfit: str | None = None
        """Why its modules cannot be imported ahead of time, if they cannot."""
        self.usable = True
        self._socket, theirs = socketpair(AF_UNIX, SOCK_SEQPACKET)
        self._socket.setblocking(False)
        try:
            with theirs:
                self.pid = self._spawn(python, theirs)
            self._handle = self._open(machine)
        except BaseException:
            self._socket.close()
            raise
        content = {"classes": needs.classes, "import_path": needs.import_path, "python": python}
        with suppress(*_GONE):  # killed already: `hear` finds out
            send(self._socket, {**content, "environment": dict(needs.environment)})

    def _spawn(self, python: str, theirs: socket) -> int:
        fd = theirs.fileno()
        return os.posix_spawn(
            python,
            [python, *BARE, ENTRY, "--spare", str(fd), str(os.getpid())],
            self.environment.variables,
            file_actions=[
                *((os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)),
                (os.POSIX_SPAWN_DUP2, fd, fd),
            ],
            setsid=True,  # a Ctrl-C in the terminal must not reach it
            setsigmask=SIGNALS,
            setsigdef=SIGNALS,
        )

    def _open(self, machine: Machine) -> PidfdHandle:
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:  # no descriptor left: a runner that cannot be watched must not run
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(self.pid, SIGKILL)
                os.waitpid(self.pid, 0)
            raise
        own = machine.processes.own()._replace(pid=self.pid, start_time=0)
        return PidfdHandle(machine.processes.identify(self.pid) or own, fd)

    def hear(self) -> None:
        """Take in what it said so far."""
        while self.usable:
            try:
                received = receive(self._socket)
            except BlockingIOError:
                return
            if received is None or "gone" in received.content:
                self.usable = False
            elif "unfit" in received.content:
                self.unfit = received.content["unfit"]
                self.usable = False
            elif "loaded" in received.content:
                self.size = received.content["loaded"]
            self.is_up = True

    def is_stale(self) -> bool:
        """Whether a file of the modules has changed since; of files that they import it knows itself."""
        return self.changed != self.needs.changed()

    def start(
        self, launcher: str, order: StartOrder, environment: ProcessVariables, why_fresh: str
    ) -> LocalProcess | None:
        """Make it the runner of a job; None if it cannot be, and nothing was started. It is used up then."""
        content = {
            "directory": order.paths.directory,
            "script_name": order.paths.script_name,
            "nonce": order.launch.nonce,
            "environment": changed_variables(self.environment.variables, environment.variables),
            "why_fresh": why_fresh,
        }
        ready, ready_there = os.pipe()
        os.set_blocking(ready, False)
        locks = (lock.fileno() for lock in order.locks)
        tokens = (token.fileno() for token in order.tokens)
        try:
            send(self._socket, content, [*locks, ready_there, *tokens])
        except (*_GONE, BlockingIOError, MessageTooLong):
            os.close(ready)
            return None
        except BaseException:
            os.close(ready)
            raise
        finally:
            os.close(ready_there)
        self.usable = False
        self._socket.close()
        return LocalProcess(launcher, self._handle, order.launch.attempt, ready=ready, child=True)

    def close(self) -> None:
        """Let it go: it ends, with its interpreter."""
        self.usable = False
        with suppress(OSError):  # a process that was forked from this one may keep the socket open
            send(self._socket, {"end": True})
        self._socket.close()
        self._handle.close()

    def reap(self) -> bool:
        """Whether the process is gone."""
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] != 0
        except ChildProcessError:  # another `wait` of this process got it
            return True
