"""The application of the terminal: a stack of views, one canvas, and keys.
It draws what views say; every question to the provider is asked off the loop, in threads that do not keep the
process alive.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tenuto.clock import Clock, SystemClock
from tenuto.errors import MonitorUnavailable, NotAllowed, TenutoError
from tenuto.jobs.text import safe
from tenuto.monitor import shapes
from tenuto.monitor.state_provider import StateProvider
from tenuto.monitor.tui.archive import ArchiveView
from tenuto.monitor.tui.cells import Line, Span, cells, framed, span, spread, text_of
from tenuto.monitor.tui.curves import CurvesView
from tenuto.monitor.tui.dialogs import (
    ACTIONS,
    DIALOG_LINES,
    Prompt,
    QuestionScreen,
    fits,
    objection,
    outcome_words,
)
from tenuto.monitor.tui.graph import GraphView
from tenuto.monitor.tui.help import VIEWS, Help, events_page, pressed, why_page
from tenuto.monitor.tui.job import JobPage
from tenuto.monitor.tui.jobs import JobsTab
from tenuto.monitor.tui.overview import OverviewTab
from tenuto.monitor.tui.resources import ResourcesView
from tenuto.monitor.tui.results import ResultsView
from tenuto.monitor.tui.split import SplitView
from tenuto.monitor.tui.text import clock
from tenuto.monitor.tui.timeline import TimelineView
from tenuto.monitor.tui.view import View

LEAST_S = 0.1
"""Between two questions of a view: at most ten a second."""
WAIT_S = 1.0
"""How long one look for changes lasts, and the pause after a failed one."""
STYLES = {
    "title": Style(bold=True),
    "head": Style(bold=True, dim=True),
    "soft": Style(dim=True),
    "key": Style(color="cyan"),
    "tag": Style(color="blue"),
    "cursor": Style(bold=True),
    "chosen": Style(reverse=True),
    "faint": Style(underline=True),
    "marked": Style(color="magenta", bold=True),
    "alarm": Style(color="magenta", bold=True),
    "lit": Style(bold=True),
    "done": Style(color="green"),
    "running": Style(color="cyan", bold=True),
    "error": Style(color="red"),
    "waiting": Style(color="yellow"),
    "ready": Style(color="yellow"),
    "scheduled": Style(color="blue"),
    "unscheduled": Style(dim=True),
}
"""The words of a style; the colours are the user's own palette's."""
_PLAIN = Style()

T = TypeVar("T")


class Top(App[None]):
    """`tenuto top`."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "Screen { overflow: hidden; }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "quit", show=False, priority=True)]
    """Textual would only tell how to quit."""

    def __init__(
        self,
        provider: StateProvider,
        *,
        group: str | None = None,
        filter: str = "",
        read_only: bool = False,
        by: str = "",
        clock: Clock | None = None,
        login: Callable[[str], object] | None = None,
    ) -> None:
        """`login`: takes a new code of a server elsewhere that was started again."""
        super().__init__(ansi_color=True)
        self._provider = provider
        self._by = by
        self._clock = clock or SystemClock()
        self._canvas = Canvas()
        self.group = group
        self.now = self._clock.now().isoformat()
        self.read_only = read_only
        self.marked: dict[str, shapes.Job] = {}
        self._workspace = ""
        self._connection = Connection(provider, self._hear, self.redraw)
        self._login = login
        self._said = ""
        made: tuple[View, ...] = (
            OverviewTab(self),
            SplitView(self, filter),
            TimelineView(self),
            GraphView(self),
            ResultsView(self),
            ResourcesView(self),
            ArchiveView(self),
            CurvesView(self),
        )
        self._views = {view.name: view for view in made}
        self._stack: list[View] = [self._views["jobs" if group or filter else "overview"]]
        self._wake = asyncio.Event()
        self._asking: asyncio.Task[None] | None = None
        self.answered = 0
        """How many answers were drawn; tests wait for it."""

    # The life of the application

    def compose(self) -> ComposeResult:
        yield self._canvas

    def on_mount(self) -> None:
        self._connection.start()
        self.later(lambda provider: provider.about(), self._know)
        self.set_interval(1.0, self.redraw)
        self._begin_asking()

    def on_unmount(self) -> None:
        self._connection.close()
        if self._asking is not None:
            self._asking.cancel()

    def _know(self, about: shapes.About) -> None:
        self._workspace = about["workspace"]
        self.read_only = self.read_only or about["read_only"]

    # Asking, off the loop

    def _ask_code(self) -> None:
        """Ask for a code of the server that was started again, and log in with it."""

        def log_in(text: str) -> None:
            code = text.rpartition("#code=")[2]
            self.later(lambda _: self._login(code) if self._login else None, lambda _: self.renew())

        self.open(Prompt(self, "", log_in, "code"))

    def _hear(self) -> None:
        for view in self._stack:
            view.told()
        self.renew()

    def renew(self) -> None:
        """Ask again, soon."""
        self._wake.set()

    def _begin_asking(self) -> None:
        """Ask for the view on top; a request for another one is not waited for."""
        if self._asking is not None:
            self._asking.cancel()
        self._wake = asyncio.Event()
        self._wake.set()
        self._asking = asyncio.create_task(self._ask_for(self._asked_view(), self._wake))

    def _asked_view(self) -> View:
        return next(view for view in reversed(self._stack) if not view.is_dialog)

    async def _ask_for(self, view: View, wake: asyncio.Event) -> None:
        while wake is self._wake:  # in Python 3.11 a cancellation can be lost in `wait_for`
            try:
                await asyncio.wait_for(wake.wait(), view.period_s)
            except TimeoutError:
                view.told()
            wake.clear()
            try:
                answer = await in_thread(lambda: view.ask(self._provider))
            except TenutoError as error:
                self._refuse(view, error)
            else:
                view.take(answer)
            self.answered += 1
            self.redraw()
            await asyncio.sleep(LEAST_S)

    def _refuse(self, view: View, error: TenutoError) -> None:
        if isinstance(error, MonitorUnavailable | NotAllowed):
            self._connection.lose(error)
        elif not view.fail(error):
            self._said = str(error)

    def later(self, question: Callable[[StateProvider], T], then: Callable[[T], object]) -> None:
        """Ask off the loop, and continue with the answer; a refusal is said."""

        async def ask() -> None:
            try:
                answer = await in_thread(lambda: question(self._provider))
            except TenutoError as error:
                self.say(f"Nothing was done: {error}")
            else:
                then(answer)
            self.redraw()

        self.run_worker(ask(), exit_on_error=True)

    # What views ask of their host

    @property
    def view(self) -> View:
        """The view on top."""
        return self._stack[-1]

    def open(self, view: View) -> None:
        """Show a view over this one."""
        self._stack.append(view)
        self._begin_asking()

    def back(self) -> None:
        """Leave the view on top; the last one stays."""
        if len(self._stack) > 1:
            self._stack.pop()
            self._begin_asking()

    def go(self, name: str) -> None:
        """Show one of the views; ``jobs FILTER`` with a filter."""
        name, _, filter = name.partition(" ")
        view = self._views[name]
        if isinstance(view, JobsTab) and (filter or self.view is not view):
            view.set_filter(filter)
        if isinstance(view, GraphView):
            view.around = self.view.job["key"] if isinstance(self.view, JobPage) else None
        if name == "overview":
            self.group = None
        self._stack = [view]
        self._begin_asking()

    def say(self, sentence: str) -> None:
        """Show a sentence until the next key."""
        self._said = sentence
        self.redraw()

    def copy(self, text: str) -> None:
        """Hand a text to the clipboard of the terminal."""
        self.copy_to_clipboard(safe(text))
        self.say(f"copied: {text}")

    def act(self, action: str, jobs: Sequence[shapes.Job], more: int = 0) -> None:
        """Ask whether to act on jobs, and act."""
        chosen = [job for job in jobs if fits(action, job)]
        why_not = objection(action, chosen, is_read_only=self.read_only)
        if why_not is not None:
            self.say(why_not)
            return
        targets = [(job["key"], job["attempt"]) for job in chosen]

        def tell(outcomes: shapes.Outcomes) -> None:
            self.marked.clear()
            self.say(outcome_words(targets, outcomes["outcomes"]))
            self._hear()

        def agreed() -> None:
            self.say(f"{action}: asked …")
            self.later(lambda provider: provider.act(action, targets, by=self._by), tell)

        self.open(QuestionScreen(self, action, chosen, more, agreed))

    # Keys

    async def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        self.press(pressed(event.key, event.character))

    def on_paste(self, event: events.Paste) -> None:
        if isinstance(self.view, Prompt):
            self.view.paste(event.text)
            self.redraw()

    def press(self, key: str) -> None:
        """Act on a key: the view on top first, then what every view has."""
        view = self.view
        self._said = "" if not view.is_dialog else self._said
        if not view.press(key):
            self._press_everywhere(key, view)
        self.redraw()

    def _press_everywhere(self, key: str, view: View) -> None:
        if key == "q":
            self.exit()
        elif key.isdigit() and 1 <= int(key) <= len(VIEWS):
            self.go(VIEWS[int(key) - 1])
        elif key == "?":
            self.open(Help(self))
        elif key == "escape":
            self.back() if len(self._stack) > 1 else self.go("overview")
        elif key in ACTIONS:
            self.act(ACTIONS[key], view.jobs())
        elif key == "c" and self._connection.is_logged_out and self._login is not None:
            self._ask_code()
        else:
            self._press_job(key, view.current())

    def _press_job(self, key: str, job: shapes.Job | None) -> None:
        if job is None:
            return
        if key == "w":
            self.open(why_page(self, job))
        elif key == "v":
            self.open(events_page(self, job))
        elif key == "l":
            self.open(JobPage(self, job, zoomed=True))
        elif key == "y":
            self.copy(job["id"])

    # Drawing

    def on_resize(self, event: events.Resize) -> None:
        self.redraw()
        self.renew()

    def redraw(self) -> None:
        """Draw the views; lines that did not change are left alone."""
        if self.is_running:
            self.now = self._clock.now().isoformat()
            self._canvas.show(self.frame(self.size.width, self.size.height))

    def frame(self, room: int, height: int) -> list[Line]:
        """The whole window."""
        view = self.view
        base = self._asked_view()
        lines: list[Line] = [self._header(base, room)] if height >= 3 else []
        foot: list[Line] = []
        if view.is_dialog:
            foot = view.draw(room, min(DIALOG_LINES, max(height - len(lines), 1)))
        elif self._said:
            foot = [[span(f" {self._said}", "title")]]
        if height >= 4:
            foot.append([span(f" {view.hints}", "soft")])
        foot = foot[-height:]
        body = max(height - len(lines) - len(foot), 0)
        return framed([*lines, *framed(base.draw(room, body), room, body), *foot], room, height)

    def _header(self, view: View, room: int) -> Line:
        place = f"{VIEWS.index(view.name) + 1}/{len(VIEWS)} " if view.name in VIEWS else ""
        left = [Span(" "), *(view.heading() or [span("tenuto top  ", "title"), span(self._workspace)])]
        style = "done" if self._connection.is_live else "alarm"
        right = [span(f"  {self._connection.words} ", style), span(f"{clock(self.now)}  {place}")]
        return spread(left, right if cells(right) * 2 <= room else [], room)

    def text(self) -> list[str]:
        """The window as plain text, for tests."""
        return [text_of(one) for one in self.frame(self.size.width, self.size.height)]


@lru_cache(maxsize=512)
def style_of(words: str) -> Style:
    """The style of some words; unknown ones say nothing."""
    style = _PLAIN
    for word in words.split():
        style += STYLES.get(word, _PLAIN)
    return style


class Canvas(Widget):
    """The whole window."""

    DEFAULT_CSS = "Canvas { width: 100%; height: 100%; }"

    def __init__(self) -> None:
        super().__init__()
        self._lines: Sequence[Line] = ()

    def show(self, lines: Sequence[Line]) -> None:
        """Draw lines, the ones not on the screen yet."""
        before, self._lines = self._lines, lines
        changed = [
            Region(0, row, self.size.width, 1)
            for row in range(max(len(lines), len(before)))
            if row >= len(lines) or row >= len(before) or lines[row] != before[row]
        ]
        if changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        room = self.size.width
        content = self._lines[y] if y < len(self._lines) else []
        # `safe` again, whatever a view forgot: nothing but printable text reaches the terminal.
        segments = [Segment(safe(one.text), style_of(one.style)) for one in content]
        return Strip(segments).adjust_cell_length(room, _PLAIN)


class Connection:
    """Follows a provider until it is closed."""

    def __init__(
        self, provider: StateProvider, heard: Callable[[], object], lost: Callable[[], object]
    ) -> None:
        """`heard`: called after a change, and once the provider is heard again; `lost`: when it is not."""
        self._provider = provider
        self._heard = heard
        self._lost = lost
        self._since: str | None = None
        self._has_ended = threading.Event()
        self.is_live = False
        self.is_logged_out = False

    @property
    def words(self) -> str:
        """What a person reads of it."""
        if self.is_live:
            return "live ●"
        return "logged out: c takes a new code" if self.is_logged_out else "reconnecting"

    def start(self) -> None:
        """Begin to follow; in the loop of the application."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._follow, args=(loop,), name="tenuto-top", daemon=True).start()

    def close(self) -> None:
        """Have the thread end; a question that is open ends with the process."""
        self._has_ended.set()

    def lose(self, error: TenutoError) -> None:
        """Take note of an error of the provider; in the loop."""
        self.is_live, self.is_logged_out = False, isinstance(error, NotAllowed)
        self._lost()

    def _follow(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._has_ended.is_set():
            try:
                frame = self._provider.changes(self._since, WAIT_S)
            except TenutoError as error:
                call(loop, self.lose, error)
                self._has_ended.wait(WAIT_S)
                continue
            since = f"{frame['epoch']}-{frame['seq']}"
            is_news, self._since = since != self._since, since
            call(loop, self._hear, is_news)

    def _hear(self, is_news: bool) -> None:
        was_live, self.is_live, self.is_logged_out = self.is_live, True, False
        if is_news or not was_live:
            self._heard()


async def in_thread(function: Callable[[], T]) -> T:
    """The answer of a function that blocks; a thread that hangs does not keep the process alive."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(answer: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(answer)

    def run() -> None:
        answer: Any = None
        error: BaseException | None = None
        try:
            answer = function()
        except Exception as raised:  # noqa: BLE001 - handed to the loop, which raises it
            error = raised
        call(loop, settle, answer, error)

    threading.Thread(target=run, name="tenuto-top-question", daemon=True).start()
    return await future


def call(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *given: Any) -> None:
    """Call a function in the loop, unless that has ended."""
    try:
        loop.call_soon_threadsafe(function, *given)
    except RuntimeError:  # the loop was closed while a thread still asked
        return
