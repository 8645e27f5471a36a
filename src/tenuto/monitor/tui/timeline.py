"""The timeline of all groups, and the reasons of the job of the chosen bar.
Lines and bins come from the provider; `timeline_rows` draws them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tenuto.errors import NotFound
from tenuto.jobs.text import duration
from tenuto.monitor import shapes
from tenuto.monitor.state_provider import StateProvider
from tenuto.monitor.timeline import instant_of
from tenuto.monitor.tui.cells import Line, Span, fitted, span
from tenuto.monitor.tui.job import JobPage
from tenuto.monitor.tui.text import (
    COUNTED,
    attempt_words,
    clock,
    count_spans,
    key_group_name,
    key_name,
    seconds_between,
)
from tenuto.monitor.tui.timeline_rows import (
    DrawnBar,
    across,
    bars_of,
    group_rows,
    in_sight,
    label_cells,
    token_row,
)
from tenuto.monitor.tui.view import Host, View

_LEAST_SPAN_MS = 2_000


class TimelineAnswers(NamedTuple):
    """The answer."""

    timeline: shapes.Timeline
    overview: shapes.OverviewJson
    job: shapes.JobDetail | None
    why: shapes.WhyJson | None


class TimelineView(View):
    """Bars over time; Tab goes from bar to bar, ← and → to earlier and later."""

    name = "timeline"
    hints = "Tab next bar  Enter open  + - zoom  ← → earlier, later  z fit  w why"

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._known: TimelineAnswers | None = None
        self._bars: list[DrawnBar] = []
        self._chosen: DrawnBar | None = None
        self._opens = False
        """Enter was pressed before the job of the chosen bar was known."""
        self._range: tuple[int, int | None] | None = None
        self._width = 80

    # The provider

    def ask(self, provider: StateProvider) -> TimelineAnswers:
        groups = [self.host.group] if self.host.group else []
        start, end = self._range or (None, None)
        timeline = provider.timeline(groups, start, end, across(self._width))
        job = why = None
        chosen = self._chosen
        if chosen is not None:
            try:
                job, why = provider.job(chosen.key), provider.why(chosen.key)
            except NotFound:
                job = why = None
        return TimelineAnswers(timeline, provider.overview(), job, why)

    def take(self, answer: TimelineAnswers) -> None:
        self._known = answer
        self._bars = bars_of(answer.timeline)
        if self._chosen is not None:
            same = (self._chosen.key, self._chosen.attempt)
            self._chosen = next((one for one in self._bars if (one.key, one.attempt) == same), None)
        job = self.current()
        if self._opens and job is not None:
            self._opens = False
            self.host.open(JobPage(self.host, job))

    @property
    def period_s(self) -> float | None:  # type: ignore[override]
        """Every second while a bar is held."""
        return 1.0 if any(bar.state == "running" for bar in self._bars) else None

    # Looking

    def heading(self) -> Line:
        what = key_group_name(self.host.group, self.host.now) if self.host.group else "all kinds"
        content = [span("timeline ", "title"), span(what, "title")]
        if self._known is not None:
            shown = self._known.timeline
            content.append(span(f"   {_time(shown['from'])} ── {_time(shown['to'])}", "soft"))
        return content

    def draw(self, room: int, height: int) -> list[Line]:
        self._width = room
        if self._known is None:
            return [[span(" …", "soft")]]
        rows = group_rows(self._known.timeline, room, self._chosen, self._lit(), self.host.now)
        foot = [*self._tokens(room), self._counts(), self._trail()][-max(height - 1, 0) :]
        space = max(height - len(foot), 0)
        shown = in_sight(rows, room, space, [self._chosen.key] if self._chosen else [])
        blank: list[Line] = [[] for _ in range(space - len(shown))]
        return [*shown, *blank, *foot]

    def _lit(self) -> frozenset[str]:
        """The chosen bar, and the bars before and after it."""
        job = self._job()
        if job is None:
            return frozenset()
        linked = [*job["dependencies"], *job["dependents"]]
        return frozenset([job["key"], *(one["key"] for one in linked)])

    def _tokens(self, room: int) -> list[Line]:
        assert self._known is not None
        return [
            [
                Span(" "),
                *fitted([span(_token_name(token), "title")], label_cells(room)),
                Span("┤", "soft"),
                *token_row(token, self._known.timeline, across(room)),
            ]
            for token in self._known.timeline["tokens"][:3]
        ]

    def _counts(self) -> Line:
        assert self._known is not None
        groups = [one for one in self._known.overview["groups"] if self.host.group in (None, one["group"])]
        total = {state: sum(one["counts"].get(state, 0) for one in groups) for state in COUNTED}
        content = [span(f" {'now':<13} ", "title")]
        for words, state in count_spans(total):
            content += [span(words, state), Span("  ")]
        return [*content, Span("    "), *self._story()]

    def _story(self) -> Line:
        job = self.current()
        if job is None or self._chosen is None:
            return []
        waited = seconds_between(job["submitted"], job["started"])
        words = [f"waited {duration(waited)}" if waited is not None else ""]
        words += [f"ran {duration(job['duration_s'])}" if job["duration_s"] is not None else ""]
        most = self._known.job["most_attempts"] if self._known and self._known.job else None
        words += [attempt_words(self._chosen.attempt, most)]
        name = f"{key_name(job['key'])} "
        return [span(name, "title"), span(", ".join(word for word in words if word))]

    def _trail(self) -> Line:
        why = self._known.why if self._known else None
        if self._chosen is None or why is None or self.current() is None:
            return [span(" why           Tab chooses a bar, which is explained here", "soft")]
        return [span(" why           ", "key"), span(" ← ".join(why["because"]), self._chosen.state)]

    # Acting

    def current(self) -> shapes.Job | None:
        return self._job()

    def _job(self) -> shapes.JobDetail | None:
        """The job of the chosen bar; None until it is known: a key must not act on the bar before."""
        job = self._known.job if self._known else None
        chosen = self._chosen
        return job if job is not None and chosen is not None and job["key"] == chosen.key else None

    def jobs(self) -> Sequence[shapes.Job]:
        job = self.current()
        return [job] if job is not None else []

    def press(self, key: str) -> bool:
        job = self.current()
        if key in ("tab", "shift+tab", "down", "up", "j", "k", "g", "G", "pageup", "pagedown"):
            self._step(key)
        elif key == "enter" and self._chosen is not None:
            self._opens = job is None
            if job is not None:
                self.host.open(JobPage(self.host, job))
        elif key in ("+", "-"):
            self._zoom(0.5 if key == "+" else 2.0)
        elif key in ("left", "right"):
            self._shift(-1 if key == "left" else 1)
        elif key == "z":
            self._range = None
        elif key == "escape" and self._chosen is not None:
            self._chosen = None
        else:
            return False
        self.host.renew()
        return True

    def _step(self, key: str) -> None:
        self._opens = False
        if not self._bars:
            return
        is_forward = key in ("tab", "down", "j", "pagedown")
        step = (10 if key.startswith("page") else 1) * (1 if is_forward else -1)
        if self._chosen in self._bars:
            number = self._bars.index(self._chosen) + step
        else:
            number = 0 if is_forward else -1
        number = 0 if key == "g" else len(self._bars) - 1 if key == "G" else number
        self._chosen = self._bars[number % len(self._bars)]

    def _zoom(self, factor: float) -> None:
        """Show more or less of the time: around the chosen bar, else up to now."""
        if self._known is None:
            return
        first, last = self._known.timeline["from"], self._known.timeline["to"]
        wide = max(int((last - first) * factor), _LEAST_SPAN_MS)
        if self._chosen is None:
            self._range = (last - wide, self._range[1] if self._range else None)
        else:
            middle = (self._chosen.start + self._chosen.end) // 2
            self._range = (middle - wide // 2, middle + wide // 2)

    def _shift(self, step: int) -> None:
        """Show the time a quarter of the window earlier, or later."""
        if self._known is not None:
            first, last = self._known.timeline["from"], self._known.timeline["to"]
            moved = step * (last - first) // 4
            self._range = (first + moved, last + moved)


def _token_name(token: shapes.TokenLane) -> str:
    capacity = token["capacity"]
    return f"token {token['name']} {capacity}" if capacity is not None else f"token {token['name']}"


def _time(milliseconds: int) -> str:
    return clock(instant_of(milliseconds).isoformat())
