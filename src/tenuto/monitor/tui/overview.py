"""The first view: groups, running jobs, failures by cause, alarms.
Drawn from one answer of the provider; a wide window shows the sparkline and the tokens beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from tenuto.errors import NotFound
from tenuto.jobs.causes import same_cause
from tenuto.jobs.text import UNKNOWN, duration
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.monitor import shapes
from tenuto.monitor.state_provider import StateProvider
from tenuto.monitor.tui.cells import Line, Span, bar, beside, fitted, rule, shares, span, spread
from tenuto.monitor.tui.curves import CurvesAnswers, ask_curves, draw_curves
from tenuto.monitor.tui.job import JobPage
from tenuto.monitor.tui.sparkline import sparkline, tokens
from tenuto.monitor.tui.table import Listing, TableColumn, header, placed, pointed, row_line
from tenuto.monitor.tui.text import (
    energy,
    group_glyph,
    group_state,
    key_group_name,
    key_id,
    key_name,
    number,
    percent,
    short_task,
    tag_words,
    waits,
)
from tenuto.monitor.tui.view import Host, View

WIDE = 140
LEFT = 90
_MOST_CURVED = 2_000
"""Of a larger group the overview draws no curves; the view of curves does."""
_MOST_RETRIED = 10_000
_WAITING = "state=waiting or state=ready or state=scheduled"
_MOST_WAITING = 60
_FIRST = 6
"""How many running jobs come before the jobs that wait for a token."""


class OverviewAnswers(NamedTuple):
    """The answer."""

    overview: shapes.OverviewJson
    cleanup: shapes.Cleanup | None
    history: shapes.HistoryJson | None
    curves: CurvesAnswers | None
    waiting: shapes.Jobs | None


def _energy(group: shapes.Group) -> str:
    carbon = group["carbon"] or {}
    return energy(carbon.get("energy_kwh"))


def group_columns(now: str) -> list[TableColumn[shapes.Group]]:
    """The columns of the list of groups."""

    def count(state: str) -> Any:
        return lambda group: number(group["counts"].get(state, 0)) if group["counts"].get(state) else UNKNOWN

    def done(group: shapes.Group, room: int) -> Line:
        return bar(group["counts"].get("done", 0) / max(group["total"], 1), room, group_state(group))

    def state(group: shapes.Group) -> str:
        return "stopped" if group["take_up"] else group["state"].lower().partition(" (")[0]

    def eta(group: shapes.Group) -> str:
        return duration(group["eta_s"]) if group["eta_s"] is not None else UNKNOWN

    return [
        TableColumn("", 1, group_glyph, style=group_state),
        TableColumn("GROUP", 14, lambda group: key_group_name(group["group"], now), grows=True),
        TableColumn("STATE", 8, state, style=group_state, rank=20),
        TableColumn("DONE", 6, count("done"), right=True),
        TableColumn("RUN", 4, count("running"), right=True, rank=10),
        TableColumn("WAIT", 5, lambda group: number(waits(group)) if waits(group) else UNKNOWN, True, 11),
        TableColumn("FAIL", 4, count("error"), right=True, rank=9, style=_failed),
        TableColumn("", 12, lambda group: "", rank=50, cut=done),
        TableColumn("ETA", 6, eta, right=True, rank=60),
        TableColumn("ENERGY", 7, _energy, right=True, rank=70),
    ]


def _failed(group: shapes.Group) -> str:
    return "error" if group["counts"].get("error") else ""


class _Waiting(NamedTuple):
    """A job that waits for a token."""

    key: str
    words: str


Item = Any
"""A group, a job or a waiting token, a failure, an alarm; each part of the view has its own."""


def is_of(failure: shapes.Failure, job: shapes.Job) -> bool:
    """True if a job failed of the cause of a failure."""
    reason = JobFailureStatus[failure["reason"].upper()]
    if (job["reason"] or JobFailureStatus.FAILED.name.lower()) != failure["reason"]:
        return False
    message = job["message"] or reason.meaning
    return same_cause(message, failure["error"], failure["place"])


def waiting_jobs(found: Sequence[shapes.Token]) -> list[_Waiting]:
    """The jobs that wait for tokens, the first of each token."""
    return [
        _Waiting(
            one["key"],
            f"waits for {one['amount']} of token {token['name']} "
            f"({token['held']} of {token['capacity'] if token['capacity'] is not None else '?'} units busy)",
        )
        for token in found
        for one in token["waiting"][:3]
    ]


def mixed(running: Sequence[shapes.Job], waiting: Sequence[_Waiting]) -> list[Item]:
    """Running jobs, of each group in turn, so that none hides another; waiting ones after the first."""
    of_group: dict[str, list[shapes.Job]] = {}
    for job in running:
        of_group.setdefault(job["group"], []).append(job)
    turns = [one for turn in zip_longest(*of_group.values()) for one in turn if one is not None]
    return [*turns[:_FIRST], *waiting, *turns[_FIRST:]]


def now_line(one: Item, room: int) -> Line:
    """A job that runs, or a job that waits for a token."""
    if isinstance(one, _Waiting):
        task = key_name(one.key).rpartition(" ")[0]
        name = [span(f"{key_id(one.key):<8} "), *fitted([span(task)], 12)]
        return [Span("… ", "waiting"), *name, span(one.words)]
    return running_line(one, room)


def running_line(job: shapes.Job, room: int) -> Line:
    """A job that runs: how far it is, how long it took, and its tags."""
    left = f" ETA {duration(job['eta_s'])}" if job["eta_s"] is not None else ""
    took = duration(job["duration_s"]) if job["duration_s"] is not None else ""
    content = [Span("▶ ", "running"), span(f"{job['name']:<8} ")]
    content += fitted([span(short_task(job["task"]))], 12)
    content += [span(f"{percent(job['progress']):>4} "), span(f"{took:>6}"), span(f"{left:<12} ")]
    content += fitted([span(tag_words(job["tags"]), "tag")], max(room // 4, 16))
    return [*content, Span(" "), span(job["progress_desc"] or "", "soft")]


def waiting_line(job: shapes.Job) -> Line:
    """A job that waits, and for what."""
    content = [
        Span("… ", "waiting"),
        span(f"{job['name']:<8} "),
        *fitted([span(short_task(job["task"]))], 12),
    ]
    content += fitted([span(tag_words(job["tags"]), "tag")], 18)
    return [Span(" "), *content, span(f" {job['message'] or job['state']}", "soft")]


def failure_line(one: shapes.Failure, room: int) -> Line:
    """A cause of failures, and the key that retries its jobs."""
    place = one["place"] or f"({one['reason'].upper()})"
    action = [span(f"  {place:<16}", "soft"), span("  R retry all ", "key")]
    return spread([Span("✗ ", "error"), span(f"{one['total']:>3,}  "), span(one["error"])], action, room)


UNOWNED = "unowned"
"""In place of a key: stands for all jobs that no live run owns."""


def alarm_line(one: tuple[str, str], room: int) -> Line:
    """What asks for attention; unowned have a key that kills them."""
    key, text = one
    action = [span("  K kill them ", "key")] if key == UNOWNED else []
    name = f"{key_name(key)}  " if key not in ("", UNOWNED) else ""
    return spread([Span("! ", "alarm"), span(name), span(text)], action, room)


DRAWN = {"now": now_line, "failures": failure_line, "attention": alarm_line}


class OverviewTab(View):
    """Groups, now, failures, attention; Tab goes from one to the next."""

    name = "overview"
    hints = "1 overview 2 jobs 3 timeline 4 graph 5 results 6 resources 7 archive 8 curves ?"
    period_s = 1.0

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._known: shapes.OverviewJson | None = None
        self._history: shapes.HistoryJson | None = None
        self._curves: CurvesAnswers | None = None
        self._waiting: shapes.Jobs | None = None
        self._cleanup: shapes.Cleanup | None = None
        self._rounds = 0
        self._is_wide = False
        self._parts: dict[str, Listing[Item]] = {
            "groups": Listing(lambda group: str(group["group"])),
            "now": Listing(
                lambda one: one.key if isinstance(one, _Waiting) else f"{one['group']} {one['key']}"
            ),
            "failures": Listing(lambda one: f"{one['reason']} {one['error']} {one['place']}"),
            "attention": Listing(str),
        }
        self.focus = "groups"

    # The provider

    def ask(self, provider: StateProvider) -> OverviewAnswers:
        self._rounds += 1
        cleanup, history, curves, waiting = None, None, None, None
        if self._rounds % 10 == 2:  # the first answer does not wait for it
            try:
                cleanup = provider.cleanup()
            except NotFound:
                cleanup = None
        overview = provider.overview()
        if self._is_wide and overview["groups"]:
            chosen = self._parts["groups"].chosen or overview["groups"][0]
            history = provider.history(chosen["group"], 120)
            curves = self._ask_curves(provider, chosen)
            waiting = provider.jobs(None, _WAITING, "", 0, _MOST_WAITING)
        return OverviewAnswers(overview, cleanup, history, curves, waiting)

    def _ask_curves(self, provider: StateProvider, group: shapes.Group) -> CurvesAnswers | None:
        """The curves of the group under the cursor, not each time: every job is asked for its points."""
        if group["total"] > _MOST_CURVED:
            return CurvesAnswers(group["group"], "", (), ())
        is_known = self._curves is not None and self._curves.group == group["group"]
        return None if is_known and self._rounds % 10 != 3 else ask_curves(provider, group["group"])

    def take(self, answer: OverviewAnswers) -> None:
        self._known, self._history = answer.overview, answer.history or self._history
        self._curves = answer.curves or self._curves
        self._waiting = answer.waiting or self._waiting
        self._cleanup = answer.cleanup or self._cleanup
        rows: dict[str, Sequence[Item]] = {
            "groups": answer.overview["groups"],
            "now": mixed(answer.overview["running"], waiting_jobs(answer.overview["tokens"])),
            "failures": answer.overview["failures"],
            "attention": self._attention(answer.overview),
        }
        for name, listing in self._parts.items():
            listing.take(rows[name], len(rows[name]))
        if not self._parts[self.focus].count:
            self.focus = "groups"

    def _attention(self, overview: shapes.OverviewJson) -> list[tuple[str, str]]:
        unowned = self._cleanup["unowned"] if self._cleanup else []
        found = []
        if unowned:
            words = "1 running job belongs" if len(unowned) == 1 else f"{len(unowned):,} running jobs belong"
            found.append((UNOWNED, f"{words} to no live run"))
        return found + [(one["key"], one["text"]) for one in overview["alarms"]]

    # Looking

    def heading(self) -> Line:
        return []

    def draw(self, room: int, height: int) -> list[Line]:
        self._is_wide = room >= WIDE
        if self._known is None:
            return [[span(" …", "soft")]]
        if not self._is_wide:
            return self._draw_left(room, height)
        right = room - LEFT - 1
        return beside(
            [(self._draw_left(LEFT, height), LEFT), (self._draw_right(right, height), right)], height
        )

    def _draw_left(self, room: int, height: int) -> list[Line]:
        now = self._known["now"] if self._known else ""
        chosen = placed(group_columns(now), room - 1)
        listings = self._parts
        shown = [name for name in listings if name == "groups" or listings[name].count]
        given = shares([listings[name].count + 1 for name in shown], height)
        lines: list[Line] = []
        for name, rows in zip(shown, given, strict=True):
            if rows <= 0:
                continue
            if name == "groups":
                head = [Span(" "), *header(chosen)]
            else:
                head = rule(_TITLES[name], room)
            lines += [head] if rows > 1 or name != "groups" else []
            lines += self._draw_part(name, chosen, room, rows - 1 if rows > 1 else int(name == "groups"))
        if not listings["groups"].count:
            lines.append([span(" no run, service or search is known here yet", "soft")])
        return lines

    def _draw_part(self, name: str, chosen: Any, room: int, height: int) -> list[Line]:
        listing = self._parts[name]
        lines = []
        for index in listing.visible(height):
            row = listing.row(index)
            if name == "groups":
                content = row_line(chosen, row)
            else:
                content = DRAWN[name](row, room - 1)
            is_cursor = index == listing.cursor and name == self.focus
            lines.append(pointed(content, room, is_cursor=is_cursor))
        return lines

    def _draw_right(self, room: int, height: int) -> list[Line]:
        assert self._known is not None
        chosen = self._parts["groups"].chosen
        name = key_group_name(chosen["group"], self._known["now"]) if chosen else ""
        tall = min(10, height // 4)
        lines = [rule(f"over time {name}", room), *sparkline(self._history, room, tall)]
        if self._curves is not None and self._curves.jobs:
            lines.append(rule(f"{self._curves.name}, {len(self._curves.jobs)} jobs, the best in front", room))
            held = 2 + len(self._known["tokens"])
            lines += draw_curves(self._curves, room, max(min(height - len(lines) - held, 20), 6))
        lines += [rule("tokens", room), *tokens(self._known["tokens"], room, self._known["now"])]
        if self._waiting is not None and self._waiting["jobs"]:
            lines.append(rule(f"{self._waiting['matched']:,} that wait", room))
            lines += [waiting_line(job) for job in self._waiting["jobs"]]
        return lines

    # Acting

    def current(self) -> shapes.Job | None:
        row = self._parts[self.focus].chosen
        if self.focus == "now" and isinstance(row, dict):
            return row  # type: ignore[return-value]
        return None

    def jobs(self) -> Sequence[shapes.Job]:
        job = self.current()
        return [job] if job is not None else []

    def press(self, key: str) -> bool:
        listing = self._parts[self.focus]
        if listing.press(key):
            self.host.renew()
            return True
        row = listing.chosen
        if key in ("tab", "shift+tab"):
            self._turn(1 if key == "tab" else -1)
        elif key == "enter" and row is not None:
            self._open(row)
        elif key == "R" and self.focus == "failures" and row is not None:
            self._retry(row)
        elif key == "K" and self.focus == "attention" and row is not None and row[0] == UNOWNED:
            self.host.act("kill", self._cleanup["unowned"] if self._cleanup else [])
        else:
            return False
        return True

    def _turn(self, step: int) -> None:
        names = [name for name in self._parts if name == "groups" or self._parts[name].count]
        self.focus = names[(names.index(self.focus) + step) % len(names)]

    def _open(self, row: Item) -> None:
        if self.focus == "groups":
            self.host.group = row["group"]
            self.host.go("jobs")
        elif self.focus == "failures":
            groups = {job["group"] for job in row["jobs"]}
            self.host.group = groups.pop() if len(groups) == 1 else None
            self.host.go(f"jobs state=error and reason={row['reason']}")
        elif isinstance(row, dict):
            self.host.open(JobPage(self.host, row))  # type: ignore[arg-type]
        elif row[0] not in ("", UNOWNED):
            key = row[0]
            self.host.later(
                lambda provider: provider.job(key), lambda job: self.host.open(JobPage(self.host, job))
            )
        elif self._cleanup:
            self.host.group = None
            self.host.go("resources")

    def _retry(self, failure: shapes.Failure) -> None:
        if failure["total"] <= len(failure["jobs"]):
            self.host.act("retry", failure["jobs"])
            return

        def question(provider: StateProvider) -> list[shapes.Job]:
            found: list[shapes.Job] = []
            offset, wanted = 0, "state=error"
            while len(found) < _MOST_RETRIED:
                part = provider.jobs(None, wanted, "", offset, 1_000)["jobs"]
                found += [job for job in part if is_of(failure, job)]
                offset += len(part)
                if len(part) < 1_000:
                    break
            return found[:_MOST_RETRIED]

        self.host.later(question, lambda jobs: self.host.act("retry", jobs))


_TITLES = {"now": "now", "failures": "failures, by cause", "attention": "attention"}
