"""Which ids of a table of moves a reader has seen, and which may still come.
Knows no table: the caller asks for rows after `last`, and for those of `missing`.

PostgreSQL gives an id when a row is inserted, not when its transaction commits: of two transactions the one
with the smaller id may commit later. A reader that only asks for larger ids would never see it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tenuto.clock import Clock, SystemClock

LATEST_S = 10.0
"""How long a gap is asked for: longer than a transaction may take. One that was rolled back never comes."""
MOST_MISSING = 10_000


class LateIds:
    """The last id that was seen, and the gaps before it."""

    def __init__(self, seen: Iterable[int] = (), clock: Clock | None = None) -> None:
        """`seen`: the last ids of the table; the gaps between them may still be filled."""
        self._clock = clock or SystemClock()
        self._missing: dict[int, float] = {}
        """Id -> when it was missed first."""
        first, *others = sorted(seen) or [0]
        self.last = first
        self.saw(others)

    @property
    def missing(self) -> Sequence[int]:
        """The ids to ask for besides those after `last`."""
        return tuple(self._missing)

    def saw(self, ids: Iterable[int]) -> None:
        """Take note of rows that were read."""
        found = set(ids)
        now = self._clock.monotonic()
        for one in found:
            self._missing.pop(one, None)
        highest = max(found, default=self.last)
        begin = max(self.last + 1, highest - MOST_MISSING)
        self._missing.update((one, now) for one in range(begin, highest) if one not in found)
        self.last = max(self.last, highest)
        self._missing = {one: since for one, since in self._missing.items() if now - since < LATEST_S}
