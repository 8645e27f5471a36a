"""Locks held by fake processes: freed when the last of them that has the descriptor ends.
Shares its files with a `FakeDisk`, so a deleted lock file is noticed as on a real one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import count

from tenuto.errors import LockLost, NotRegularFile
from tenuto.testing.disk import FakeDisk
from tenuto.testing.processes import FakeProcesses
from tenuto.workspace.ports import RUNNER_BYTE, FileKind, Liveness, ProcessIdentity


class _OpenLock:
    """An open file description that holds bytes, and the processes that have it open."""

    def __init__(self, fd: int, inode: int, numbers: frozenset[int]) -> None:
        self.fd = fd
        self.inode = inode
        self.numbers = numbers
        self.owners: set[ProcessIdentity] = set()


class FakeLocks:
    """`Locks`, as one fake process sees them."""

    def __init__(self, disk: FakeDisk, processes: FakeProcesses) -> None:
        self._disk = disk
        self._processes = processes
        self._me = processes.own()
        self._descriptors = count(1000)
        self._open: dict[int, _OpenLock] = {}
        self._by_inode: dict[int, list[_OpenLock]] = {}
        """The same locks by file: a large simulation asks for one of thousands."""

    def seen_by(self, pid: int) -> FakeLocks:
        """The same locks, as another process sees them."""
        view = FakeLocks(self._disk, self._processes.seen_by(pid))
        view._descriptors = self._descriptors
        view._open = self._open
        view._by_inode = self._by_inode
        return view

    def inherit(self, handle: FakeLock, pid: int) -> None:
        """A process forked from the holder has the descriptor too."""
        child = self._processes.identify(pid)
        assert child is not None, f"there is no process {pid}"
        self._open[handle.fileno()].owners.add(child)

    def try_lock(self, path: str, byte: int = RUNNER_BYTE) -> FakeLock | None:
        taken = self.try_lock_all(path, [byte])
        return None if taken is None else taken[0]

    def try_lock_all(self, path: str, numbers: Sequence[int]) -> tuple[FakeLock, ...] | None:
        found = self._disk.stat(path)
        if found is None:
            with suppress(FileExistsError):  # another process was faster
                self._disk.create_exclusive(path)
            found = self._disk.stat(path)
        assert found is not None
        if found.kind is not FileKind.FILE:
            raise NotRegularFile(f"{path} is not a file, so it cannot be locked")
        if any(self._holding(found.inode, byte) for byte in numbers):
            return None
        held = _OpenLock(next(self._descriptors), found.inode, frozenset(numbers))
        held.owners.add(self._me)
        self._open[held.fd] = held
        self._by_inode.setdefault(held.inode, []).append(held)
        return (FakeLock(self, path, held),)

    def locked(self, path: str) -> frozenset[int]:
        found = self._disk.stat(path)
        if found is None:
            return frozenset()
        return frozenset(byte for held in self._alive(found.inode) for byte in held.numbers)

    def adopt(self, fd: int, path: str, byte: int = RUNNER_BYTE) -> FakeLock:
        held = self._open.get(fd)
        found = self._disk.stat(path)
        if held is None or found is None or held.inode != found.inode or byte not in held.numbers:
            raise LockLost(f"descriptor {fd} does not hold the lock {path}")
        held.owners.add(self._me)
        return FakeLock(self, path, held)

    def is_locked(self, path: str, byte: int = RUNNER_BYTE, length: int = 1) -> bool:
        return any(byte <= held < byte + length for held in self.locked(path))

    def holders(self, path: str, byte: int = RUNNER_BYTE) -> tuple[int, ...]:
        found = self._disk.stat(path)
        return () if found is None else tuple(sorted(self._holding(found.inode, byte)))

    def _holding(self, inode: int, byte: int) -> set[int]:
        return {
            owner.pid
            for held in self._alive(inode)
            if byte in held.numbers
            for owner in held.owners
            if self._processes.liveness(owner) is Liveness.ALIVE
        }

    def _alive(self, inode: int) -> list[_OpenLock]:
        """The locks on a file that a living process has open; others are forgotten."""
        there = self._by_inode.get(inode, [])
        for held in list(there):
            if not any(self._processes.liveness(owner) is Liveness.ALIVE for owner in held.owners):
                del self._open[held.fd]
                there.remove(held)
        return there

    def _intact(self, path: str, held: _OpenLock) -> bool:
        found = self._disk.stat(path)
        return found is not None and found.inode == held.inode and self._me in held.owners

    def _close(self, held: _OpenLock) -> None:
        held.owners.discard(self._me)


class FakeLock:
    """A `LockHandle` of a fake process."""

    def __init__(self, locks: FakeLocks, path: str, held: _OpenLock) -> None:
        self.path = path
        self.byte = min(held.numbers)
        self._locks = locks
        self._held = held

    def fileno(self) -> int:
        return self._held.fd

    def intact(self) -> bool:
        return self._locks._intact(self.path, self._held)

    def close(self) -> None:
        self._locks._close(self._held)
