"""How often one user or address may ask: buckets of permits, refilled with time.
Counts in this process only; `now` is given, and nothing sleeps.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple

MOST_KNOWN = 10_000


class _Bucket(NamedTuple):
    permits: float
    at: float


class Rates:
    """A bucket for each key: ``burst`` at most, refilled by ``per_s``."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s = per_s
        self._burst = float(burst)
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait_s(self, key: str, now: float) -> float:
        """Takes a permit: 0 if there was one, else how long until there is one."""
        permits, at = self._buckets.pop(key, _Bucket(self._burst, now))
        permits = min(self._burst, permits + (now - at) * self._per_s)
        allowed = permits >= 1.0
        self._buckets[key] = _Bucket(permits - 1.0 if allowed else permits, now)
        while len(self._buckets) > MOST_KNOWN:  # the one unused for longest is full again, or nearly so
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1.0 - permits) / self._per_s


class Strikes:
    """Counts mistakes by key, such as wrong tokens by address, and refuses to look at too many."""

    def __init__(self, most: int = 10, within_s: float = 60.0) -> None:
        self._most = most
        self._within_s = within_s
        self._strikes: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_s(self, key: str, now: float) -> float:
        """Counts one more: 0 while there were few, else how long until another is looked at."""
        known = self._strikes.pop(key, deque())
        while known and now - known[0] >= self._within_s:
            known.popleft()
        self._strikes[key] = known
        while len(self._strikes) > MOST_KNOWN:
            self._strikes.popitem(last=False)
        if len(known) >= self._most:
            return self._within_s - (now - known[0])
        known.append(now)
        return 0.0
