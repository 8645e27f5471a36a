"""The split view: from 140 columns on, the list of jobs, one of them and its log stand side by side.
In a narrower window it is the list alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tenuto.errors import NotFound
from tenuto.jobs.text import duration
from tenuto.monitor import shapes
from tenuto.monitor.state_provider import StateProvider
from tenuto.monitor.tui.cells import Line, Span, beside, cells, fitted, framed, rule, span
from tenuto.monitor.tui.job import LOG_PERIOD_S, JobAnswers, ask_job, ask_search, facts, job_title
from tenuto.monitor.tui.jobs import JobsTab
from tenuto.monitor.tui.log import LogPane
from tenuto.monitor.tui.sparkline import sparkline, tokens
from tenuto.monitor.tui.table import Listing, pointed
from tenuto.monitor.tui.text import (
    count_spans,
    energy,
    group_glyph,
    group_state,
    key_group_name,
    number,
    percent,
    short_task,
)
from tenuto.monitor.tui.timeline_rows import bars_of, group_rows, in_sight
from tenuto.monitor.tui.view import Host

WIDE = 140
LEFT = 42
RATE_PERIOD_S = 5.0
"""How often the number of jobs that end in a second is asked for, while it is not 0."""
PANES = ("jobs", "log", "groups")


class Around(NamedTuple):
    """The lines around the list."""

    overview: shapes.OverviewJson
    history: shapes.HistoryJson | None
    timeline: shapes.Timeline | None


class _Answer(NamedTuple):
    """The answer."""

    jobs: shapes.Jobs
    around: Around | None = None
    job: JobAnswers | None = None


class SplitView(JobsTab):
    """The jobs, with all that is known around them where there is room."""

    def __init__(self, host: Host, filter: str = "") -> None:
        super().__init__(host, filter)
        self.is_wide = False
        self.focus = "jobs"
        self.is_zoomed = False
        self._around: Around | None = None
        self._groups: Listing[shapes.Group] = Listing(lambda group: group["group"])
        self._log = LogPane()
        self._detail: shapes.JobDetail | None = None
        self._why: shapes.WhyJson | None = None
        self._curves: Sequence[shapes.Curve] = ()
        self._is_stale = True

    # The provider

    def ask(self, provider: StateProvider) -> _Answer:  # type: ignore[override]
        jobs = super().ask(provider)
        if not self.is_wide:
            return _Answer(jobs)
        stale, self._is_stale = self._is_stale, False
        around = self._ask_around(provider) if stale or self._around is None else None
        key = self._log.key
        job = None
        if key is not None:
            is_other = self._detail is None or self._detail["key"] != key
            try:
                job = ask_job(provider, key, with_facts=stale or is_other, log=self._log)
            except NotFound:
                job = None
        return _Answer(jobs, around, job)

    def _ask_around(self, provider: StateProvider) -> Around:
        overview = provider.overview()
        group = self.host.group or (overview["groups"][0]["group"] if overview["groups"] else None)
        history = provider.history(group, 80) if group else None
        groups = [self.host.group] if self.host.group else []
        return Around(overview, history, provider.timeline(groups, width=200))

    def take(self, answer: _Answer) -> None:  # type: ignore[override]
        super().take(answer.jobs)
        if answer.around is not None:
            self._around = answer.around
            self._groups.take(answer.around.overview["groups"], len(answer.around.overview["groups"]))
        if answer.job is not None:
            if answer.job.curves is not None:
                self._curves = answer.job.curves
            self._detail = answer.job.job or self._detail
            self._why = answer.job.why or self._why
            self._log.trouble = answer.job.trouble
            shown = self._log.stream
            self._log.take(answer.job.part)
            if self._log.stream != shown:
                self.host.renew()
        self._look_at_chosen()

    def _look_at_chosen(self) -> None:
        """The log and the facts belong to the row under the cursor."""
        chosen = self.listing.chosen
        key = chosen["key"] if chosen is not None else None
        if key != self._log.key:
            self._log.begin(chosen)
            self._detail = self._why = None
            self.host.renew()

    def told(self) -> None:
        self._is_stale = True

    @property
    def period_s(self) -> float | None:  # type: ignore[override]
        """While the log on the screen may grow, it is read again."""
        chosen = self.listing.chosen
        if self.is_wide and chosen is not None and chosen["state"] == "running":
            return LOG_PERIOD_S if self._log.is_live else 1.0
        if self.is_wide and self._around is not None and self._around.overview["jobs_per_s"]:
            return RATE_PERIOD_S
        return super().period_s

    # Looking

    @property
    def hints(self) -> str:  # type: ignore[override]
        """Keys of the panes, where there are panes."""
        if not self.is_wide:
            return JobsTab.hints
        views = "1 overview 2 jobs 3 timeline 4 graph 5 results 6 resources 7 archive"
        return f"{views}   / filter  Tab pane  z zoom  K kill R retry D clean  ? help  q quit"

    def draw(self, room: int, height: int) -> list[Line]:
        self.is_wide = room >= WIDE
        if not self.is_wide or self._around is None:
            return super().draw(room, height)
        if self.is_zoomed:
            return framed(self._draw_zoomed(room, height), room, height)
        right = room - LEFT - 1
        timeline_height = min(max(height // 5, 3), 10)
        upper = height - timeline_height
        list_rows = max(upper // 2, 4)
        job_rows = upper - list_rows
        lines = [
            self._title("jobs", right),
            *self.draw_list(right, list_rows - 1, has_focus=self.focus == "jobs"),
        ]
        lines = framed(lines, right, list_rows)
        lines += self._draw_job(right, job_rows)
        lines += [rule("timeline", right), *self._draw_timeline(right, timeline_height - 1)]
        return beside([(self._draw_left(LEFT, height), LEFT), (lines, right)], height)

    def _title(self, pane: str, room: int, words: str = "") -> Line:
        has_focus = self.focus == pane
        return rule([span(f"{pane}{words}", "title chosen" if has_focus else "title")], room)

    def _draw_zoomed(self, room: int, height: int) -> list[Line]:
        if self.focus == "log":
            title = self._title("log", room, f": {self._log.stream}, {self._log.status()}")
            return [title, *self._log.draw(room, height - 1)]
        if self.focus == "groups":
            return self._draw_left(room, height)
        return self.draw_list(room, height, has_focus=True)

    def _draw_left(self, room: int, height: int) -> list[Line]:
        assert self._around is not None
        overview = self._around.overview
        token_rows = min(len(overview["tokens"]) + 1, 5)
        failures = overview["failures"][: max(height // 6, 1)]
        left = height - token_rows - len(failures) - 3
        spark_rows = min(max(left // 3, 4), 12)
        group_lines = max(min(self._groups.count, left - spark_rows - 1), 1)
        lines = [self._title("groups", room)]
        lines += [self._draw_group(index, room) for index in self._groups.visible(group_lines)]
        now_rows = left - spark_rows - 1 - group_lines
        if now_rows > 1:
            running = [running_line(job, room) for job in overview["running"][: now_rows - 1]]
            lines += [rule("now", room), *framed(running, room, now_rows - 1)]
        lines += [
            rule("over time", room),
            *framed(sparkline(self._around.history, room, spark_rows), room, spark_rows),
        ]
        lines.append(rule("failures", room))
        for one in failures:
            content = [Span(" ✗ ", "error"), span(f"{one['total']:,} "), span(one["error"])]
            place = f" {one['place']}"
            lines.append([*fitted(content, room - len(place)), span(place, "soft")])
        lines += [rule("tokens", room), *tokens(overview["tokens"], room, overview["now"])]
        return lines

    def _draw_group(self, index: int, room: int) -> Line:
        group = self._groups.row(index)
        if group is None:
            return []
        content = [span(f"{group_glyph(group)} ", group_state(group))]
        counts: Line = []
        for words, state in count_spans(group["counts"]):
            counts += [Span(" "), span(words, state)]
        name = key_group_name(group["group"], self.host.now)
        content += [*fitted([span(name)], max(room - cells(counts) - 4, 8)), *counts]
        is_cursor = index == self._groups.cursor and self.focus == "groups"
        mark = "•" if group["group"] == self.host.group else " "
        return pointed(content, room, is_cursor=is_cursor, mark=mark)

    def _draw_job(self, room: int, height: int) -> list[Line]:
        left = room * 11 // 20
        right = room - left - 1
        chosen = self.listing.chosen
        if chosen is None:
            return framed([rule("job", room)], room, height)
        is_same = self._detail is not None and self._detail["key"] == chosen["key"]
        name, state = job_title(chosen, self._detail if is_same else None)
        title = rule([*name, Span("  "), *state], left)
        known = (
            facts(self._detail, self._why, left, self._curves)
            if is_same and self._detail
            else [[span(" …", "soft")]]
        )
        log_title = self._title("log", right, f": {self._log.stream}, {self._log.status()}")
        log = [log_title, *self._log.draw(right, height - 1)]
        return beside([([title, *known], left), (log, right)], height)

    def _draw_timeline(self, room: int, height: int) -> list[Line]:
        timeline = self._around.timeline if self._around else None
        if timeline is None:
            return framed([], room, height)
        chosen = self.listing.chosen
        lit = frozenset([chosen["key"]]) if chosen is not None else frozenset()
        bar = next((one for one in bars_of(timeline) if one.key in lit), None)
        rows = group_rows(timeline, room, bar, frozenset(), self.host.now)
        return framed(in_sight(rows, room, height, lit), room, height)

    def heading(self) -> Line:
        content = super().heading()
        if self.is_wide and self._around is not None:
            used = [(one["carbon"] or {}).get("energy_kwh") for one in self._around.overview["groups"]]
            total = sum(one for one in used if one is not None)
            running = sum(one["counts"].get("running", 0) for one in self._around.overview["groups"])
            content.append(span(f"   {number(running)} running", "soft"))
            rate = self._around.overview["jobs_per_s"]
            content.append(span(f"   {rate:.2g} jobs/s" if rate else "", "soft"))
            content.append(span(f"   {energy(total)}" if total else "", "soft"))
        return content

    # Acting

    def press(self, key: str) -> bool:
        if not self.is_wide:
            return super().press(key)
        if key in ("tab", "shift+tab"):
            step = 1 if key == "tab" else -1
            self.focus = PANES[(PANES.index(self.focus) + step) % len(PANES)]
        elif key == "z":
            self.is_zoomed = not self.is_zoomed
        elif key == "escape" and self.is_zoomed:
            self.is_zoomed = False
        elif self._press_pane(key):
            self.host.renew()
        else:
            done = super().press(key)
            self._look_at_chosen()
            return done
        return True

    def _press_pane(self, key: str) -> bool:
        if self.focus == "log" and key == "/":
            ask_search(self.host, self._log)
            return True
        if self.focus == "log" or key in ("e", "F"):
            return self._log.press(key)
        if self.focus != "groups":
            return False
        chosen = self._groups.chosen
        if key == "enter" and chosen is not None:
            self.host.group = chosen["group"]
            self.set_filter("")
            self._is_stale = True
            self.focus = "jobs"
            return True
        return self._groups.press(key)


def running_line(job: shapes.Job, room: int) -> Line:
    """A job that runs, in few cells."""
    left = duration(job["eta_s"]) if job["eta_s"] is not None else duration(job["duration_s"])
    end = f" {percent(job['progress']):>4} {left:>7} "
    name = [Span(" ▶ ", "running"), span(f"{job['name']:<8} {short_task(job['task'])}")]
    return [*fitted(name, room - len(end)), span(end)]
