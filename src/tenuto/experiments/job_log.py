"""What a job printed, as a monitor reads it: one file, in parts.
Reads only; a job that printed nothing yet has an empty log.
"""

from __future__ import annotations

from tenuto.errors import TenutoError
from tenuto.workspace.ports import FileKind, Files


class JobLog:
    """A log file; a job that printed nothing yet has an empty one."""

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
