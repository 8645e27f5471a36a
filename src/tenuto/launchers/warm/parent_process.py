"""A warm parent: answers each order by forking, and returns, in the child, what the child is to run.
Single-threaded, and it never runs anything of the user's but imports. Its death harms no job.
"""

from __future__ import annotations

import os
import select
from _socket import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tenuto.launchers.kernel import fork_quietly, look_up_functions
from tenuto.launchers.runner.runner_protocol import SIGNALS, Inherited
from tenuto.launchers.warm.order import take_on
from tenuto.launchers.warm.wire import Received, close_all, receive, send
from tenuto.light import late, signal
from tenuto.workspace.machine import this_machine

if TYPE_CHECKING:
    from tenuto.launchers.warm import preload
    from tenuto.launchers.warm.preload import Loaded
else:
    preload = late("tenuto.launchers.warm.preload")

_REAP_EVERY_S = 1.0
_LEAST_DESCRIPTORS = 3


class Parent:
    """The process that forks."""

    def __init__(self, fd: int, pid: int) -> None:
        """`fd`: a socket, with the launcher at its other end; `pid`: the launcher's."""
        self._socket = socket(fileno=fd)
        self._loaded: Loaded | None = None
        self._python = ""
        self._machine = this_machine()
        self._runners: set[int] = set()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        # A process that the launcher's forked may keep the other end open after the launcher died.
        self._launcher_exit = os.pidfd_open(pid)
        self._poll.register(self._launcher_exit, select.POLLIN)

    def _load(self) -> bool:
        """Do what the first message says, and say how it went."""
        first = self._next()
        if first is None:
            return False
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        look_up_functions()
        self._python = first.content.pop("python")
        if first.content["classes"]:
            found = preload.load(**first.content)
            if not isinstance(found, preload.Loaded):
                send(self._socket, {"unfit": found.why, "spares_help": found.spares_help})
                return False
            self._loaded = found
        send(self._socket, {"loaded": True})
        return True

    def serve(self) -> Inherited | None:
        """Serve the launcher; None once the launcher is gone. Returns once more in every child."""
        if not self._load():
            return None
        while (order := self._next()) is not None:
            if "kill" in order.content:
                self._kill(order.content["kill"])
                continue
            why_not = self._why_not(order)
            if why_not is not None:
                close_all(order.descriptors)
                self._answer(order, why_not)
            elif self._fork(order) == 0:
                return self._become_runner(order)
        return None

    def _next(self) -> Received | None:
        """The next message, and the burial of runners meanwhile; None if there will be none."""
        while True:
            self._reap()
            events = dict(self._poll.poll(_REAP_EVERY_S * 1000 if self._runners else None))
            if self._socket.fileno() in events:
                return receive(self._socket)
            if self._launcher_exit in events:
                return None

    def _why_not(self, order: Received) -> dict[str, Any] | None:
        if order.cut or len(order.descriptors) < _LEAST_DESCRIPTORS:
            return {"errno": 24, "problem": "the warm parent has no descriptor left"}
        if self._loaded is None:
            return None
        changed = self._loaded.sources.changed()
        if changed is not None:
            return {"stale": changed}
        asked = sorted(filter(self._loaded.asked.matters, order.content["environment"]))
        return {"environment": asked[0]} if asked else None

    def _fork(self, order: Received) -> int:
        """Fork; in the parent, answer. The descriptors are closed before the next message is received."""
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            pid = fork_quietly()
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            close_all(order.descriptors)
            self._answer(order, {"errno": error.errno, "problem": f"fork: {error.strerror}"})
            return -1
        if pid == 0:
            return 0
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._runners.add(pid)
        # The second byte first: a holder of it without the first is taken for a leftover, and killed.
        close_all(order.descriptors[::-1])
        handle = []
        with suppress(OSError):  # no descriptor left: the launcher opens it itself
            handle.append(os.pidfd_open(pid))
        self._answer(order, {"pid": pid}, handle)
        close_all(handle)
        return pid

    def _answer(self, order: Received, answer: dict[str, Any], descriptors: list[int] | None = None) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # the end is seen when the next is received
            send(self._socket, {"number": order.content["number"], **answer}, descriptors or ())

    def _kill(self, pid: int) -> None:
        """A runner that its launcher cannot watch must not run. Its pid is its own until it is reaped."""
        if pid in self._runners:
            os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        while self._runners:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._runners.discard(pid)

    def _become_runner(self, order: Received) -> Inherited:
        """In the child: shed the parent's state, and put on the launcher's present environment."""
        self._socket.close()
        return take_on(order, self._python, self._machine, self._loaded)
