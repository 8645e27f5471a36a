"""The log of a job: its parts, its tail, and later lines.
Reads a bounded part, however large the file is, and never follows a link.
"""

from __future__ import annotations

from typing import NamedTuple

from tenuto.errors import NotRegularFile, TenutoError
from tenuto.workspace.ports import FileKind, Files

TAIL_BYTES = 64 * 1024


class Tail(NamedTuple):
    """The last part of a log, whole lines first."""

    text: str
    offset: int
    """Where to continue reading."""
    is_whole: bool
    """False if something comes before it."""


def read_tail(files: Files, path: str, *, limit: int = TAIL_BYTES) -> Tail | None:
    """The end of a file; None if there is no such file."""
    try:
        found = files.stat(path)
        if found is None or found.kind is not FileKind.FILE:
            return None
        start = max(found.size - limit, 0)
        data = files.read_range(path, start, limit)
    except (OSError, NotRegularFile):
        return None
    if start and b"\n" in data:
        cut = data.index(b"\n") + 1
        return Tail(_text(data[cut:]), start + len(data), False)
    return Tail(_text(data), start + len(data), not start)


class JobLog:
    """One log file in parts, as a monitor reads it; a job that printed nothing yet has an empty one."""

    def __init__(self, files: Files, path: str, attempt: int, *, has_ended: bool) -> None:
        self.attempt = attempt
        self._files = files
        self._path = path
        self._has_ended = has_ended

    def size(self) -> int:
        found = self._files.stat(self._path)
        return found.size if found is not None and found.kind is FileKind.FILE else 0

    def read(self, offset: int, limit: int) -> bytes:
        try:
            return self._files.read_range(self._path, offset, limit)
        except (OSError, TenutoError):
            return b""

    def ended(self) -> bool:
        return self._has_ended


class Follower:
    """Reads on where a tail ended, also when a new attempt begins a new file."""

    def __init__(self, files: Files, path: str, tail: Tail | None) -> None:
        self._files = files
        self._path = path
        self._offset = tail.offset if tail else 0
        found = files.stat(path)
        self._inode = found.inode if found and tail else None

    def read(self, limit: int = TAIL_BYTES) -> bytes:
        """The bytes since the last read; may be empty."""
        try:
            found = self._files.stat(self._path)
            if found is None or found.kind is not FileKind.FILE:
                return b""
            if found.inode != self._inode or found.size < self._offset:
                self._inode, self._offset = found.inode, 0
            data = self._files.read_range(self._path, self._offset, limit)
        except (OSError, NotRegularFile):
            return b""
        self._offset += len(data)
        return data


def _text(data: bytes) -> str:
    # A log that reached its limit has a hole in the middle, which reads as zeros.
    return data.replace(b"\0", b"").decode("utf-8", "replace")
