"""The processes of this machine, by /proc and pidfd.
A pid alone is never trusted: it is another process's soon after its process ended.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tenuto.light import late
from tenuto.light import signal as signals
from tenuto.workspace.json_bytes import from_json, to_json
from tenuto.workspace.ports import Liveness, Processes, ProcessIdentity

if TYPE_CHECKING:
    import select
else:
    select = late("select")  # a runner waits for its child, and opens no other process

_STATE = 0
_START_TIME = 19
_GONE = (b"Z", b"X", b"x")
_LONGEST_STAT = 4096


def process_text(identity: ProcessIdentity) -> str:
    """A process as a row of a database keeps it."""
    return to_json(identity._asdict()).decode()


def liveness_of(processes: Processes, text: str) -> Liveness:
    """What is known of a process that a row of a database keeps."""
    try:
        identity = ProcessIdentity(**from_json(text.encode()))
    except (ValueError, TypeError):
        return Liveness.UNKNOWN
    return processes.liveness(identity)


class SystemProcesses:
    """`Processes` of this Linux machine."""

    def __init__(self, boot_id: str | None = None) -> None:
        """`boot_id`: what to believe instead of the kernel's, to play a reboot in a test."""
        self._host = os.uname().nodename
        self._boot_id = boot_id or _boot_id()
        self._pid_namespace = _pid_namespace()
        self._own: ProcessIdentity | None = None

    def own(self) -> ProcessIdentity:
        if self._own is None or self._own.pid != os.getpid():  # forked since
            self._own = self.identify(os.getpid())
            assert self._own is not None, "a process that asks is alive"
        return self._own

    def identify(self, pid: int) -> ProcessIdentity | None:
        start_time = _start_time(pid)
        if start_time is None:
            return None
        return ProcessIdentity(self._host, self._boot_id, self._pid_namespace, pid, start_time)

    def liveness(self, identity: ProcessIdentity) -> Liveness:
        if identity.boot_id != self._boot_id:
            return Liveness.REBOOTED if identity.host == self._host else Liveness.UNKNOWN
        if identity.pid_namespace != self._pid_namespace:
            return Liveness.UNKNOWN
        return Liveness.ALIVE if _start_time(identity.pid) == identity.start_time else Liveness.DEAD

    def open(self, identity: ProcessIdentity) -> PidfdHandle | None:
        if self.liveness(identity) is not Liveness.ALIVE:
            return None
        try:
            fd = os.pidfd_open(identity.pid)
        except ProcessLookupError:
            return None
        # The process may have ended, and its pid have passed to another, between the look and the open.
        # A fact about the pid after the open is true of the descriptor.
        if self.liveness(identity) is not Liveness.ALIVE:
            os.close(fd)
            return None
        return PidfdHandle(identity, fd)


class PidfdHandle:
    """A `ProcessHandle` on a real process."""

    def __init__(self, identity: ProcessIdentity, fd: int) -> None:
        self.identity = identity
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def send_signal(self, signal: int) -> bool:
        try:
            signals.pidfd_send_signal(self._fd, signal)
        except ProcessLookupError:
            return False
        return True

    def ended(self) -> bool:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except FileNotFoundError:
        return "unknown"


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except FileNotFoundError:
        return "unknown"


def _start_time(pid: int) -> int | None:
    """When the process with this pid started, in clock ticks after boot; None if it ended."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(fd, _LONGEST_STAT)
        finally:
            os.close(fd)
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # the name before it may hold spaces and parentheses
    return None if fields[_STATE] in _GONE else int(fields[_START_TIME])
