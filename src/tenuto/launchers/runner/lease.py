"""The lease of an attempt: a file that a worker touches as long as the attempt may go on.
Loaded only for an attempt that has one. Compares the file's times with each other, never with a clock.
"""

from __future__ import annotations

import os

from tenuto.launchers.instructions import Limits


class Lease:
    """What the supervisor knows of the lease; asked when `due`."""

    def __init__(self, limits: Limits, now: float) -> None:
        """`now`: on the monotonic clock, as everywhere here."""
        assert limits.lease_path is not None
        self._path = limits.lease_path
        self._lease_s = limits.lease_s or 0.0
        self._touched = self._look()
        self._changed = now
        self.due = now + self._lease_s / 4
        self.is_over = False
        """The file stayed unchanged for half of the lease."""

    @property
    def message(self) -> str:
        return f"its lease is over: {self._path} has not changed for {self._lease_s / 2:g} s"

    def look(self, now: float) -> None:
        """See whether the file was touched."""
        touched = self._look()
        if touched is not None and touched != self._touched:
            self._touched, self._changed = touched, now
        self.is_over = now - self._changed >= self._lease_s / 2
        self.due = float("inf")
        if not self.is_over:
            self.due = min(now + self._lease_s / 4, self._changed + self._lease_s / 2)

    def _look(self) -> int | None:
        try:
            return os.stat(self._path).st_mtime_ns
        except OSError:
            return None  # gone, or on a disk that is: not renewed
