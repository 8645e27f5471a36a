"""The outcome of a search.
A value; reads nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenuto.search.archive import Archive, Elite


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A search as it stood when `run` returned, or `result` was called."""

    name: str
    state: str
    reason: str | None
    message: str | None
    scheduled: int
    succeeded: int
    failed: int
    reused: int
    cost: float
    best: Elite | None
    archive: Archive | None
    is_interrupted: bool = False
    read_rows: Callable[[], list[dict[str, Any]]] = field(default=list, repr=False)
    front: Sequence[Elite] = ()
    """The Pareto front of several objectives; of one, the best alone."""
    pruned: int = 0
    cancelled: int = 0

    @property
    def is_paused_by_itself(self) -> bool:
        """True if its surroundings failed, as `message` says; False if a person paused it."""
        return self.state == "PAUSED" and self.message is not None

    def rows(self) -> list[dict[str, Any]]:
        """One mapping for each candidate, by number, with a column for each parameter, metric and measure."""
        return self.read_rows()
