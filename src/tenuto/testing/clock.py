"""A clock that stands still until told, and chance that repeats itself.
Both are deterministic: the same calls give the same answers.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random


class FakeClock:
    """A `Clock` whose two hands are moved by hand."""

    def __init__(self, start: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        self._now = start
        self._monotonic = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def uptime(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Time passes."""
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """A person sets the clock: the instant moves, no time passes."""
        self._now += timedelta(seconds=seconds)


class FakeRandomness:
    """A `Randomness` that a seed decides."""

    def __init__(self, seed: int = 0) -> None:
        self._random = Random(seed)

    def nonce(self) -> str:
        return f"{self._random.getrandbits(128):032x}"

    def uniform(self) -> float:
        return self._random.random()
