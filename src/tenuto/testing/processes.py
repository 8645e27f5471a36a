"""Processes that exist only as entries of a table.
They run nothing; a test or a simulator says when one starts and ends.
"""

from __future__ import annotations

import signal as signals
from itertools import count

from tenuto.workspace.ports import Liveness, ProcessIdentity


class _Table:
    """What a kernel knows."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.boots = 1
        self.ticks = count(1)
        self.running: dict[int, ProcessIdentity] = {}
        self.signals: list[tuple[int, int]] = []


class FakeProcesses:
    """`Processes` of a pretended machine, as one of its processes sees them."""

    def __init__(self, *, own_pid: int | None = None, table: _Table | None = None) -> None:
        self._table = table or _Table("fakehost")
        self.own_pid = self.start() if own_pid is None else own_pid

    def seen_by(self, pid: int) -> FakeProcesses:
        """The same machine, as another process sees it."""
        return FakeProcesses(own_pid=pid, table=self._table)

    def start(self, pid: int | None = None) -> int:
        """A new process; `pid` may reuse that of an ended one."""
        tick = next(self._table.ticks)
        pid = pid or 1000 + tick
        assert pid not in self._table.running, f"pid {pid} is in use"
        self._table.running[pid] = ProcessIdentity(
            self._table.host, f"boot-{self._table.boots}", "pid:[1]", pid, tick
        )
        return pid

    def end(self, pid: int) -> None:
        """The process is gone, and with it every descriptor it had."""
        self._table.running.pop(pid, None)

    def reboot(self) -> None:
        """Every process is gone, and the machine has another boot id."""
        self._table.running.clear()
        self._table.boots += 1

    def running(self, pid: int) -> bool:
        return pid in self._table.running

    @property
    def signals(self) -> list[tuple[int, int]]:
        """(pid, signal), in the order they were sent."""
        return self._table.signals

    def own(self) -> ProcessIdentity:
        return self._table.running[self.own_pid]

    def identify(self, pid: int) -> ProcessIdentity | None:
        return self._table.running.get(pid)

    def liveness(self, identity: ProcessIdentity) -> Liveness:
        if identity.host != self._table.host:
            return Liveness.UNKNOWN
        if identity.boot_id != f"boot-{self._table.boots}":
            return Liveness.REBOOTED
        if identity.pid_namespace != "pid:[1]":
            return Liveness.UNKNOWN
        return Liveness.ALIVE if self._table.running.get(identity.pid) == identity else Liveness.DEAD

    def open(self, identity: ProcessIdentity) -> FakeProcessHandle | None:
        return FakeProcessHandle(self, identity) if self.liveness(identity) is Liveness.ALIVE else None


class FakeProcessHandle:
    """A `ProcessHandle`. KILL ends the process; any other signal is only noted in `signals`."""

    def __init__(self, processes: FakeProcesses, identity: ProcessIdentity) -> None:
        self.identity = identity
        self._processes = processes

    def fileno(self) -> int:
        return self.identity.pid

    def send_signal(self, signal: int) -> bool:
        if self.ended():
            return False
        self._processes.signals.append((self.identity.pid, signal))
        if signal == signals.SIGKILL:
            self._processes.end(self.identity.pid)
        return True

    def ended(self) -> bool:
        return self._processes.liveness(self.identity) is not Liveness.ALIVE

    def close(self) -> None:
        pass
