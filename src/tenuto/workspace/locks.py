"""Kernel locks on the bytes of a file, inherited with the descriptor and freed by the last copy's death.
Never `lockf` (falls with any close), never an explicit unlock, never a deleted lock file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise

from tenuto.errors import LockLost, LocksUnsupported, NotRegularFile
from tenuto.workspace.modes import file_mode
from tenuto.workspace.ports import RUNNER_BYTE, Locks

_OFD_GETLK = 36
_OFD_SETLK = 37
_FLOCK = struct.Struct("hhqqi4x")  # type, whence, start, length, pid
_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CANNOT_LOCK = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_TRIES = 100
_ALL_BYTES = 1 << 62

FileIdentity = tuple[int, int]
"""Device and inode."""


def system_locks() -> Locks:
    """The locks of this machine."""
    return OfdLocks()


class FileLock:
    """A `LockHandle` on a real file."""

    def __init__(self, fd: int, path: str, byte: int, file: FileIdentity) -> None:
        """`file`: that of the descriptor, which stays the same whatever becomes of the path."""
        self.path = path
        self.byte = byte
        self._fd = fd
        self._file = file

    def __repr__(self) -> str:
        return f"<lock on byte {self.byte} of {self.path}, descriptor {self._fd}>"

    def fileno(self) -> int:
        return self._fd

    def intact(self) -> bool:
        return self._fd >= 0 and _file_at(self.path) == self._file

    def is_open(self) -> bool:
        """True if its descriptor is still that of its file; `OSError` if it is that of none."""
        return _identity(os.fstat(self._fd)) == self._file

    def close(self) -> None:
        _not_for_children.discard(self)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_not_for_children: set[FileLock] = set()


class _Children:
    """What the processes get that this one forks."""

    get_locks = True


def keep_from_children() -> None:
    """Close the locks that this process takes from now on in every process that it forks.

    For a scheduler, in whose process a person's script may fork: `multiprocessing` would keep the units of
    tokens and the locks of jobs and experiments, whose holder is then named by a process that is gone.
    Not for a runner, whose payload is to have one of its locks.
    """
    if _Children.get_locks:
        os.register_at_fork(after_in_child=_close_in_child)
        _Children.get_locks = False


def _close_in_child() -> None:
    for lock in list(_not_for_children):
        with suppress(OSError):  # a descriptor that the script closed must not keep the other locks
            if lock.is_open():  # else its number may be that of another file by now
                lock.close()


class OfdLocks:
    """`Locks` by open file descriptions.

    Each `try_lock` opens the file anew, so two handles exclude each other even within one process.
    """

    def try_lock(self, path: str, byte: int = RUNNER_BYTE) -> FileLock | None:
        return self._try(path, byte, [(byte, 1)])

    def try_lock_all(self, path: str, numbers: Sequence[int]) -> tuple[FileLock, ...] | None:
        taken = self._try(path, min(numbers), list(_runs(numbers)))
        return None if taken is None else (taken,)

    def _try(self, path: str, byte: int, runs: Sequence[tuple[int, int]]) -> FileLock | None:
        for _ in range(_TRIES):
            fd, file = _open_lock_file(path)
            try:
                is_ours = all(self._lock(fd, path, first, length) for first, length in runs)
                # Between open and lock the file may have been deleted and made anew: then this lock is on a
                # file that no other process will ever open, and excludes none.
                is_real = is_ours and _file_at(path) == file
            except BaseException:
                os.close(fd)  # else the lock would be held, by a handle that no caller has
                raise
            if is_real:
                taken = FileLock(fd, path, byte, file)
                if not _Children.get_locks:
                    _not_for_children.add(taken)
                return taken
            os.close(fd)
            if not is_ours:
                return None
        raise LockLost(f"{path} is being replaced over and over")

    def adopt(self, fd: int, path: str, byte: int = RUNNER_BYTE) -> FileLock:
        # Locking again what one's own open file description has locked succeeds, so this is a check.
        file = _identity(os.fstat(fd))
        if _file_at(path) != file or not self._lock(fd, path, byte):
            raise LockLost(f"descriptor {fd} does not hold the lock {path}")
        return FileLock(fd, path, byte, file)

    def is_locked(self, path: str, byte: int = RUNNER_BYTE, length: int = 1) -> bool:
        if length < 1:
            return False  # for the kernel, 0 is all bytes from there on
        fd = _look_at(path)
        if fd is None:
            return False
        try:
            query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, length, 0)
            kind = _FLOCK.unpack(fcntl.fcntl(fd, _OFD_GETLK, query))[0]
        except OSError as error:
            raise _explained(error, path) from error
        finally:
            os.close(fd)
        return bool(kind != fcntl.F_UNLCK)

    def locked(self, path: str) -> frozenset[int]:
        fd = _look_at(path)
        if fd is None:
            return frozenset()
        found: set[int] = set()
        gaps = [(0, _ALL_BYTES)]
        try:
            while gaps:
                start, end = gaps.pop()
                query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, end - start, 0)
                kind, _, first, length, _ = _FLOCK.unpack(fcntl.fcntl(fd, _OFD_GETLK, query))
                if kind != fcntl.F_UNLCK:  # one lock of those there are, and not always the first
                    last = first + length if length else end
                    found.update(range(max(first, start), min(last, end)))
                    gaps += [(a, b) for a, b in ((start, first), (last, end)) if a < b]
        except OSError as error:
            raise _explained(error, path) from error
        finally:
            os.close(fd)
        return frozenset(found)

    def holders(self, path: str, byte: int = RUNNER_BYTE) -> tuple[int, ...]:
        return tuple(_pids_with_lock(path, b"OFDLCK", byte))

    def _lock(self, fd: int, path: str, byte: int, length: int = 1) -> bool:
        try:
            fcntl.fcntl(fd, _OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, length, 0))
        except (BlockingIOError, PermissionError):
            return False
        except OSError as error:
            raise _explained(error, path) from error
        return True


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Neighbouring bytes together: (first, length)."""
    ordered = sorted(set(numbers))
    starts = [ordered[0], *(after for before, after in pairwise(ordered) if after != before + 1)]
    ends = [*(before for before, after in pairwise(ordered) if after != before + 1), ordered[-1]]
    for first, last in zip(starts, ends, strict=True):
        yield first, last - first + 1


def _open_lock_file(path: str) -> tuple[int, FileIdentity]:
    try:
        fd = os.open(path, _OPEN, file_mode(path))
    except OSError as error:
        raise _explained(error, path) from error
    try:
        held = os.fstat(fd)
        if not stat.S_ISREG(held.st_mode):
            raise NotRegularFile(f"{path} is not a file, so it cannot be locked")
    except BaseException:
        os.close(fd)
        raise
    return fd, _identity(held)


def _look_at(path: str) -> int | None:
    try:
        return os.open(path, _LOOK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _explained(error, path) from error


def _identity(file: os.stat_result) -> FileIdentity:
    return file.st_dev, file.st_ino


def _file_at(path: str) -> FileIdentity | None:
    """The identity of the file that lies at a path now; None if there is none."""
    try:
        return _identity(os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _explained(error: OSError, path: str) -> Exception:
    if error.errno == errno.ELOOP:
        return NotRegularFile(f"{path} is a link, so it cannot be locked")
    if error.errno in _CANNOT_LOCK:
        return LocksUnsupported(f"the file system of {path} cannot lock: {error.strerror}")
    return error


def _pids_with_lock(path: str, kind: bytes, byte: int) -> Iterator[int]:
    """The processes that have the file open and whose descriptor carries the lock, according to /proc."""
    try:
        wanted = os.stat(path)
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except FileNotFoundError:
        return
    for pid in sorted(pids):
        if any(_carries_lock(pid, fd, kind, byte) for fd in _descriptors_of(pid, wanted)):
            yield pid


def _descriptors_of(pid: int, wanted: os.stat_result) -> Iterator[str]:
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            found = os.stat(f"/proc/{pid}/fd/{fd}")
            if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                yield fd
    except OSError:
        return  # it ended meanwhile, or is not ours to look at


def _carries_lock(pid: int, fd: str, kind: bytes, byte: int) -> bool:
    try:
        with open(f"/proc/{pid}/fdinfo/{fd}", "rb") as info:
            locks = [line.split() for line in info if line.startswith(b"lock:")]
    except OSError:
        return False
    # lock: 1: OFDLCK ADVISORY WRITE -1 fd:01:1234 0 0
    return any(kind in words and _covers(words[-2], words[-1], byte) for words in locks)


def _covers(start: bytes, end: bytes, byte: int) -> bool:
    return int(start) <= byte and (end == b"EOF" or byte <= int(end))
