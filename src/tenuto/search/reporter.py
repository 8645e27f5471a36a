"""What came of a search, and who shows it to a person: a seam for the command line.
A script that runs by itself has no reporter, and prints a few lines.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from tenuto.clock import SystemClock
from tenuto.jobs.text import safe
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
    """The cells of the parents of candidates in flight."""
    slots: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    """What the last candidates failed of, and how often."""
    workspace: str = ""


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
    on_started: Callable[[SearchProgress], object] | None = None
    """Called with each search that begins."""
    results: list[Any] = field(default_factory=list)
    """Filled with the result of each search that was run."""


current_options: ContextVar[RunOptions | None] = ContextVar("tenuto_search_options", default=None)


# A console for a reporter that reads no markup.
# Drops lines without news to a person who watches the search.


class Plain:
    """A console for a reporter that reads no markup."""

    def __init__(self, reporter: SearchReporter) -> None:
        self._reporter = reporter

    def print(self, *objects: Any) -> None:
        text = " ".join(str(one) for one in objects)
        for mark in ("[yellow]", "[red]", "[/]"):
            text = text.replace(mark, "")
        text = text.replace("\\[", "[")
        if text != "Sampler returned no job":  # not news to a person who watches the search
            self._reporter.say(text)


# A search in lines: for logs, pipes, and scripts that are run without the command line.
# Writes to standard error; escapes what could move a terminal's cursor.


EVERY_S = 10.0


def write_line(text: str) -> None:
    """A line to standard error, if a reader is left."""
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return


class LineReporter:
    """Says when a search starts, every ten seconds how far it is, and how it ended."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._said_at = self._clock.monotonic()
        self._failed = 0

    def started(self, progress: SearchProgress) -> None:
        self._said_at = self._clock.monotonic()
        self._failed = progress.failed
        write_line(f"{progress.name}: started, {progress.ended} of {_total(progress)} candidates")

    def progressed(self, progress: SearchProgress) -> None:
        now = self._clock.monotonic()
        if now - self._said_at >= EVERY_S:
            self._said_at = now
            write_line(line(progress))
            for text in new_failures(progress, self._failed):
                write_line(text)
            self._failed = progress.failed

    def say(self, text: str) -> None:
        write_line(safe(text))

    def ended(self, progress: SearchProgress, result: SearchResult) -> None:
        if progress.failed > self._failed:
            for text in new_failures(progress, self._failed):
                write_line(text)
        write_line(last_line(progress, result))


def new_failures(progress: SearchProgress, before: int) -> list[str]:
    """Why candidates failed, the most frequent cause first, if any did since."""
    if progress.failed <= before:
        return []
    causes = sorted(progress.failures.items(), key=lambda item: -item[1])[:3]
    return [f"{progress.name}: {count} failed: {safe(cause)}" for cause, count in causes]


def line(progress: SearchProgress) -> str:
    """How far a search is, in one line."""
    parts = [
        f"{progress.name}: {progress.ended} of {_total(progress)}",
        f"{progress.in_flight} in flight",
        f"{progress.failed} failed",
    ]
    if progress.best_number is not None:
        parts.append(f"best {number(progress.best_objective)} (#{progress.best_number})")
    archive = progress.archive
    if archive is not None and archive.cells > 1:
        parts += [f"{len(archive)} of {archive.cells} cells", f"QD {number(archive.running_qd_score)}"]
    parts.append(rate(progress))
    return ", ".join(parts)


def last_line(progress: SearchProgress, result: SearchResult) -> str:
    """How a search ended."""
    how = f"ended ({result.reason})" if result.state == "ENDED" else f"left {result.state.lower()}"
    if result.is_paused_by_itself:
        how = f"paused: {safe(result.message or '')}"
    counts = (
        f"{result.scheduled} candidates, {result.succeeded} succeeded, {result.failed} failed, "
        f"{result.reused} reused"
    )
    for count, word in ((result.pruned, "pruned"), (result.cancelled, "cancelled")):
        counts += f", {count} {word}" if count else ""
    parts = [f"{result.name}: {how}: {counts}"]
    if result.best is not None:
        parts.append(f"best {number(result.best.objective)} (#{result.best.number})")
    archive = result.archive
    if archive is not None and archive.cells > 1:
        parts += [f"{len(archive)} of {archive.cells} cells", f"QD {number(archive.qd_score)}"]
    parts.append(duration(progress.elapsed_s))
    return "; ".join(parts)


def number(value: float | None) -> str:
    """A number as people read it."""
    return "none" if value is None else f"{value:.4g}"


def rate(progress: SearchProgress) -> str:
    """Candidates a second, or a minute where they are rare."""
    per_second = progress.ended / progress.elapsed_s if progress.elapsed_s > 0 else 0.0
    return f"{per_second:.3g}/s" if per_second >= 0.1 else f"{per_second * 60:.3g}/min"


def duration(seconds: float) -> str:
    """A duration as people say it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _total(progress: SearchProgress) -> str:
    return "any number of" if progress.max_total is None else str(progress.max_total)
