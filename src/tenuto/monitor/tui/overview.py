"""The first view: groups, what runs now, failures by cause, what asks for attention.
Drawn from one answer of the provider; a wide window shows the pulse and the tokens beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tenuto.errors import NotFound
from tenuto.jobs.text import UNKNOWN, duration
from tenuto.monitor import shapes
from tenuto.monitor.state_provider import StateProvider
from tenuto.monitor.tui.cells import Line, Span, bar, beside, rule, shares, span
from tenuto.monitor.tui.job import JobPage
from tenuto.monitor.tui.overview_lines import DRAWN, Item, Waiting, is_of, mixed, running_line, waiting_jobs
from tenuto.monitor.tui.pulse import pulse, tokens
from tenuto.monitor.tui.table import Column, Listing, header, placed, pointed, row_line
from tenuto.monitor.tui.view import Host, View
from tenuto.monitor.tui.words import (
    energy,
    group_glyph,
    group_name,
    group_state,
    number,
    waits,
)

WIDE = 140
LEFT = 90
_MOST_RETRIED = 10_000


class OverviewAnswers(NamedTuple):
    """What was answered."""

    overview: shapes.Overview
    care: shapes.Care | None
    history: shapes.History | None


def _energy(group: shapes.Group) -> str:
    carbon = group["carbon"] or {}
    return energy(carbon.get("energy_kwh"))


def group_columns(now: str) -> list[Column[shapes.Group]]:
    """The columns of the list of groups."""

    def count(state: str) -> Any:
        return lambda group: number(group["counts"].get(state, 0)) if group["counts"].get(state) else UNKNOWN

    def done(group: shapes.Group, room: int) -> Line:
        return bar(group["counts"].get("done", 0) / max(group["total"], 1), room, group_state(group))

    def eta(group: shapes.Group) -> str:
        return duration(group["eta_s"]) if group["eta_s"] is not None else UNKNOWN

    return [
        Column("", 1, group_glyph, style=group_state),
        Column("GROUP", 14, lambda group: group_name(group, now), grows=True),
        Column("STATE", 8, lambda group: group["state"], style=group_state, rank=20),
        Column("DONE", 6, count("done"), right=True),
        Column("RUN", 4, count("running"), right=True, rank=10),
        Column("WAIT", 5, lambda group: number(waits(group)) if waits(group) else UNKNOWN, True, 11),
        Column("FAIL", 4, count("error"), right=True, rank=9, style=_failed),
        Column("", 12, lambda group: "", rank=50, cut=done),
        Column("ETA", 6, eta, right=True, rank=60),
        Column("ENERGY", 7, _energy, right=True, rank=70),
    ]


def _failed(group: shapes.Group) -> str:
    return "error" if group["counts"].get("error") else ""


class Overview(View):
    """Groups, now, failures, attention; Tab goes from one to the next."""

    name = "overview"
    hints = "1 overview 2 jobs 3 score 4 graph 5 results 6 resources 7 archive ? help q quit"
    period_s = 1.0

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._known: shapes.Overview | None = None
        self._history: shapes.History | None = None
        self._care: shapes.Care | None = None
        self._rounds = 0
        self._is_wide = False
        self._parts: dict[str, Listing[Item]] = {
            "groups": Listing(lambda group: str(group["group"])),
            "now": Listing(
                lambda one: one.key if isinstance(one, Waiting) else f"{one['group']} {one['key']}"
            ),
            "failures": Listing(lambda one: f"{one['reason']} {one['error']} {one['place']}"),
            "attention": Listing(str),
        }
        self.focus = "groups"

    # The provider

    def ask(self, provider: StateProvider) -> OverviewAnswers:
        self._rounds += 1
        care, history = None, None
        if self._rounds % 10 == 2 and self.host.at is None:  # the first picture does not wait for it
            try:
                care = provider.care()
            except NotFound:
                care = None
        overview = provider.overview(self.host.at)
        if self._is_wide and overview["groups"]:
            chosen = self._parts["groups"].chosen or overview["groups"][0]
            history = provider.history(chosen["group"], 120)
        return OverviewAnswers(overview, care, history)

    def take(self, answer: OverviewAnswers) -> None:
        self._known, self._history = answer.overview, answer.history or self._history
        self._care = answer.care or self._care
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

    def _attention(self, overview: shapes.Overview) -> list[tuple[str, str]]:
        unowned = self._care["unowned"] if self._care and self.host.at is None else []
        found = []
        if unowned:
            words = "1 running job belongs" if len(unowned) == 1 else f"{len(unowned):,} running jobs belong"
            found.append(("", f"{words} to no live run"))
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
        name = group_name(chosen, self._known["now"]) if chosen else ""
        tall = min(10, height // 4)
        lines = [rule(f"pulse {name}", room), *pulse(self._history, room, tall)]
        lines.append(rule("now", room))
        running = self._known["running"][: max(height - len(lines) - 8, 1)]
        lines += [running_line(job, room, with_tags=True) for job in running]
        lines += [rule("tokens", room), *tokens(self._known["tokens"], room, self._known["now"])]
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
        elif key == "K" and self.focus == "attention" and row is not None and not row[0] and self._care:
            self.host.act("kill", self._care["unowned"])
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
        elif row[0]:
            key = row[0]
            self.host.later(
                lambda provider: provider.job(key), lambda job: self.host.open(JobPage(self.host, job))
            )
        elif self._care:
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
