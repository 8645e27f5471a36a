"""Metrics over time in the terminal: one metric of many jobs as lines, and a table of them, the best first.
Points come thinned from the provider; which metric, which scale and which jobs are of this view only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tenuto.jobs.result_table import less_is_better
from tenuto.monitor import shapes
from tenuto.monitor.state_provider import StateProvider
from tenuto.monitor.tui.cells import Line, Span, beside, span
from tenuto.monitor.tui.dialogs import Prompt
from tenuto.monitor.tui.job import JobPage
from tenuto.monitor.tui.results import Point, scale, scatter
from tenuto.monitor.tui.table import Listing, TableColumn, header, placed, pointed, row_line
from tenuto.monitor.tui.text import glyph, key_group_name, key_name, number, tag_words
from tenuto.monitor.tui.view import Host, View, group_or_newest

MOST_POINTS = 400
PAINTS = ("running", "done", "waiting", "error", "scheduled", "alarm")
"""Styles of the best jobs, in front."""
MOST_BEHIND = 10
"""Of the others so many are drawn, faintly, evenly chosen: more would be a cloud."""
WIDE = 140
_PERIOD_S = 1.0


class CurvesAnswers(NamedTuple):
    """The curves of one metric of a group."""

    group: str | None
    name: str
    names: Sequence[str]
    jobs: Sequence[shapes.JobCurves]


def ask_curves(provider: StateProvider, group: str | None, name: str = "", filter: str = "") -> CurvesAnswers:
    """The curves of a metric, by default the first, of the jobs of a group; the best job first."""
    group = group_or_newest(provider, group)
    if group is None:
        return CurvesAnswers(None, "", (), ())
    found = provider.metrics((), group, filter, [name], MOST_POINTS)
    if name not in found["names"] and found["names"]:
        name = found["names"][0]
        found = provider.metrics((), group, filter, [name], MOST_POINTS)
    jobs = [job for job in found["jobs"] if job["curves"] and job["curves"][0]["steps"]]
    jobs.sort(key=lambda job: _rank(job["curves"][0]))
    return CurvesAnswers(group, name, found["names"], jobs)


def draw_curves(known: CurvesAnswers, room: int, height: int, *, is_log: bool = False) -> list[Line]:
    """The curves in so many cells, the best in front."""
    rest = known.jobs[len(PAINTS) :]
    behind = rest[:: -(-len(rest) // MOST_BEHIND)] if rest else ()
    painted = [*((job, "soft") for job in behind), *reversed(list(zip(known.jobs, PAINTS, strict=False)))]
    points: list[Point] = []
    for job, style in painted:
        points += _line(job["curves"][0], style, room * 2, is_log)
    across = scale([point.x for point in points])
    return scatter(points, across, scale([point.y for point in points], is_log=is_log), room, height)


def _line(curve: shapes.Curve, style: str, dots: int, is_log: bool) -> Iterator[Point]:
    """The points of a curve, and some between them, so that a line is seen; a gap stays a gap."""
    values = [value if value is None or value > 0 or not is_log else None for value in curve["values"]]
    between = max(2 * dots // max(len(values), 1), 1)
    for (x, y), (x_then, y_then) in pairwise(zip(curve["steps"], values, strict=True)):
        if y is not None and y_then is not None:
            for part in range(between):
                share = part / between
                yield Point(x + (x_then - x) * share, y + (y_then - y) * share, style)
    if values and values[-1] is not None:
        yield Point(curve["steps"][-1], values[-1], style)


class CurvesView(View):
    """One metric of the jobs of a group."""

    name = "curves"
    hints = "y metric  L log  / filter  Enter open  Esc back"
    period_s = _PERIOD_S

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._known: CurvesAnswers | None = None
        self._metric = ""
        self._filter = ""
        self._is_log = False
        self._listing: Listing[shapes.JobCurves] = Listing(lambda job: job["key"])

    def ask(self, provider: StateProvider) -> CurvesAnswers:
        return ask_curves(provider, self.host.group, self._metric, self._filter)

    def take(self, answer: CurvesAnswers) -> None:
        self._known, self._metric = answer, answer.name
        self._listing.take(answer.jobs, len(answer.jobs))

    def heading(self) -> Line:
        if self._known is None or self._known.group is None:
            return [span("curves", "title")]
        return [
            span(f"curves {key_group_name(self._known.group, self.host.now)}  ", "title"),
            span(f"{self._known.name}{' (log)' if self._is_log else ''}   ", "key"),
            span(f"{len(self._known.jobs)} jobs   "),
            span(f"filter: {self._filter}" if self._filter else "", "key"),
        ]

    def draw(self, room: int, height: int) -> list[Line]:
        if self._known is None:
            return [[span(" …", "soft")]]
        if not self._known.jobs:
            return [
                [span(" no job of this group has logged a metric yet; in execute():", "soft")],
                [span(' log_metrics({"loss": 0.31}, step=epoch)', "key")],
            ]
        if room >= WIDE:
            left = room * 3 // 5
            plot = draw_curves(self._known, left, height, is_log=self._is_log)
            return beside(
                [(plot, left), (self._draw_table(room - left - 1, height), room - left - 1)], height, " "
            )
        tall = height * 3 // 5
        plot = draw_curves(self._known, room, tall, is_log=self._is_log)
        return [*plot, *self._draw_table(room, height - len(plot))]

    def _draw_table(self, room: int, height: int) -> list[Line]:
        less = less_is_better(self._metric)
        columns: list[TableColumn[shapes.JobCurves]] = [
            TableColumn("JOB", 18, lambda job: f"{glyph(job['state'])} {key_name(job['key'])}"),
            TableColumn("TAGS", 10, lambda job: tag_words(job["tags"]), rank=3, grows=True),
            TableColumn("BEST", 10, lambda job: number(_best(job["curves"][0], less)), right=True),
            TableColumn("LAST", 10, lambda job: number(job["curves"][0]["last"]), right=True, rank=1),
            TableColumn("STEP", 7, lambda job: str(job["curves"][0]["steps"][-1]), right=True, rank=2),
        ]
        chosen = placed(columns, room - 3)
        lines = [[span("   "), *header(chosen)]] if height > 1 else []
        for index in self._listing.visible(height - len(lines)):
            row = self._listing.row(index)
            if row is not None:
                paint = PAINTS[index] if index < len(PAINTS) else "soft"
                content = [Span("━ ", paint), *row_line(chosen, row)]
                lines.append(pointed(content, room, is_cursor=index == self._listing.cursor))
        return lines

    def press(self, key: str) -> bool:
        if self._listing.press(key):
            return True
        row = self._listing.chosen
        if key == "enter" and row is not None:
            job_key = row["key"]
            self.host.later(
                lambda provider: provider.job(job_key), lambda job: self.host.open(JobPage(self.host, job))
            )
        elif key == "y" and self._known is not None and self._known.names:
            names = list(self._known.names)
            self._metric = (
                names[(names.index(self._metric) + 1) % len(names)] if self._metric in names else ""
            )
            self.host.renew()
        elif key == "L":
            self._is_log = not self._is_log
        elif key == "/":
            self.host.open(Prompt(self.host, self._filter, self._set_filter))
        elif key == "escape" and self._filter:
            self._set_filter("")
        else:
            return False
        return True

    def _set_filter(self, text: str) -> None:
        self._filter = text
        self.host.renew()


def _best(curve: shapes.Curve, less: bool) -> float | None:
    return curve["min"] if less else curve["max"]


def _rank(curve: shapes.Curve) -> float:
    best = _best(curve, less_is_better(curve["name"]))
    if best is None:
        return math.inf
    return best if less_is_better(curve["name"]) else -best
