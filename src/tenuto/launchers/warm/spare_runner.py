"""A runner that waits for its job, with an interpreter beside it that imports the job's modules meanwhile.
Until its order comes it belongs to no job, holds no lock, and ends with its launcher.
"""

from __future__ import annotations

import os
import select
from _socket import AF_UNIX, SOCK_CLOEXEC, SOCK_SEQPACKET, socket, socketpair
from contextlib import suppress
from signal import SIGKILL
from typing import Any

from tenuto.launchers.payload.payload import Payload, added_variables
from tenuto.launchers.runner.runner_protocol import ENTRY, FRESH_SIGNALS, PLAIN, Inherited
from tenuto.launchers.warm.order import take_on
from tenuto.launchers.warm.wire import MessageTooLong, receive, send
from tenuto.workspace.machine import this_machine

_GONE = (BrokenPipeError, ConnectionResetError)


def await_order(fd: int, launcher: int) -> Inherited | None:
    """Start the interpreter, and wait for a job; None if the launcher has none for this runner any more.

    `fd`: a socket with the launcher at its other end; `launcher`: its pid.
    """
    own = socket(fileno=fd)
    os.set_inheritable(fd, False)
    launcher_exit = os.pidfd_open(launcher)
    first = receive(own)
    if first is None:
        return None
    python = first.content.pop("python")
    interpreter = Interpreter(python, first.content)
    poll = select.poll()
    for one in (fd, launcher_exit, interpreter.fileno()):
        poll.register(one, select.POLLIN)
    while True:
        events = dict(poll.poll())
        if fd in events:
            order = receive(own)
            if order is None or "end" in order.content:
                return None
            interpreter.changes = order.content["environment"]
            return take_on(order, python, this_machine(), spare=interpreter)
        if launcher_exit in events:
            return None
        word = receive(interpreter.socket)
        if word is None:  # it ended: an order that is on its way still finds a runner
            poll.unregister(interpreter.fileno())
        with suppress(*_GONE):
            send(own, {"gone": True} if word is None else word.content)


class Interpreter:
    """The process that imports ahead of time; a child of the runner, as every payload is. A `Spare`."""

    def __init__(self, python: str, needs: dict[str, Any]) -> None:
        self.socket, theirs = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC)
        self.changes: dict[str, str | None] = {}
        """Variables of the launcher that changed since the interpreter started."""
        self._printed = tuple(os.memfd_create(name, os.MFD_CLOEXEC) for name in ("out", "err"))
        try:
            self.pid = self._spawn(python, theirs.fileno())
        finally:
            theirs.close()
        with suppress(*_GONE):  # an interpreter that died is found out when it is needed
            send(self.socket, {**needs, "python": python})

    def _spawn(self, python: str, fd: int) -> int:
        return os.posix_spawn(
            python,
            [python, *PLAIN, ENTRY, "--spare-payload", str(fd), str(os.getpid())],
            os.environ,
            file_actions=[
                *((os.POSIX_SPAWN_DUP2, kept, standard) for standard, kept in enumerate(self._printed, 1)),
                (os.POSIX_SPAWN_DUP2, fd, fd),
            ],
            setpgroup=0,
            setsigmask=(),
            setsigdef=FRESH_SIGNALS,
        )

    def fileno(self) -> int:
        return self.socket.fileno()

    def descriptors(self) -> tuple[int, ...]:
        return (self.fileno(), *self._printed)

    def take_over(self, payload: Payload) -> int | None:
        """Give the interpreter its job; its pid, or None if it has ended, and a fresh one is needed."""
        content = {
            "assignment": payload.assignment.fields(),
            "memory_bytes": payload.instructions.limits.memory_bytes,
            "nonce": payload.launch.nonce,
            "variables": added_variables(payload.instructions, payload.launch, payload.paths),
            "changes": self.changes,
        }
        try:
            if not self._is_ending():
                send(self.socket, content, (payload.report, payload.descendants, *payload.logs))
                return self.pid
        except (MessageTooLong, *_GONE):
            os.kill(self.pid, SIGKILL)
        os.waitpid(self.pid, 0)
        return None

    def _is_ending(self) -> bool:
        """Whether its first thread is gone: others may take a moment longer, and keep its socket open."""
        with open(f"/proc/{self.pid}/stat", "rb") as stream:
            return stream.read().rpartition(b")")[2].split()[0] == b"Z"

    def close(self, logs: tuple[int, int]) -> None:
        """The payload has ended: its output from before it had its logs belongs there, too."""
        self.socket.close()
        for kept, log in zip(self._printed, logs, strict=True):
            size = os.fstat(kept).st_size
            with suppress(OSError):  # a full disk: the verdict is more than the words
                if size:
                    os.write(log, os.pread(kept, size, 0))
            os.close(kept)
