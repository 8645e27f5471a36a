"""The displays of open experiments: a line for each event, or bars at a terminal or below a notebook's cell.
The facts come from an `Overview`; an experiment is not influenced.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from tenuto.clock import SystemClock
from tenuto.experiments.overview import Overview, ProgressDisplay
from tenuto.experiments.run_record import RunState
from tenuto.jobs.drawing import filled_bar
from tenuto.jobs.model import Counts
from tenuto.jobs.row import Row
from tenuto.jobs.screen import PrintingAbove, Screen, ScreenLine, Size, Style
from tenuto.jobs.text import duration, fit, safe, truncate, width
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.light import late
from tenuto.settings import process_environment
from tenuto.tasks.tags import tag_words
from tenuto.workspace.machine import this_machine

if TYPE_CHECKING:
    import html

    from tenuto.experiments.experiment import experiment
else:
    html = late("html")

REDRAW_S = 0.2
MOST_RUNNING = 12
MOST_FAILURES = 3


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
    return before * bool(tags) + safe(tag_words(tags))


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


AGENTS = ("AI_AGENT", "CLAUDECODE", "CODEX_SANDBOX")
"""Variables by which a coding agent tells that it reads the output."""


def is_agent(environ: Mapping[str, str]) -> bool:
    """Whether a coding agent reads the output: no colour, no bars, nothing cut."""
    return any(environ.get(name) for name in AGENTS)


def steers_terminal(stream: TextIO | None, environ: Mapping[str, str]) -> bool:
    """True if a stream leads to a terminal on which lines can be drawn again."""
    try:
        is_steered = stream is not None and stream.isatty() and environ.get("TERM", "dumb") != "dumb"
        return is_steered and not is_agent(environ)
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
    return filled_bar(fraction, cells, signs.full, signs.empty)


# -- of a script that a person started by itself; experiments that are open together share one -------

IPython: Any = late("IPython")
IPython_display: Any = late("IPython.display")
NOTEBOOK_SIZE = Size(100, 20)


class _Shown:
    """The text on the terminal now."""

    display: ProgressDisplay | None = None


def script_display() -> ProgressDisplay | None:
    """The display of the open experiments, or a new one; None where no person would see it."""
    if _Shown.display is None or not _Shown.display.is_open:
        _Shown.display = _new_display()
    return _Shown.display


def _new_display() -> ProgressDisplay | None:
    overview = Overview(SystemClock(), this_machine().files)
    notebook = _notebook()
    if notebook is not None:
        return LiveProgress(overview, NotebookScreen(notebook), signs_for(sys.stderr))
    environ = process_environment()
    if not steers_terminal(sys.stderr, environ):
        return None
    return LiveProgress(overview, Screen(sys.stderr, color="NO_COLOR" not in environ), signs_for(sys.stderr))


def _notebook() -> Any:
    """The module that shows something below the cell that runs; None outside of a notebook."""
    if "ipykernel" not in sys.modules:
        return None
    return IPython_display if getattr(IPython.get_ipython(), "kernel", None) is not None else None


class NotebookScreen(Screen):
    """The lines below a cell, drawn again and again; the last drawing stays there."""

    keeps_last = True

    def __init__(self, notebook: Any) -> None:
        super().__init__(sys.stderr, color=False, size=lambda _: NOTEBOOK_SIZE)
        self._notebook = notebook
        self._handle: Any = None

    def draw(self, lines: Sequence[ScreenLine]) -> None:
        """Replace the lines."""
        text = html.escape("\n".join(line.text for line in lines))
        shown = self._notebook.HTML(f"<pre>{text}</pre>")
        if self._handle is None:
            self._handle = self._notebook.display(shown, display_id=True)
        else:
            self._handle.update(shown)

    def clear(self) -> None:
        """Let the last lines stay; the next ones come below another cell."""
        self._handle = None
