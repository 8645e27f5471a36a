"""Being told when a directory changes, where the kernel can (inotify); an adapter.
Whoever waits keeps a slow poll underneath: a watch may be refused, or miss a change on a network disk.
"""

from __future__ import annotations

import os
from contextlib import suppress

from tenuto.light import ctypes

_BUFFER = 64 * 1024
_IN_CREATE = 0x100
_IN_DELETE = 0x200
_IN_MOVED_TO = 0x80
_IN_CLOSE_WRITE = 0x8
_IN_DELETE_SELF = 0x400
_EVENTS = _IN_CREATE | _IN_DELETE | _IN_MOVED_TO | _IN_CLOSE_WRITE | _IN_DELETE_SELF


class DirectoryWatch:
    """A descriptor that becomes readable when something in a directory is created, renamed or written."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def drain(self) -> None:
        """Forget what was reported so far, so that the descriptor is readable only when something new is."""
        with suppress(BlockingIOError):
            while os.read(self._fd, _BUFFER):
                pass

    def close(self) -> None:
        os.close(self._fd)


def watch_directory(path: str) -> DirectoryWatch | None:
    """A watch on one directory; None where there is no inotify or its limit is reached."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "inotify_init1"):
        return None
    fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        return None
    if libc.inotify_add_watch(fd, os.fsencode(path), _EVENTS) < 0:
        os.close(fd)
        return None
    return DirectoryWatch(fd)
