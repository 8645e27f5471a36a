"""How often Slurm is asked: often while something changes, then slower and slower.
A value with a clock's readings; asks nothing itself.
"""

from __future__ import annotations

SLOWEST_S = 60.0
SOON_S = 1.0
_GROWTH = 1.5


class Pace:
    """When to ask next, by a monotonic clock."""

    def __init__(self, poll_s: float) -> None:
        self.poll_s = poll_s
        self._pause_s = poll_s
        self.slowest_s = max(SLOWEST_S, poll_s)
        self.due = 0.0

    def is_due(self, now: float) -> bool:
        return now >= self.due

    def soon(self, now: float) -> None:
        """Something may have changed: ask within a second or so."""
        self._pause_s = self.poll_s
        self.due = min(self.due, now + min(SOON_S, self.poll_s))

    def now(self, now: float) -> None:
        """Something is asked for of which nothing is known: ask at once."""
        self._pause_s = self.poll_s
        self.due = min(self.due, now)

    def asked(self, now: float, *, is_news: bool) -> None:
        """An answer came, or none."""
        self._pause_s = self.poll_s if is_news else min(self._pause_s * _GROWTH, self.slowest_s)
        self.due = now + self._pause_s
