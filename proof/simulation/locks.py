"""Owns the virtual locks: the judge is told of each that is taken, and may look without being noticed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tenuto.testing.disk import FakeDisk
from tenuto.testing.locks import FakeLock, FakeLocks
from tenuto.testing.processes import FakeProcesses


class SimulatedLocks(FakeLocks):
    """`FakeLocks` that a judge watches."""

    def __init__(
        self, disk: FakeDisk, processes: FakeProcesses, taken: Callable[[str, Sequence[int]], None]
    ) -> None:
        super().__init__(disk, processes)
        self._taken = taken

    def seen_by(self, pid: int) -> SimulatedLocks:
        view = SimulatedLocks(self._disk, self._processes.seen_by(pid), self._taken)
        view._descriptors, view._open, view._by_inode = self._descriptors, self._open, self._by_inode
        return view

    def try_lock_all(self, path: str, numbers: Sequence[int]) -> tuple[FakeLock, ...] | None:
        handles = super().try_lock_all(path, numbers)
        if handles is not None:
            self._taken(path, numbers)
        return handles

    def peek(self, path: str) -> frozenset[int]:
        """The bytes that are locked; nobody notices."""
        node = self._disk._find(path)
        held = [] if node is None else self._alive(node.number)
        return frozenset(byte for lock in held for byte in lock.numbers)
