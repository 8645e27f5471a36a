"""Shows how experiments go: a live display on a terminal, one line for each event elsewhere.
What is known comes from an `Overview`; what an experiment does is not influenced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, TextIO

from tenuto.experiments.overview import Overview
from tenuto.experiments.run_record import RunState
from tenuto.jobs.model import Counts
from tenuto.jobs.screen import PrintingAbove, Screen, ScreenLine, Size, Style
from tenuto.jobs.text import duration, fit, safe, truncate, width
from tenuto.lifecycle.events import Event, JobStateChangedEvent
from tenuto.lifecycle.source import Row
from tenuto.lifecycle.states import JobFailureStatus, JobState

if TYPE_CHECKING:
    from tenuto.experiments.experiment import experiment

REDRAW_S = 0.2
MOST_RUNNING = 12
MOST_FAILURES = 3


class ClosedRun(NamedTuple):
    """A run that is over, or was left."""

    name: str
    run_id: str
    workspace: str
    state: RunState
    fails: bool = False
    """It failed, and the script did not say that this is fine."""
    notes: tuple[str, ...] = ()
    """What a person should know, though nothing failed."""


class ProgressDisplay:
    """A `Reporter` that keeps an overview; the two faces below show it."""

    def __init__(self, overview: Overview) -> None:
        self.overview = overview
        self.runs: list[ClosedRun] = []
        self.plans: list[experiment] = []
        self._open = 0

    @property
    def is_open(self) -> bool:
        """True while an experiment is open that it shows."""
        return self._open > 0

    def opened(self, xp: experiment) -> None:
        """An experiment was entered."""
        self._open += 1
        self.overview.add(xp.run)
        self.begin(xp)

    def hear(self, event: Event) -> None:
        """Something happened to a job."""
        row = self.overview.hear(event)
        if row is not None and isinstance(event, JobStateChangedEvent):
            self.moved(row)

    def closed(self, xp: experiment, state: RunState) -> None:
        """An experiment was left."""
        fails = state is RunState.FAILED and xp.raises_on_failure
        self.runs.append(ClosedRun(xp.name, xp.run_id, str(xp.workspace.path), state, fails, tuple(xp.notes)))
        self._open -= 1
        if self._open == 0:
            self.end()

    def left(self) -> list[ClosedRun]:
        """The experiments that were left, and not run to their end afterwards."""
        last = {(run.workspace, run.name): run for run in self.runs}
        return [run for run in last.values() if run.state is RunState.INTERRUPTED]

    def failed(self) -> list[ClosedRun]:
        """The experiments that failed, and were not run to a good end afterwards."""
        last = {(run.workspace, run.name): run for run in self.runs}
        return [run for run in last.values() if run.fails]

    def planned(self, xp: experiment) -> None:
        """An experiment that runs nothing was left."""
        self.plans.append(xp)

    # What the faces add

    def begin(self, xp: experiment) -> None:
        """Something is to be shown from now on."""

    def moved(self, row: Row) -> None:
        """A job is in another state now."""

    def end(self) -> None:
        """There is nothing to be shown any more; called again, it does nothing."""


# -- without a terminal ------------------------------------------------------------------------------


class PlainProgress(ProgressDisplay):
    """One line for each event: ``TIME EVENT TASK JOB tag=value... detail``. Reused jobs are only counted."""

    def __init__(self, overview: Overview, write: Callable[[str], None]) -> None:
        super().__init__(overview)
        self._write = write

    def begin(self, xp: experiment) -> None:
        self._say(f"begin {safe(xp.name)} {xp.run_id} workspace={safe(str(xp.workspace.path))}")

    def moved(self, row: Row) -> None:
        described = self._described(row)
        if described is not None:
            event, detail = described
            self._say(f"{event} {safe(row.task)} {row.id[:12]}{tag_text(row.tags, ' ')}{detail}")

    def closed(self, xp: experiment, state: RunState) -> None:
        super().closed(xp, state)
        self._say(f"end {safe(xp.name)} {xp.run_id} {state.value}")

    def _described(self, row: Row) -> tuple[str, str] | None:
        if row.state is JobState.RUNNING:
            return "running", ""
        if row.state is JobState.WAITING and row.message:
            return "waiting", f" {safe(row.message)}"
        if row.state is JobState.DONE and not row.reused:
            counts = self.overview.counts()
            return "done", f" took={took(row)} finished={counts.finished}/{counts.known}"
        if row.state is JobState.ERROR:
            reason = (row.reason or JobFailureStatus.FAILED).name
            return "failed", f" reason={reason} {safe(row.message or '')}".rstrip()
        return None

    def _say(self, text: str) -> None:
        self._write(f"{self.overview.clock.now():%Y-%m-%dT%H:%M:%SZ} {text}\n")


def took(row: Row) -> str:
    """How long a job ran."""
    if row.started is None or row.ended is None:
        return duration(None)
    return duration((row.ended - row.started).total_seconds())


def tag_text(tags: Mapping[str, object], before: str = "") -> str:
    """The tags of a job, as harmless text."""
    return before * bool(tags) + " ".join(f"{safe(name)}={safe(str(value))}" for name, value in tags.items())


# -- on a terminal -----------------------------------------------------------------------------------


class LiveProgress(ProgressDisplay):
    """A few lines that are drawn again and again while an experiment is open."""

    def __init__(self, overview: Overview, screen: Screen, signs: Signs) -> None:
        super().__init__(overview)
        self._screen = screen
        self._signs = signs
        self._above = PrintingAbove(screen)
        self._names: list[str] = []
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, xp: experiment) -> None:
        self._names.append(xp.name)
        if self._thread is None:
            self._over = threading.Event()
            self._above.begin()
            self._thread = threading.Thread(target=self._run, name="tenuto-progress", daemon=True)
            self._thread.start()

    def end(self) -> None:
        if self._thread is not None:
            self._over.set()
            self._thread.join()
            self._thread = None
            if self._screen.keeps_last:
                self._draw()
            self._screen.clear()
            self._above.end()
        self._names.clear()

    def _run(self) -> None:
        while not self._over.wait(REDRAW_S):
            self._draw()

    def _draw(self) -> None:
        running = self.overview.running(looks=MOST_RUNNING)
        now = self.overview.clock.now()
        shown = Shown(
            name=" + ".join(map(safe, self._names)),
            counts=self.overview.counts(),
            remaining_s=self.overview.remaining_s(),
            running=[_shown(row, now) for row in running],
            failures=[f"{label(row)}: {safe(row.message or 'failed')}" for row in self.overview.failures()],
        )
        self._screen.draw(rendered(shown, self._screen.size, self._signs))


class Signs(NamedTuple):
    """The characters of the display: for terminals that know them, and for others."""

    full: str
    empty: str
    bad: str
    dot: str


UNICODE = Signs("█", "░", "✗", "·")
ASCII = Signs("#", ".", "x", "|")


def steers_terminal(stream: TextIO | None, environ: Mapping[str, str]) -> bool:
    """True if a stream leads to a terminal on which lines can be drawn again."""
    try:
        return stream is not None and stream.isatty() and environ.get("TERM", "dumb") != "dumb"
    except ValueError:
        return False  # it is closed


def signs_for(stream: TextIO) -> Signs:
    """What a stream can show."""
    try:
        "".join(UNICODE).encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


class ShownJob(NamedTuple):
    """A running job."""

    label: str
    fraction: float | None
    elapsed_s: float
    desc: str
    left_s: float | None = None


class Shown(NamedTuple):
    """All that the display shows."""

    name: str
    counts: Counts
    remaining_s: float | None = None
    running: Sequence[ShownJob] = ()
    failures: Sequence[str] = ()


def label(row: Row) -> str:
    """A job in as few cells as tell it from its siblings: its class, then its tags or else its id."""
    name = safe(row.task).rpartition(".")[2]
    return f"{name} {tag_text(row.tags) or row.id[:8]}"


def _shown(row: Row, now: datetime) -> ShownJob:
    desc = safe(row.progress_desc or "")
    return ShownJob(label(row), row.progress, row.elapsed_s(now) or 0.0, desc, row.left_s(now))


def rendered(shown: Shown, size: Size, signs: Signs = UNICODE) -> list[ScreenLine]:
    """The display, for any size of window: the overall bar first, and of the rest as much as fits."""
    columns, rows = size.columns - 3, size.rows - 1
    lines = [ScreenLine(_overall(shown, columns, signs), Style.STRONG)]
    if rows >= 2:
        lines.append(ScreenLine(truncate(_counted(shown.counts, signs), columns), Style.FAINT))
    room = max(rows - len(lines), 0)
    failures = shown.failures[: min(MOST_FAILURES, room // 3)]
    most = min(MOST_RUNNING, room - len(failures))
    running = shown.running[:most]
    if len(running) < len(shown.running) and running:
        running = running[: max(most - 1, 0)]
    lines += [ScreenLine(_running(one, columns, signs)) for one in running]
    if hidden := len(shown.running) - len(running):
        lines += (
            [ScreenLine(truncate(f"  and {hidden} more running", columns), Style.FAINT)] if most > 0 else []
        )
    lines += [ScreenLine(truncate(f"{signs.bad} {text}", columns), Style.BAD) for text in failures]
    return lines


def _overall(shown: Shown, columns: int, signs: Signs) -> str:
    counts = shown.counts
    remaining = shown.remaining_s if counts.known > counts.finished else 0.0
    fraction = counts.finished / counts.known if counts.known else 0.0
    numbers = f"{counts.finished}/{counts.known}"
    right = f"{numbers} {fraction:4.0%} ETA {duration(remaining):>6}"
    if columns < 30:
        return truncate(f"{numbers} {fraction:.0%}", columns)
    name = truncate(shown.name, max((columns - len(right)) // 3, 0)) if columns >= 50 else ""
    bar = columns - width(right) - 1 - (width(name) + 1 if name else 0)
    return f"{name}{' ' if name else ''}{_bar(fraction, min(bar, 60), signs)} {right}"


def _counted(counts: Counts, signs: Signs) -> str:
    parts = {
        "failed": counts.failed,
        "running": counts.running,
        "waiting": counts.waiting,
        "ran": counts.ran,
        "reused": counts.reused,
        "not run": counts.stranded,
    }
    return f" {signs.dot} ".join(f"{number} {name}" for name, number in parts.items() if number)


def _running(one: ShownJob, columns: int, signs: Signs) -> str:
    if one.fraction is None:
        bar, percent = _bar(0.0, 6, signs), ""
    else:
        bar, percent = _bar(one.fraction, 6, signs), f"{one.fraction:.0%}"
    right = f"{bar} {percent:>4} {duration(one.elapsed_s):>6}"
    room = columns - width(right) - 3
    if room < 4:
        return truncate(f"  {one.label}", columns)
    if columns < 70:
        return f"  {fit(one.label, room)} {right}"
    if one.left_s is not None:
        right += f" ETA {duration(one.left_s):>6}"
        room -= 11
    return truncate(
        f"  {fit(one.label, min(room - 12, max(40, columns // 2)))} {right}  {one.desc}".rstrip(), columns
    )


def _bar(fraction: float, cells: int, signs: Signs) -> str:
    full = int(fraction * cells)
    return signs.full * full + signs.empty * (cells - full)
