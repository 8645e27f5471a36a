"""A process that helps a launcher, seen from there: started, spoken to through a socket, let go and buried.
Knows no order; warm parents and spares do.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from signal import SIGKILL
from socket import AF_UNIX, SOCK_SEQPACKET, socketpair
from typing import Any

from tenuto.launchers.protocols import StartOrder
from tenuto.launchers.runner.runner_protocol import ENTRY, SIGNALS
from tenuto.launchers.warm.wire import send
from tenuto.workspace.ports import Machine
from tenuto.workspace.processes import PidfdHandle


class Helper:
    """A process that this one started to take orders from it, through a socket, and that ends with it."""

    pid: int

    def __init__(self) -> None:
        self.usable = True
        self._socket, self._theirs = socketpair(AF_UNIX, SOCK_SEQPACKET)
        self._socket.setblocking(False)

    def _begin(
        self, python: str, flags: Sequence[str], word: str, variables: Mapping[str, str], first: Any
    ) -> None:
        """Starts it, as what `word` says, and sends it a first message."""
        with self._theirs:
            self.pid = self._spawn(python, flags, word, variables)
        with suppress(BrokenPipeError, ConnectionResetError):  # killed already: the first order finds out
            send(self._socket, first)

    def _spawn(self, python: str, flags: Sequence[str], word: str, variables: Mapping[str, str]) -> int:
        fd = self._theirs.fileno()
        return os.posix_spawn(
            python,
            [python, *flags, ENTRY, word, str(fd), str(os.getpid())],
            variables,
            file_actions=[
                *((os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)),
                (os.POSIX_SPAWN_DUP2, fd, fd),
            ],
            setsid=True,  # a Ctrl-C in the terminal must not reach it
            setsigmask=SIGNALS,
            setsigdef=SIGNALS,
        )

    def close(self) -> None:
        """Let it go: it ends when it sees that its launcher is gone."""
        self.usable = False
        self._socket.close()

    def reap(self) -> bool:
        """Whether the process is gone."""
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] != 0
        except ChildProcessError:  # a `wait` of the user's script got it
            return True


_retired: list[Helper] = []
"""Those that were told to end, and may not have yet. Of all launchers: a caller that closes one does not wait
for their end, and then no launcher has them."""


def retire(helper: Helper) -> None:
    """Release a process, and remember it until it has ended."""
    helper.close()
    if helper not in _retired:
        _retired.append(helper)


def bury() -> bool:
    """Reap helpers that ended; whether some have not."""
    for helper in list(_retired):
        if helper.reap() and helper in _retired:
            _retired.remove(helper)
    return bool(_retired)


def watched(machine: Machine, pid: int) -> PidfdHandle:
    """The handle of a runner that was started; one that cannot be watched must not run. Raises `OSError`."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:  # no descriptor left
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, SIGKILL)
            os.waitpid(pid, 0)
        raise
    own = machine.processes.own()._replace(pid=pid, start_time=0)
    return PidfdHandle(machine.processes.identify(pid) or own, fd)


def order_of(
    order: StartOrder, changes: Mapping[str, str | None], why_fresh: str | None, ready: int
) -> tuple[dict[str, Any], list[int]]:
    """What a helper is told of the job that it is to run, and the descriptors that go with it."""
    content = {
        "directory": order.paths.directory,
        "script_name": order.paths.script_name,
        "nonce": order.launch.nonce,
        "environment": changes,
        "why_fresh": why_fresh,
    }
    locks = (lock.fileno() for lock in order.locks)
    return content, [*locks, ready, *(token.fileno() for token in order.tokens)]
