"""The keys of the terminal, and views that are read and left: keys, why a job is where it is, events, a diff.
Each shows lines that scroll, and asks the provider at most once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tenuto.jobs.text import safe, width
from tenuto.monitor import shapes
from tenuto.monitor.state_provider import StateProvider
from tenuto.monitor.tui.cells import Line, Span, span, wrapped
from tenuto.monitor.tui.text import clock, key_name, nearest_words, plain
from tenuto.monitor.tui.view import Host, View


class Key(NamedTuple):
    """Keys, and what they do."""

    keys: tuple[str, ...]
    label: str
    """As it is printed."""
    meaning: str


VIEWS = ("overview", "jobs", "timeline", "graph", "results", "resources", "archive", "curves")
"""The views of the keys 1 to 8."""

KEYS = (
    Key(tuple("12345678"), "1-8", "a view: " + " ".join(VIEWS)),
    Key(("up", "down", "j", "k"), "↑ ↓ j k", "move"),
    Key(("g", "home", "G"), "g G", "to the first, to the last"),
    Key(("pageup", "pagedown"), "PgUp PgDn", "a page up, a page down"),
    Key(
        ("tab", "shift+tab"),
        "Tab",
        "the next part of a view, the next pane of a split window, the next bar of the timeline",
    ),
    Key(("enter",), "Enter", "open"),
    Key(("escape",), "Esc", "back; leave the filter, a question, a zoomed pane"),
    Key(("?",), "?", "this help"),
    Key(("q",), "q", "quit"),
    Key(("/",), "/", "filter the jobs, an error points at the character; in a log: search"),
    Key(("n", "N"), "n N", "log: the next line with the text that is sought, the line before"),
    Key(("s", "S"), "s S", "sort by the next column; turn the order round"),
    Key(("space", "*"), "space *", "mark; mark all that match, or none"),
    Key(("K",), "K", "kill; asks first (y n), naming task, id and attempt"),
    Key(("R",), "R", "retry; asks first"),
    Key(("D",), "D", "clean: delete the directory; asks first"),
    Key(("l",), "l", "log of the job"),
    Key(("e",), "e", "out or err"),
    Key(("F",), "F", "follow the log, or stop"),
    Key(("w",), "w", "why the job is where it is"),
    Key(("v",), "v", "events of the job"),
    Key(("x",), "x", "diff of two marked jobs, or of this one and a marked one; results: the x axis"),
    Key(("y",), "y", "copy the id; in a job, the command; results: the y axis; curves: the metric"),
    Key(("z",), "z", "zoom: the pane or the log gets the whole window; timeline: fit"),
    Key(("+", "-"), "+ -", "timeline: zoom in, zoom out; graph: depth around a job"),
    Key(("left", "right"), "← →", "timeline: earlier, later; archive: move"),
    Key(("c",), "c", "the code of a server elsewhere that was started again"),
    Key(("t", "L"), "t L", "results: the task, and a logarithmic x axis; curves: a logarithmic y axis"),
    Key(("p",), "p", "results: the best 10 %; archive: the parents of the elite"),
)


def pressed(key: str, character: str | None) -> str:
    """The name of a key by which views act: its character where that can be seen."""
    is_seen = character is not None and len(character) == 1 and character.isprintable() and character != " "
    return character if is_seen and character is not None else key


Paragraph = tuple[str, str]
"""A label, and a text that is wrapped beside it."""


class _Page(View):
    """Paragraphs that scroll."""

    name = "page"
    hints = "↑ ↓ scroll  Esc back"
    label_cells = 10

    def __init__(self, host: Host, title: str, paragraphs: Sequence[Paragraph] = ()) -> None:
        super().__init__(host)
        self.title = title
        self._paragraphs = paragraphs
        self._top = 0
        self._height = 1
        self._count = 0

    def heading(self) -> Line:
        return [span(self.title, "title")]

    def draw(self, room: int, height: int) -> list[Line]:
        lines: list[Line] = []
        label = min(self.label_cells, max(room // 3, 1))
        for name, text in self._paragraphs:
            for place, one in enumerate(wrapped(safe(text), max(room - label - 2, 1))):
                shown = safe(name) if place == 0 else ""
                blank = " " * max(label - width(shown), 1)
                lines.append([Span(" "), Span(shown, "key"), Span(blank), Span(one)])
        self._height, self._count = max(height, 1), len(lines)
        self._top = min(self._top, max(len(lines) - self._height, 0))
        return lines[self._top : self._top + height]

    def press(self, key: str) -> bool:
        steps = {"down": 1, "j": 1, "up": -1, "k": -1, "pagedown": self._height, "pageup": -self._height}
        if key in steps:
            self._top = max(self._top + steps[key], 0)
        elif key in ("g", "home"):
            self._top = 0
        elif key == "G":
            self._top = self._count
        elif key in ("escape", "enter"):
            self.host.back()
        else:
            return False
        return True


class Help(_Page):
    """Every key."""

    name = "help"
    label_cells = 11

    def __init__(self, host: Host) -> None:
        super().__init__(host, "Keys", [(key.label, key.meaning) for key in KEYS])


class Asked(_Page):
    """Paragraphs that the provider is asked for."""

    def __init__(
        self, host: Host, title: str, question: Callable[[StateProvider], Sequence[Paragraph]]
    ) -> None:
        super().__init__(host, title, [("", "…")])
        self._question = question
        self._is_known = False

    def ask(self, provider: StateProvider) -> Sequence[Paragraph] | None:
        return None if self._is_known else self._question(provider)

    def take(self, answer: Sequence[Paragraph] | None) -> None:
        if answer is not None:
            self._paragraphs, self._is_known = answer, True


def why_page(host: Host, job: shapes.Job) -> _Page:
    """Why a job is where it is."""

    def question(provider: StateProvider) -> Sequence[Paragraph]:
        why = provider.why(job["key"])
        found = [("because" if not place else "", text) for place, text in enumerate(why["because"])]
        found.append(("reuse", why["reuse"]))
        if why["nearest"] is not None:
            found.append(("nearest", nearest_words(why["nearest"])))
        found += [("code" if not place else "", text) for place, text in enumerate(why["code"])]
        found += [("next" if not place else "", text) for place, text in enumerate(why["next"])]
        return [one for one in found if one[1]]

    return Asked(host, f"why {key_name(job['key'])}", question)


def events_page(host: Host, job: shapes.Job) -> _Page:
    """The events of a job, the oldest first."""

    def question(provider: StateProvider) -> Sequence[Paragraph]:
        events = provider.job(job["key"])["events"]
        return [event_words(event) for event in events] or [("", "no event of this job is kept")]

    return Asked(host, f"events {key_name(job['key'])}", question)


def event_words(event: dict[str, Any]) -> Paragraph:
    """An event as its time and its fields."""
    when = event.get("at", event.get("time"))
    rest = {name: value for name, value in event.items() if name not in ("at", "time")}
    return clock(when if isinstance(when, str) else None), " ".join(
        f"{name}={plain(value)}" for name, value in rest.items() if value not in (None, "", [], {})
    )


def diff_page(host: Host, one: shapes.Job, other: shapes.Job) -> _Page:
    """The parameters and tags in which two jobs differ."""

    def question(provider: StateProvider) -> Sequence[Paragraph]:
        first, second = provider.job(one["key"]), provider.job(other["key"])
        found: list[Paragraph] = [("", f"{key_name(one['key'])}  against  {key_name(other['key'])}")]
        found += _differences(first["parameters"], second["parameters"])
        if len(found) == 1:
            found += _differences(first["tags"], second["tags"])
        return found if len(found) > 1 else [*found, ("", "their parameters are the same")]

    return Asked(host, "diff", question)


def _differences(here: Any, there: Any) -> list[Paragraph]:
    names = {**here, **there}
    absent = "not set"
    return [
        (name, f"{_value(here, name, absent)}  ←  {_value(there, name, absent)}")
        for name in names
        if here.get(name, absent) != there.get(name, absent)
    ]


def _value(values: Any, name: str, absent: str) -> str:
    return plain(values[name]) if name in values else absent
