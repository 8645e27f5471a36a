"""Changes in directories as the kernel tells them (inotify); an adapter.
A reader keeps a slow poll underneath: a watch may be refused, or miss a change on a network disk.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

from tenuto.light import ctypes, struct

# The kind of file system that a path lies on, as the kernel names it (statfs); an adapter.
# Decides nothing: the caller chooses what to do where another machine may change files unheard.


_REMOTE = {
    0x6969: "nfs",
    0x517B: "smb",
    0xFF534D42: "cifs",
    0xFE534D42: "smb2",
    0x65735546: "fuse",
    0x0BD00BD0: "lustre",
    0x47504653: "gpfs",
    0x19830326: "beegfs",
    0x00C36400: "ceph",
    0x01021997: "9p",
    0x5346414F: "afs",
    0x6B414653: "kafs",
    0x73757245: "coda",
    0x01161970: "gfs2",
    0x7461636F: "ocfs2",
    0xAAD7AAEA: "panfs",
}
"""Where a change made on another machine, or below, is not told by inotify here."""
_STATFS_BYTES = 512


def remote_kind(path: str) -> str | None:
    """The kind of a file system that inotify does not hear all of; None for a disk of this machine."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "statfs"):
        return None
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    if libc.statfs(os.fsencode(path), found) != 0:
        return None
    (magic,) = struct.unpack_from("l", found.raw)
    return _REMOTE.get(magic & 0xFFFF_FFFF)


_BUFFER = 64 * 1024
_IN_MODIFY = 0x2
_IN_CLOSE_WRITE = 0x8
_IN_MOVED_FROM = 0x40
_IN_MOVED_TO = 0x80
_IN_CREATE = 0x100
_IN_DELETE = 0x200
_IN_DELETE_SELF = 0x400
_IN_MOVE_SELF = 0x800
_IN_Q_OVERFLOW = 0x4000
_IN_IGNORED = 0x8000
_IN_ONLYDIR = 0x0100_0000
_EVENTS = _IN_CREATE | _IN_DELETE | _IN_MOVED_TO | _IN_CLOSE_WRITE | _IN_DELETE_SELF
_ALL_EVENTS = _EVENTS | _IN_MODIFY | _IN_MOVED_FROM | _IN_MOVE_SELF | _IN_ONLYDIR
_HEADER = "iIII"


class DirectoryWatch:
    """A descriptor that becomes readable when something in a directory is created, renamed or written."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def drain(self) -> None:
        """Forget the reports so far, so that the descriptor is readable only when something new is."""
        with suppress(BlockingIOError):
            while os.read(self._fd, _BUFFER):
                pass

    def close(self) -> None:
        os.close(self._fd)


def watch_directory(path: str) -> DirectoryWatch | None:
    """A watch on one directory; None where there is no inotify or its limit is reached."""
    fd = _open()
    if fd is None:
        return None
    if _add(fd, path, _EVENTS) is None:
        os.close(fd)
        return None
    return DirectoryWatch(fd)


class Change(NamedTuple):
    """What changed in a watched directory."""

    directory: str
    """As it was given to `add`."""
    name: str | None
    """The entry that was made, written, renamed or removed; None: anything may have changed there."""


class DirectoryWatches:
    """Many directories on one descriptor: a user has 128 instances of inotify, and thousands of watches.

    Tells also of a file that grows. One thread at a time.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._paths: dict[int, set[str]] = {}
        """Watch -> the paths of its directory: two paths to one directory share a watch."""
        self._watches: dict[str, int] = {}

    def fileno(self) -> int:
        """Readable when `read` has something to tell."""
        return self._fd

    def __contains__(self, path: str) -> bool:
        return path in self._watches

    def add(self, path: str) -> bool:
        """Watches one more directory; False if it is not there, or the limit is reached."""
        if path in self._watches:
            return True
        watch = _add(self._fd, path, _ALL_EVENTS)
        if watch is None:
            return False
        self._paths.setdefault(watch, set()).add(path)
        self._watches[path] = watch
        return True

    def remove(self, path: str) -> None:
        """Watches a directory no more; its earlier reports are forgotten."""
        watch = self._watches.pop(path, None)
        if watch is None:
            return
        self._paths[watch].discard(path)
        if not self._paths[watch]:
            del self._paths[watch]
            ctypes.CDLL(None, use_errno=True).inotify_rm_watch(self._fd, watch)

    def read(self) -> list[Change]:
        """What changed since, each change once; never blocks.

        A directory that is gone, or was renamed, is told with no name and is watched no more. If the kernel
        had to drop changes, each directory is told with no name.
        """
        found: dict[Change, None] = {}
        with suppress(BlockingIOError):
            while data := os.read(self._fd, _BUFFER):
                self._decode(data, found)
        return list(found)

    def _decode(self, data: bytes, found: dict[Change, None]) -> None:
        position, header = 0, struct.calcsize(_HEADER)
        while position < len(data):
            watch, mask, _, length = struct.unpack_from(_HEADER, data, position)
            position += header
            name = os.fsdecode(data[position : position + length].rstrip(b"\0")) if length else None
            position += length
            if mask & _IN_Q_OVERFLOW:
                found.update(dict.fromkeys(Change(path, None) for path in self._watches))
            for path in sorted(self._paths.get(watch, ())):
                found[Change(path, name)] = None
                if mask & (_IN_IGNORED | _IN_MOVE_SELF):
                    self.remove(path)

    def close(self) -> None:
        os.close(self._fd)


def watch_directories() -> DirectoryWatches | None:
    """Watches on no directory yet; None where there is no inotify or its limit is reached."""
    fd = _open()
    return None if fd is None else DirectoryWatches(fd)


def _open() -> int | None:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "inotify_init1"):
        return None
    fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    return None if fd < 0 else fd


def _add(fd: int, path: str, events: int) -> int | None:
    watch = ctypes.CDLL(None, use_errno=True).inotify_add_watch(fd, os.fsencode(path), events)
    return None if watch < 0 else watch
