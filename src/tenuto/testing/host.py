"""A whole pretended machine: one disk, one clock, one table of processes and of locks.
Each process on it has its own `Machine`; the end of a process frees its locks.
"""

from __future__ import annotations

from collections.abc import Callable

from tenuto.testing.clock import FakeClock, FakeRandomness
from tenuto.testing.disk import FakeDisk
from tenuto.testing.locks import FakeLocks
from tenuto.testing.processes import FakeProcesses
from tenuto.workspace.ports import Machine


class FakeHost:
    """Builds the ports of the processes that run on it."""

    def __init__(
        self, seed: int = 0, *, disk: FakeDisk | None = None, clock: FakeClock | None = None
    ) -> None:
        self.disk = disk or FakeDisk()
        self.clock = clock or FakeClock()
        self.randomness = FakeRandomness(seed)
        self.processes = FakeProcesses()
        self.locks = FakeLocks(self.disk, self.processes)

    def start(self) -> int:
        """A new process; its pid."""
        return self.processes.start()

    def end(self, pid: int) -> None:
        self.processes.end(pid)

    def machine(self, pid: int | None = None) -> Machine:
        """The ports of process `pid`, or of a first process that always exists."""
        if pid is None:
            return Machine(self.disk, self.locks, self.processes, self.clock, self.randomness)
        processes = self.processes.seen_by(pid)
        return Machine(self.disk, self.locks.seen_by(pid), processes, self.clock, self.randomness)

    def power_loss(self, survives: Callable[[str], bool] = lambda path: False) -> None:
        """Everything not synced is lost, and every process; the machine is up again."""
        self.disk.power_loss(survives)
        self.processes.reboot()
