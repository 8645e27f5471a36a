"""Locks held by fake processes: freed when the last of them that has the descriptor ends.
Shares its files with a `FakeDisk`, so a deleted lock file is noticed as on a real one.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count

from tenuto.errors import LockLost, NotRegularFile
from tenuto.testing.disk import FakeDisk
from tenuto.testing.processes import FakeProcesses
from tenuto.workspace.ports import RUNNER_BYTE, FileKind, Liveness, ProcessIdentity


class _OpenLock:
    """An open file description that holds a byte, and the processes that have it open."""

    def __init__(self, fd: int, inode: int, byte: int) -> None:
        self.fd = fd
        self.inode = inode
        self.byte = byte
        self.owners: set[ProcessIdentity] = set()


class FakeLocks:
    """`Locks`, as one fake process sees them."""

    def __init__(self, disk: FakeDisk, processes: FakeProcesses) -> None:
        self._disk = disk
        self._processes = processes
        self._me = processes.own()
        self._descriptors = count(1000)
        self._open: dict[int, _OpenLock] = {}
        self._by_place: dict[tuple[int, int], list[_OpenLock]] = {}
        """The same locks by inode and byte: a large simulation asks for one of thousands."""

    def seen_by(self, pid: int) -> FakeLocks:
        """The same locks, as another process sees them."""
        view = FakeLocks(self._disk, self._processes.seen_by(pid))
        view._descriptors = self._descriptors
        view._open = self._open
        view._by_place = self._by_place
        return view

    def inherit(self, handle: FakeLock, pid: int) -> None:
        """A process forked from the holder has the descriptor too."""
        child = self._processes.identify(pid)
        assert child is not None, f"there is no process {pid}"
        self._open[handle.fileno()].owners.add(child)

    def try_lock(self, path: str, byte: int = RUNNER_BYTE) -> FakeLock | None:
        found = self._disk.stat(path)
        if found is None:
            with suppress(FileExistsError):  # somebody else was faster
                self._disk.create_exclusive(path)
            found = self._disk.stat(path)
        assert found is not None
        if found.kind is not FileKind.FILE:
            raise NotRegularFile(f"{path} is not a file, so it cannot be locked")
        if self._holding(found.inode, byte):
            return None
        held = _OpenLock(next(self._descriptors), found.inode, byte)
        held.owners.add(self._me)
        self._open[held.fd] = held
        self._by_place.setdefault((held.inode, byte), []).append(held)
        return FakeLock(self, path, held)

    def adopt(self, fd: int, path: str, byte: int = RUNNER_BYTE) -> FakeLock:
        held = self._open.get(fd)
        found = self._disk.stat(path)
        if held is None or found is None or (held.inode, held.byte) != (found.inode, byte):
            raise LockLost(f"descriptor {fd} does not hold the lock {path}")
        held.owners.add(self._me)
        return FakeLock(self, path, held)

    def is_locked(self, path: str, byte: int = RUNNER_BYTE) -> bool:
        return bool(self.holders(path, byte))

    def holders(self, path: str, byte: int = RUNNER_BYTE) -> tuple[int, ...]:
        found = self._disk.stat(path)
        return () if found is None else tuple(sorted(self._holding(found.inode, byte)))

    def _holding(self, inode: int, byte: int) -> set[int]:
        pids: set[int] = set()
        for held in list(self._by_place.get((inode, byte), ())):
            alive = {owner for owner in held.owners if self._processes.liveness(owner) is Liveness.ALIVE}
            if alive:
                pids |= {owner.pid for owner in alive}
            else:
                del self._open[held.fd]  # else each look would go through all locks there ever were
                self._by_place[inode, byte].remove(held)
        return pids

    def _intact(self, path: str, held: _OpenLock) -> bool:
        found = self._disk.stat(path)
        return found is not None and found.inode == held.inode and self._me in held.owners

    def _close(self, held: _OpenLock) -> None:
        held.owners.discard(self._me)


class FakeLock:
    """A `LockHandle` of a fake process."""

    def __init__(self, locks: FakeLocks, path: str, held: _OpenLock) -> None:
        self.path = path
        self.byte = held.byte
        self._locks = locks
        self._held = held

    def fileno(self) -> int:
        return self._held.fd

    def intact(self) -> bool:
        return self._locks._intact(self.path, self._held)

    def close(self) -> None:
        self._locks._close(self._held)
