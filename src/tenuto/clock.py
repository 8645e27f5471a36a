"""The only reader of time and of randomness in the core.
Nothing else may call `time`, `datetime.now` or `random`: a simulator swaps both in one place.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import Protocol

_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> datetime:
        """The instant, aware, in UTC. It may jump; never measure a duration with it."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...

    def uptime(self) -> float:
        """Like `monotonic`, with the time in which the machine slept: for durations that people read."""
        ...


class Randomness(Protocol):
    """Where chance comes from."""

    def nonce(self) -> str:
        """A fresh name of 128 random bits, in hexadecimal."""
        ...

    def uniform(self) -> float:
        """A number in [0, 1)."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def uptime(self) -> float:
        return time.clock_gettime(_UPTIME)


class SystemRandomness:
    """The kernel's randomness, which a forked process does not share with its parent."""

    def nonce(self) -> str:
        return os.urandom(16).hex()

    def uniform(self) -> float:
        return (int.from_bytes(os.urandom(7), "big") >> 3) / (1 << 53)
