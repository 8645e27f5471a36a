"""When an attempt elsewhere counts as ended: the fence, and the patience with a disk that shows files late.
Asks no cluster and gives nothing up itself.
"""

from __future__ import annotations

from tenuto.launchers.runner.terms import NO_MARKER
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.ports import RUNNER_BYTE, Machine

BEAT_S = 30.0
"""How often the runner of an external attempt touches its pid record, unless it is told otherwise."""
FENCE_BEATS = 3
"""How many beats must be missing: one more than after which a runner that cannot beat ends by itself."""
MARKER_PATIENCE_S = 60.0
"""How long a marker may stay unseen that the runner's exit code says was written."""
PATIENCE_S = 5.0
"""How long any other marker may."""


class Fence:
    """Counts the beats of one attempt, by the observer's own clock: clocks of two hosts may differ."""

    def __init__(self, machine: Machine, paths: JobPaths, beat_s: float = BEAT_S) -> None:
        self._machine = machine
        self._paths = paths
        self._beat_s = beat_s
        self._beat = machine.files.modified(paths.pid)
        self._since = machine.clock.monotonic()
        self._has_passed = False

    def silent_s(self) -> float:
        """How long no beat was seen, with byte 0 of the job's lock free; to be asked again."""
        self.has_passed()
        return self._machine.clock.monotonic() - self._since

    def has_passed(self) -> bool:
        """Whether no beat was seen for long enough, with byte 0 of the job's lock free; to be asked again."""
        beat = self._machine.files.modified(self._paths.pid)
        now = self._machine.clock.monotonic()
        if beat != self._beat:
            self._beat, self._since, self._has_passed = beat, now, False
        elif self._has_passed:
            return True  # the holder of the lock by now is no runner: perhaps the scheduler that asks here
        elif self._machine.locks.is_locked(self._paths.lock, RUNNER_BYTE):
            self._since = now
        self._has_passed = now - self._since >= FENCE_BEATS * self._beat_s
        return self._has_passed


def marker_patience_s(exit_code: int | None) -> float:
    """How long to wait for the marker of a runner that exited with this code; None if that is not known."""
    is_written = exit_code is not None and exit_code not in NO_MARKER
    return MARKER_PATIENCE_S if is_written else PATIENCE_S
