"""One job: its facts, and its log below them.
Facts and reasons are asked for when something changed; the log, while it is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tenuto.errors import NotFound
from tenuto.jobs.drawing import spark_line
from tenuto.jobs.text import duration, safe, size_text, truncate
from tenuto.monitor import shapes
from tenuto.monitor.state_provider import StateProvider
from tenuto.monitor.tui.cells import Line, Span, bar, fitted, rule, span, spread
from tenuto.monitor.tui.dialogs import Prompt
from tenuto.monitor.tui.help import diff_page, event_words
from tenuto.monitor.tui.log import LogPane
from tenuto.monitor.tui.text import (
    attempt_words,
    clock,
    energy,
    glyph,
    key_name,
    nearest_words,
    number,
    parameter_words,
    percent,
    plain,
    seconds_between,
    state_words,
    tag_words,
)
from tenuto.monitor.tui.view import Host, View
from tenuto.workspace.points import SYSTEM

LABEL = 10
LOG_PERIOD_S = 0.3
_MOST_LINKED = 4
_MOST_CURVES = 6
_CURVE_POINTS = 200
_CURVE_CELLS = 40


class JobAnswers(NamedTuple):
    """The answer about a job."""

    job: shapes.JobDetail | None = None
    why: shapes.WhyJson | None = None
    part: shapes.LogPart | None = None
    trouble: str = ""
    curves: Sequence[shapes.Curve] | None = None
    """Its metrics over time; None if they were not asked for."""


def ask_job(provider: StateProvider, key: str, *, with_facts: bool, log: LogPane | None) -> JobAnswers:
    """A job, why it is where it is, and the new text of its log."""
    job, why, part, trouble, curves = None, None, None, "", None
    if with_facts:
        job, why = provider.job(key), provider.why(key)
        curves = [
            one
            for logged in provider.metrics([key], points=_CURVE_POINTS)["jobs"]
            for one in logged["curves"]
        ]
    if log is not None and log.key == key:
        try:
            part = log.ask(provider)
        except NotFound as error:
            trouble = str(error)
    return JobAnswers(job, why, part, trouble, curves)


def job_title(job: shapes.Job, detail: shapes.JobDetail | None = None) -> tuple[Line, Line]:
    """Name and state of a job; its detail knows how many attempts it may have."""
    name = key_name(job["key"])
    most = detail["most_attempts"] if detail is not None and detail["key"] == job["key"] else None
    words = f"  {attempt_words(job['attempt'], most)}"
    return [span(name, "title")], [span(state_words(job), job["state"]), span(words)]


def facts(
    job: shapes.JobDetail, why: shapes.WhyJson | None, room: int, curves: Sequence[shapes.Curve] = ()
) -> list[Line]:
    """The facts about a job, one line for each fact that there is."""
    lines: list[Line] = []

    def fact(label: str, *parts: Span | str) -> None:
        content = [part if isinstance(part, Span) else span(part) for part in parts]
        if any(one.text for one in content):
            lines.append(fitted([Span(" "), span(label.ljust(LABEL), "key"), *content], room))

    because = [one for one in (why["because"] if why else []) if one]
    fact("because", "  ".join(because) or job["message"] or "")
    if why is not None and why["nearest"] is not None:
        fact("nearest", nearest_words(why["nearest"]))
    if job["progress"] is not None:
        left = f"   ETA {duration(job['eta_s'])}" if job["eta_s"] is not None else ""
        words = f" {percent(job['progress'])}  {job['progress_desc'] or ''}{left}"
        fact("progress", *bar(job["progress"], 12, "running"), words)
    for curve in curves[:_MOST_CURVES]:
        known = [value for value in curve["values"] if value is not None]
        name = curve["name"].removeprefix(SYSTEM)
        said = [_in_units(curve["name"], curve[which]) for which in ("last", "min", "max")]
        words = f" {said[0]}  min {said[1]}  max {said[2]}"
        cells = max(min(_CURVE_CELLS, room - LABEL - 40), 8)
        fact(truncate(safe(name), LABEL - 1), span(spark_line(known, cells), "running"), words)
    fact("alarm", span(job["alarm"] or "", "alarm"))
    fact("params", parameter_words(job["parameters"]))
    fact("tags" if job["tags"] else "where", span(tag_words(job["tags"]), "tag"), _place(job))
    fact("needs", *_linked(job["dependencies"]))
    fact("feeds", *_linked(job["dependents"]))
    fact("attempts", *_attempts(job))
    if job["result"] is not None:
        fact("result", plain(job["result"]))
    fact("energy", _energy(job))
    fact("next", "  ".join(why["next"]) if why else "")
    fact("directory", job["directory"] or "")
    return lines


def _place(job: shapes.JobDetail) -> str:
    last = job["attempts"][-1] if job["attempts"] else None
    host = job["where"] or (last["host"] if last else None)
    parts = [f"host {host}" if host else "", f"pid {last['pid']}" if last and last["pid"] else ""]
    parts += [
        str(last["launcher"]) if last and last["launcher"] else "",
        job["owner"] and f"of {job['owner']}",
    ]
    shown = " · ".join(part for part in parts if part)
    return f"   {shown}" if shown and job["tags"] else shown


def _linked(jobs: Sequence[shapes.Job]) -> list[Span]:
    shown: list[Span] = []
    for job in jobs[:_MOST_LINKED]:
        shown.append(span(f"{glyph(job['state'])} ", job["state"]))
        shown.append(span(f"{key_name(job['key'])}   "))
    if len(jobs) > _MOST_LINKED:
        shown.append(span(f"and {len(jobs) - _MOST_LINKED:,} more", "soft"))
    return shown


def _attempts(job: shapes.JobDetail) -> list[Span]:
    shown: list[Span] = []
    for one in job["attempts"][-3:]:
        shown.append(span(f"{one['attempt']} {glyph(one['state'])} ", one["state"]))
        end = clock(one["ended"]) if one["ended"] else ""
        took = f" ({duration(seconds_between(one['started'], one['ended']))})" if one["ended"] else ""
        shown.append(span(f"{clock(one['started'])}–{end}{took}"))
        shown.append(span(f" {one['reason'].upper()}" if one["reason"] else "", "error"))
        shown.append(span(f" exit {one['exit_code']}" if one["exit_code"] else ""))
        shown.append(span(f" signal {one['signal']}" if one["signal"] else ""))
        shown.append(Span("   "))
    return shown


def _energy(job: shapes.JobDetail) -> str:
    carbon: Any = job["carbon"] or {}
    used = carbon.get("energy_kwh", job["energy_kwh"])
    if used is None:
        return ""
    grams = f" · {carbon['co2_kg'] * 1000:.2g} g CO2" if carbon.get("co2_kg") is not None else ""
    return f"{energy(used)}{grams}" + (f" · {carbon['region']}" if carbon.get("region") else "")


def _in_units(name: str, value: float | None) -> str:
    """A value of a metric, as people read it: what runners measured has units."""
    if value is None or not name.startswith(SYSTEM) or name == f"{SYSTEM}cpu":
        return number(value)
    return size_text(int(value)) if name.endswith("memory") and "host" not in name else percent(value)


def ask_search(host: Host, log: LogPane) -> None:
    """Ask for a text, and go to the last line of a log that has it."""

    def seek(text: str) -> None:
        if not log.search(text):
            host.say(f"no line that was read has {text}: g reads the log from its start")

    host.open(Prompt(host, "", seek, "search"))


class JobPage(View):
    """One job with its log."""

    name = "job"
    hints = "l log e err / search v events w why x diff y copy K kill R retry D clean"

    def __init__(self, host: Host, job: shapes.Job, *, zoomed: bool = False) -> None:
        super().__init__(host)
        self.job = job
        self.detail: shapes.JobDetail | None = None
        self.why: shapes.WhyJson | None = None
        self.curves: Sequence[shapes.Curve] = ()
        self.log = LogPane()
        self.log.begin(job)
        self.is_zoomed = zoomed
        self.shows_events = False
        self._is_stale = True

    # The provider

    def ask(self, provider: StateProvider) -> JobAnswers:
        stale, self._is_stale = self._is_stale, False
        return ask_job(provider, self.job["key"], with_facts=stale, log=self.log)

    def take(self, answer: JobAnswers) -> None:
        if answer.job is not None:
            self.detail, self.why, self.curves = answer.job, answer.why, answer.curves or ()
            self.job = answer.job
        shown = self.log.stream
        self.log.trouble = answer.trouble
        self.log.take(answer.part)
        if self.log.stream != shown:
            self.host.renew()

    def told(self) -> None:
        self._is_stale = True

    @property
    def period_s(self) -> float | None:  # type: ignore[override]
        """While the log may grow, it is read again."""
        if self.log.is_live and self.job["state"] == "running":
            return LOG_PERIOD_S
        return 2.0 if self.log.is_live else None

    # Looking

    def heading(self) -> Line:
        return [span("job ", "title"), span(self.job["group"].partition(":")[2])]

    def draw(self, room: int, height: int) -> list[Line]:
        left, right = job_title(self.job, self.detail)
        lines = [spread([Span(" "), *left], [*right, Span(" ")], room)]
        if not self.is_zoomed:
            known = facts(self.detail, self.why, room, self.curves) if self.detail else [[span(" …", "soft")]]
            lines += known[: max(height - 4, 0)]
        lines.append(self._tabs(room))
        rest = max(height - len(lines), 0)
        return lines + (self._events(rest) if self.shows_events else self.log.draw(room, rest))

    def _tabs(self, room: int) -> Line:
        chosen = "events" if self.shows_events else self.log.stream
        content: Line = []
        for name in ("out", "err", "events"):
            content += [
                Span("─ ", "soft"),
                span(name, "chosen" if name == chosen else ""),
                Span(" ─", "soft"),
            ]
        content += [Span(" "), span(self.log.status(), "soft"), Span(" ")]
        return [*content, *rule("", room - sum(len(one.text) for one in content))]

    def _events(self, height: int) -> list[Line]:
        events = self.detail["events"] if self.detail else []
        shown = [event_words(event) for event in events][-max(height, 1) :]
        if not shown:
            return [[span(" no event of this job is kept", "soft")]]
        return [[Span(" "), span(f"{when} ", "soft"), span(text)] for when, text in shown]

    # Acting

    def current(self) -> shapes.Job | None:
        return self.job

    def jobs(self) -> Sequence[shapes.Job]:
        return [self.job]

    def press(self, key: str) -> bool:
        if key in ("l", "z"):
            self.is_zoomed = not self.is_zoomed if not self.shows_events or key == "z" else True
            self.shows_events = False
        elif key == "v":
            self.shows_events = not self.shows_events
        elif key == "escape":
            self._leave()
        elif key == "/":
            ask_search(self.host, self.log)
            self.shows_events = False
        elif key == "x":
            self._compare()
        elif key == "y":
            commands = self.detail["commands"] if self.detail else []
            self.host.copy(commands[0] if commands else self.job["id"])
        elif self.log.press(key):
            self.shows_events = False
            self.host.renew()
        else:
            return False
        return True

    def _leave(self) -> None:
        if self.shows_events:
            self.shows_events = False
        else:
            self.host.back()

    def _compare(self) -> None:
        others = [job for job in self.host.marked.values() if job["key"] != self.job["key"]]
        if others:
            self.host.open(diff_page(self.host, self.job, others[-1]))
        else:
            self.host.say("mark another job with space in the list, then x shows in what they differ")
