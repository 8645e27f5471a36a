"""Who shows a search to a person: a seam for the command line, and what there is to show.
A script that runs by itself has no reporter, and prints a few lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from tenuto.search.archive import Archive
from tenuto.search.result import SearchResult


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """How far a search is."""

    name: str
    state: str
    scheduled: int
    max_total: int | None
    ended: int
    in_flight: int
    running: int
    succeeded: int
    failed: int
    reused: int
    cost: float
    elapsed_s: float
    best_number: int | None
    best_objective: float | None
    archive: Archive | None = None
    parents: tuple[int, ...] = ()
    """The cells of the parents of what is in flight."""
    slots: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    """What the last candidates failed of, and how often."""


class SearchReporter(Protocol):
    """Hears how a search goes; called in the thread that runs it."""

    def started(self, progress: SearchProgress) -> None: ...

    def progressed(self, progress: SearchProgress) -> None: ...

    def say(self, text: str) -> None:
        """Something a person should read."""
        ...

    def ended(self, progress: SearchProgress, result: SearchResult) -> None: ...


current_reporter: ContextVar[SearchReporter | None] = ContextVar("tenuto_search_reporter", default=None)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the command line says of every search that a script runs."""

    slots: int | None = None
    workers: bool = True
    once: bool = False
    reuse: bool = True
    results: list[Any] = field(default_factory=list)
    """Filled with the result of each search that was run."""


current_options: ContextVar[RunOptions | None] = ContextVar("tenuto_search_options", default=None)
