"""The signs of life that count for an attempt: the beats of its runner, and the lease of its worker.
Loaded where there is one of the two; ends nothing itself.
"""

from __future__ import annotations

import os
from contextlib import suppress

from tenuto.launchers.instructions import Limits
from tenuto.launchers.payload.payload import Payload
from tenuto.workspace.attempt_files import read_launch

LOOK_S = 2.0
"""How often `stop.json` is looked at: so a job can be stopped without the help of its cluster."""
MOST_MISSED = 2
"""A runner that could not beat for so many ends its payload: its scheduler gives it up after one more."""


class Beats:
    """The beats of one runner."""

    def __init__(self, payload: Payload, beat_s: float) -> None:
        self._payload = payload
        self._beat_s = beat_s
        now = payload.machine.clock.monotonic()
        self._beat_due = now + beat_s
        self._look_due = now + LOOK_S
        self._last_beat = now
        self.is_given_up = False
        """Another attempt has been opened, or no scheduler can see the beats."""

    @property
    def due(self) -> float:
        """When to be asked to `act` again."""
        return min(self._beat_due, self._look_due)

    def act(self, now: float) -> None:
        """Do the due work: touch the pid record, then read whether the attempt is still the current one."""
        self._look_due = now + min(LOOK_S, self._beat_s)
        if now >= self._beat_due:
            self._beat_due = now + self._beat_s
            with suppress(OSError):
                self._payload.machine.files.touch(self._payload.paths.pid)
                self._last_beat = now
            self.is_given_up = self.is_replaced() or now - self._last_beat >= MOST_MISSED * self._beat_s

    def is_replaced(self) -> bool:
        """Whether `launch.json` names another attempt; an unreadable one says nothing."""
        with suppress(OSError):
            launch = read_launch(self._payload.machine.files, self._payload.paths)
            return launch is not None and launch.nonce != self._payload.launch.nonce
        return False


class Lease:
    """What the supervisor knows of the lease: a file that a worker touches.

    Asked when `due`. Compares the file's times with each other, never with a clock.
    """

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
