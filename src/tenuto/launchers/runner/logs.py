"""The two logs of an attempt, and the bound on the disk they take.
A payload writes to the files directly, so no death of a runner breaks it; the bound is enforced from behind.
"""

from __future__ import annotations

import os

from tenuto.launchers.runner.kernel import punch_hole
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.modes import file_mode

_OPEN = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_BLOCK = 4096
_SHORTEST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5
_NOTICE = b"\n[tenuto: what followed here was dropped, the log had reached its limit]\n"


class OutputLimit(Exception):
    """The logs cannot be bounded, since the file system cannot make holes."""


def open_logs(paths: JobPaths) -> tuple[int, int]:
    """Descriptors to append to `.out` and `.err`."""
    mode = file_mode(paths.out)
    out = os.open(paths.out, _OPEN | os.O_APPEND, mode)
    return out, os.open(paths.err, _OPEN | os.O_APPEND, mode)


class BoundedLogs:
    """Both logs of an attempt, looked at now and then; the more they grow, the more often."""

    def __init__(self, paths: JobPaths, log_bytes: int) -> None:
        self._logs = [_BoundedLog(path, log_bytes) for path in (paths.out, paths.err)]
        self.pause_s = _SHORTEST_PAUSE_S
        """How long not to look again."""

    @property
    def truncated(self) -> bool:
        return any(log.truncated for log in self._logs)

    def check(self) -> None:
        """Cut what is too long; `OutputLimit` where that is impossible."""
        fullest = max([log.check() for log in self._logs])
        # A log that fills a good part of its limit between two looks could overshoot by as much.
        self.pause_s = (
            max(self.pause_s / 4, _SHORTEST_PAUSE_S)
            if fullest > 0.1
            else min(self.pause_s * 2, _LONGEST_PAUSE_S)
        )


class _BoundedLog:
    """One log: its head and its tail stay, a hole grows between them."""

    def __init__(self, path: str, limit: int) -> None:
        self._path = path
        self._limit = max(limit, 8 * _BLOCK)
        self._size = 0
        self.truncated = False

    def check(self) -> float:
        """Cut the log if need be; the growth since the last look, as a part of the limit."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return 0.0  # the task removed its log, and with it the need for a bound
        growth = found.st_size - self._size
        self._size = found.st_size
        if found.st_blocks * 512 > self._limit:
            self._cut(found.st_size)
        return growth / self._limit

    def _cut(self, size: int) -> None:
        start = self._limit // 4 // _BLOCK * _BLOCK
        end = (size - self._limit // 2) // _BLOCK * _BLOCK
        if end <= start + _BLOCK:
            return
        # Not opened for appending: there Linux appends what `pwrite` was told to put elsewhere.
        fd = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            punch_hole(fd, start, end - start)
            os.pwrite(fd, _NOTICE, start)
        except OSError as error:
            raise OutputLimit(f"{self._path} has reached {self._limit} bytes: {error.strerror}") from error
        finally:
            os.close(fd)
        self.truncated = True
