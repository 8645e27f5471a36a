"""Ingestion: tells the sampler what came of candidates, in the order in which they ended.
The order is kept in the rows, so that every replica hears the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.search.replica import Replica
from tenuto.search.rows import LogRow, Told
from tenuto.search.store import Store


class Ingestion:
    """Tells the candidates of one search."""

    def __init__(
        self, store: Store, replica: Replica, name: str, *, batch: int, maximize: bool, window: int | None
    ) -> None:
        """`window`: of a reproducible search, whose candidates are told in the order of their numbers."""
        self._store = store
        self._replica = replica
        self._name = name
        self._batch = batch
        self._maximize = maximize
        self._window = window

    def ingest(self, *, is_asked_out: bool) -> int:
        """Tells what ended and was not told; how many. `is_asked_out`: no number can be asked now."""
        replica = self._replica
        if not replica.is_read:
            replica.read_on()
        rows = self._next(is_asked_out)
        while any(row.number > replica.scheduled for row in rows):
            # Another process added them, and may have told them since this one looked: with the counter of
            # now, and rows of before, a candidate was told twice, and its cost counted twice.
            replica.read_on()
            rows = self._next(is_asked_out)
        if not rows:
            return 0

        def tell() -> Sequence[Told]:
            told = []
            for row in rows:
                told.append(replica.tell(row))
                if not replica.is_read:  # set apart: the sampler was begun anew, so the rest waits
                    break
            return told

        try:
            count = self._store.tell(self._name, replica.told, tell, self._maximize)
        except BaseException:
            replica.rebuild()  # whatever was told to it may not be stored
            raise
        if count is None:
            replica.rebuild() if replica.has_unconfirmed else replica.read_on()
            return 0
        if replica.is_read:
            replica.confirm(count)
        return count

    def _next(self, is_asked_out: bool) -> list[LogRow]:
        if self._window is None:
            return self._store.to_tell(self._name, self._batch)
        replica = self._replica
        number = replica.told + 1
        if replica.scheduled < number - 1 + self._window and not is_asked_out:
            return []
        return self._store.to_tell(self._name, 1, number)
