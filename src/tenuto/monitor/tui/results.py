"""What jobs gave: a table, and a scatter of two of its columns.
Columns and numbers come from the provider; order, axes and the filter are of this view only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tenuto.errors import TenutoError
from tenuto.jobs.drawing import Braille
from tenuto.jobs.filters import ANY
from tenuto.jobs.query import order_key, read_question
from tenuto.jobs.result_table import less_is_better
from tenuto.monitor import shapes
from tenuto.monitor.state_provider import StateProvider
from tenuto.monitor.tui.cells import Line, Span, beside, fitted, span
from tenuto.monitor.tui.dialogs import Prompt
from tenuto.monitor.tui.job import JobPage
from tenuto.monitor.tui.jobs import MOST_NAME
from tenuto.monitor.tui.table import Listing, TableColumn, header, placed, pointed, row_line
from tenuto.monitor.tui.text import key_group_name, key_id, number, plain, short_task
from tenuto.monitor.tui.view import Host, View, group_or_newest

MOST_ROWS = 10_000
LEAST_PLOT = 64
"""The cells of a window that has room for a scatter."""
_FIXED = ("key", "task", "id", "state")
_MEASURED = ("took_s", "objective", "cost")
"""Columns that tell what a job made, as its results do, and not how it was called."""
_DECADES = 100
"""Positive values that span as much are drawn by a logarithm, as on the page."""

Result = dict[str, Any]
_AXIS = 8
"""The fewest cells of the numbers beside an axis."""


class Point(NamedTuple):
    """A point, and what draws it apart."""

    x: float
    y: float
    style: str = ""


class Scale(NamedTuple):
    """The range of an axis."""

    low: float
    high: float
    is_log: bool = False

    def share(self, value: float) -> float:
        """Where a value lies, from 0 to 1."""
        low, high = self.low, self.high
        if self.is_log and low > 0 and value > 0:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return min(max((value - low) / ((high - low) or 1.0), 0.0), 1.0)


def scale(values: Sequence[float], *, is_log: bool = False) -> Scale:
    """The range of values; a logarithm needs all of them above zero."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    return Scale(low, high, is_log and low > 0)


def scatter(points: Sequence[Point], across: Scale, up: Scale, room: int, height: int) -> list[Line]:
    """Points in so many cells, with numbers at the ends of the axes."""
    axis = max(_AXIS, len(number(up.high)), len(number(up.low)))
    wide, tall = room - axis - 2, height - 2
    if wide < 4 or tall < 1:
        return []
    dots = Braille(wide, tall)
    for point in points:
        x = min(int(across.share(point.x) * (wide * 2 - 1) + 0.5), wide * 2 - 1)
        y = min(int((1 - up.share(point.y)) * (tall * 4 - 1) + 0.5), tall * 4 - 1)
        dots.dot(x, y, point.style)
    lines: list[Line] = []
    for row, cells in enumerate(dots.rows()):
        label = number(up.high) if row == 0 else number(up.low) if row == tall - 1 else ""
        marks = [Span(letter, style or "running") for letter, style in cells]
        lines.append([span(f"{label:>{axis}} ", "soft"), Span("┤", "soft"), *marks])
    lines.append([Span(" " * (axis + 1)), Span("└" + "─" * wide, "soft")])
    low, high = number(across.low), number(across.high)
    lines.append([Span(" " * (axis + 2)), span(f"{low}{high:>{max(wide - len(low), 0)}}", "soft")])
    return [fitted(one, room) for one in lines]


class ResultsAnswers(NamedTuple):
    """The answer."""

    group: str | None
    results: shapes.Results | None


class ResultsView(View):
    """Table and scatter of the results of one task."""

    name = "results"
    hints = "s sort  x y axes  L log  p best 10 %  t task  / filter  Enter open  Esc back"

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._known: ResultsAnswers | None = None
        self._task: str | None = None
        self._sort = ""
        self._x = self._y = ""
        self._is_log = False
        self._only_best = False
        self._filter = ""
        self._listing: Listing[Result] = Listing(lambda row: str(row["key"]))

    # The provider

    def ask(self, provider: StateProvider) -> ResultsAnswers:
        group = group_or_newest(provider, self.host.group)
        return ResultsAnswers(group, provider.results(group, None, 0, MOST_ROWS) if group else None)

    def take(self, answer: ResultsAnswers) -> None:
        if self._known is None or answer.group != self._known.group:
            self._task, self._sort, self._x, self._y, self._filter = None, "", "", "", ""
            self._listing.reset()
        self._known = answer
        tasks = self._tasks()
        if self._task not in tasks:
            self._task = max(tasks, key=self._worth, default=None)
        names = self._numbers()
        if self._y not in names:
            given = [name for name in names if name.startswith("result") or name == "objective"]
            self._y = max(given or names[-1:], key=lambda name: self._in_common(name, name), default="")
        if self._x not in names:
            others = [name for name in names if name != self._y and self._varies(name)]
            own = [
                name
                for name in others
                if name not in _MEASURED and not name.startswith(("result", "measure "))
            ]
            self._x = max(own or others, key=lambda name: self._in_common(name, self._y), default=self._y)
            values = [row[self._x] for row in self._rows() if row.get(self._x) is not None]
            self._is_log = min(values, default=0) > 0 and max(values) / min(values) >= _DECADES
        if not self._sort and self._y:
            self._sort = self._y if self._is_less(self._y) else f"-{self._y}"
        self._arrange()

    def _rows(self) -> list[Result]:
        """The rows of the task."""
        return [row for row in self._all() if row["task"] == self._task]

    def _varies(self, name: str) -> bool:
        return len({row.get(name) for row in self._rows() if row.get(self._y) is not None} - {None}) > 1

    def _in_common(self, one: str, other: str) -> int:
        """How many rows of the task have values in both columns."""
        return sum(row.get(one) is not None and row.get(other) is not None for row in self._rows())

    def _worth(self, task: str) -> int:
        """A task with more values says more."""
        rows = [row for row in self._all() if row["task"] == task]
        return len({name for row in rows for name, value in row.items() if value is not None})

    def _all(self) -> Sequence[Result]:
        return self._known.results["rows"] if self._known and self._known.results else ()

    def _tasks(self) -> list[str]:
        """The tasks whose jobs gave something."""
        found = {str(row["task"]): self._worth(str(row["task"])) for row in self._all()}
        return sorted(task for task, worth in found.items() if worth > len(_FIXED)) or sorted(found)

    def _names(self) -> list[str]:
        """The columns that the rows of the task have."""
        columns = self._known.results["columns"] if self._known and self._known.results else []
        rows = self._rows()
        return [
            column["name"]
            for column in columns
            if column["name"] not in _FIXED and any(row.get(column["name"]) is not None for row in rows)
        ]

    def _is_less(self, name: str) -> bool:
        """Whether smaller values of a column are better, by its search or as far as its name tells."""
        columns = self._known.results["columns"] if self._known and self._known.results else []
        declared = any(column["name"] == name and column.get("less") for column in columns)
        return declared or less_is_better(name)

    def _numbers(self) -> list[str]:
        columns = self._known.results["columns"] if self._known and self._known.results else []
        numeric = {column["name"] for column in columns if column["kind"] == "number"}
        return [name for name in self._names() if name in numeric]

    def _arrange(self) -> None:
        """The rows of the task that match, in order; of them the best tenth, if that is asked for."""
        rows = self._rows()
        if self._filter:
            tree = read_question(self._filter, words=True)
            try:
                texts = [{**row, ANY: tuple(map(str, row.values()))} for row in rows]
                rows = [
                    row for row, one in zip(rows, texts, strict=True) if tree is None or tree.matches(one)
                ]
            except TenutoError as error:
                self.host.say(str(error))
        if self._only_best and self._y:
            rows = _ordered(rows, self._y, descending=not self._is_less(self._y))[: max(len(rows) // 10, 1)]
        if self._sort:
            rows = _ordered(rows, self._sort.removeprefix("-"), descending=self._sort.startswith("-"))
        self._listing.take(rows, len(rows))

    # Looking

    def heading(self) -> Line:
        name = key_group_name(self._known.group, self.host.now) if self._known and self._known.group else ""
        content = [span(f"results {name}  ", "title")]
        if self._task is not None:
            content.append(span(f"task {short_task(self._task)}   "))
        if self._y:
            log = " (log)" if self._is_log else ""
            content.append(span(f"y {self._y}   x {self._x}{log}   ", "key"))
        if self._only_best:
            content.append(span("top 10 %   "))
        return [*content, span(f"filter: {self._filter}" if self._filter else "", "key")]

    def draw(self, room: int, height: int) -> list[Line]:
        if self._known is None:
            return [[span(" …", "soft")]]
        if not self._all():
            return [[span(" no job of this group has given a result yet", "soft")]]
        if not self._listing.count:
            return [[span(" no result matches the filter", "soft")]]
        if room < LEAST_PLOT or not self._y:
            return self._draw_table(room, height)
        left = room * 2 // 5
        plot = self._draw_plot(left, min(height, left // 2 + 4))
        return beside(
            [(plot, left), (self._draw_table(room - left - 1, height), room - left - 1)], height, " "
        )

    def _draw_plot(self, room: int, height: int) -> list[Line]:
        rows = [
            row for row in self._listing.rows if _is_number(row.get(self._x)) and _is_number(row.get(self._y))
        ]
        chosen = self._listing.chosen
        points = [Point(row[self._x], row[self._y], "error chosen" if row is chosen else "") for row in rows]
        points.sort(key=lambda point: bool(point.style))
        across = scale([point.x for point in points], is_log=self._is_log)
        up = scale([point.y for point in points])
        return scatter(points, across, up, room, height)

    def _columns(self) -> list[TableColumn[Result]]:
        numeric = set(self._numbers())
        found = [
            TableColumn[Result](
                name.removeprefix("result.").upper(),
                min(max(len(name.removeprefix("result.")) + 1, 8), 14),
                _value(name),
                right=name in numeric,
                rank=1 + place + (0 if name in (self._x, self._y) else 20),
                sort=name,
            )
            for place, name in enumerate(self._names())
        ]
        wide = max((len(key_id(str(row["key"]))) for row in self._listing.rows), default=0)
        name = TableColumn[Result]("ID", min(max(wide, 8), MOST_NAME), lambda row: key_id(str(row["key"])))
        return [name, *found]

    def _draw_table(self, room: int, height: int) -> list[Line]:
        chosen = placed(self._columns(), room - 1)
        lines = [[span(" "), *header(chosen, self._sort)]] if height > 1 else []
        for index in self._listing.visible(height - len(lines)):
            row = self._listing.row(index)
            if row is not None:
                is_cursor = index == self._listing.cursor
                lines.append(pointed(row_line(chosen, row), room, is_cursor=is_cursor))
        return lines

    # Acting

    def press(self, key: str) -> bool:
        if self._listing.press(key):
            return True
        names = self._numbers()
        row = self._listing.chosen
        if key == "enter" and row is not None:
            job_key = str(row["key"])
            self.host.later(
                lambda provider: provider.job(job_key), lambda job: self.host.open(JobPage(self.host, job))
            )
        elif key == "s":
            self._sort = f"-{_next(self._names(), self._sort.removeprefix('-'))}"
        elif key == "S":
            self._sort = self._sort[1:] if self._sort.startswith("-") else f"-{self._sort}"
        elif key == "x":
            self._x = _next(names, self._x)
        elif key == "y":
            self._y = _next(names, self._y)
        elif key == "L":
            self._is_log = not self._is_log
        elif key == "p":
            self._only_best = not self._only_best
        elif key == "t":
            self._task, self._sort, self._x, self._y = _next(self._tasks(), self._task or ""), "", "", ""
            self.host.renew()
        elif key == "/":
            self.host.open(Prompt(self.host, self._filter, self._set_filter))
        elif key == "escape" and self._filter:
            self._filter = ""
        else:
            return False
        self._arrange()
        return True

    def _set_filter(self, text: str) -> None:
        self._filter = text
        self._arrange()


def _ordered(rows: Sequence[Result], name: str, *, descending: bool) -> list[Result]:
    """Rows by a column; those without a value last."""
    keyed = [(order_key(row.get(name)), row) for row in rows]
    known = [(key, row) for key, row in keyed if key is not None]
    known.sort(key=lambda pair: pair[0], reverse=descending)
    return [row for _, row in known] + [row for key, row in keyed if key is None]


def _value(name: str) -> Callable[[Result], str]:
    def text(row: Result) -> str:
        value = row.get(name)
        if value is None:
            return ""
        return number(value) if _is_number(value) else plain(value)

    return text


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _next(names: Sequence[str], current: str) -> str:
    if not names:
        return ""
    return names[(names.index(current) + 1) % len(names)] if current in names else names[0]
