"""The list of jobs: a window of a list of any length, filtered, sorted, marked.
Rows come from the provider 200 at a time; the list never holds more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tenuto.errors import FilterError
from tenuto.jobs.text import UNKNOWN, duration
from tenuto.monitor import shapes
from tenuto.monitor.state_provider import StateProvider
from tenuto.monitor.tui.cells import Line, span
from tenuto.monitor.tui.dialogs import Prompt, sentence
from tenuto.monitor.tui.help import diff_page
from tenuto.monitor.tui.job import JobPage
from tenuto.monitor.tui.table import WINDOW, Listing, TableColumn, header, placed, pointed, row_line
from tenuto.monitor.tui.text import (
    energy,
    glyph,
    key_group_name,
    number,
    percent,
    short_task,
    state_words,
    tag_text,
    told,
)
from tenuto.monitor.tui.view import Host, View

MOST_TAGS = 6
MOST_NAME = 14
"""Cells of the longest name of a job that is shown whole."""
MOST_MARKED = 10_000

Job = shapes.Job


def _took(job: Job) -> str:
    return duration(job["duration_s"]) if job["duration_s"] is not None else UNKNOWN


def _left(job: Job) -> str:
    return duration(job["eta_s"]) if job["eta_s"] else UNKNOWN


def _state(room: int) -> Callable[[Job], str]:
    """The state in words; with the word of the door in a wide window."""
    return state_words if room >= 110 else lambda job: f"{glyph(job['state'])} {job['state']}"


def _state_style(job: Job) -> str:
    return job["state"]


def columns(tags: Sequence[str], room: int, name_cells: int = 8) -> list[TableColumn[Job]]:
    """The columns of a list of jobs; a wide window has more of them."""
    tag_columns = [
        TableColumn[Job](name.upper(), _tag_room(name), _tag(name), rank=40 + place, sort=name)
        for place, name in enumerate(tags)
    ]
    wide = [
        TableColumn[Job]("HOST", 8, lambda job: job["where"] or UNKNOWN, rank=60),
        TableColumn[Job]("ENERGY", 7, lambda job: energy(job["energy_kwh"]), right=True, rank=61),
    ]
    return [
        TableColumn("ID", name_cells, lambda job: job["name"], sort="id"),
        TableColumn("TASK", 12, lambda job: short_task(job["task"]), grows=room < 60, sort="task"),
        TableColumn("STATE", 22 if room >= 110 else 13, _state(room), style=_state_style, sort="state"),
        TableColumn("%", 4, lambda job: percent(job["progress"]), right=True, rank=10, sort="progress"),
        TableColumn("TOOK", 6, _took, right=True, rank=20, sort="duration"),
        TableColumn("ETA", 6, _left, right=True, rank=30, sort="eta"),
        *tag_columns,
        *(wide if room >= 110 else []),
        TableColumn("MESSAGE", 10, told, rank=90, grows=True, sort="message"),
    ]


def _tag(name: str) -> Any:
    return lambda job: tag_text(job["tags"][name]) if name in job["tags"] else ""


def _tag_room(name: str) -> int:
    return min(max(len(name), 6), 10)


class JobsTab(View):
    """The jobs of a group, or of all."""

    name = "jobs"
    hints = "Enter open  l log  w why  / filter  s sort  space mark  K kill R retry D clean"

    def __init__(self, host: Host, filter: str = "") -> None:
        super().__init__(host)
        self.filter = filter
        self.sort = ""
        self.listing: Listing[Job] = Listing(lambda job: f"{job['group']} {job['key']}")
        self._tags: list[str] = []
        self._total = self._known = 0
        self._trouble = ""
        self._group: str | None = None
        self.is_loaded = False

    # The provider

    def ask(self, provider: StateProvider) -> shapes.Jobs:
        return provider.jobs(self.host.group, self.filter, self.sort, self.listing.wanted(), WINDOW)

    def take(self, answer: shapes.Jobs) -> None:
        if self._group != self.host.group:
            self._group = self.host.group
            self._tags = []
            self.listing = Listing(lambda job: f"{job['group']} {job['key']}")
        self._trouble = ""
        self.is_loaded = True
        self._total, self._known = answer["total"], answer["known"]
        for job in answer["jobs"]:
            for name in job["tags"]:
                if name not in self._tags and len(self._tags) < MOST_TAGS:
                    self._tags.append(name)
        self.listing.take(answer["jobs"], answer["matched"], answer["offset"])
        for job in answer["jobs"]:
            if job["key"] in self.host.marked:
                self.host.marked[job["key"]] = job

    def fail(self, error: Exception) -> bool:
        if isinstance(error, FilterError):
            self._trouble = f"{sentence(error)} (character {error.position + 1} of the filter)"
            self.listing.take([], 0)
            return True
        return False

    @property
    def period_s(self) -> float | None:  # type: ignore[override]
        """Every second while a row in sight runs: its time moves."""
        return 1.0 if any(job["state"] == "running" for job in self.listing.rows) else None

    # Looking

    def heading(self) -> Line:
        name = key_group_name(self.host.group, self.host.now) if self.host.group else "all groups"
        seen = f", {number(self._known)} seen so far" if self._known < self._total else ""
        count = f"{number(self.listing.count)} of {number(self._total)}{seen}"
        content = [span("jobs ", "title"), span(name, "title"), span(f"   {count}   ")]
        if self.host.marked:
            content.append(span(f"{len(self.host.marked):,} marked   ", "marked"))
        if self.filter:
            content += [span("filter: ", "key"), span(self.filter)]
        return content

    def draw(self, room: int, height: int) -> list[Line]:
        return self.draw_list(room, height, has_focus=True)

    def draw_list(self, room: int, height: int, *, has_focus: bool) -> list[Line]:
        """The table in so many cells."""
        if self._trouble:
            return [[span(f" {self._trouble}", "error")]]
        name_cells = max((len(job["name"]) for job in self.listing.rows), default=0)
        chosen = placed(columns(self._tags, room, min(max(name_cells, 8), MOST_NAME)), room - 1)
        lines: list[Line] = []
        rows_height = height
        if height > 1:
            lines.append([span(" "), *header(chosen, self.sort)])
            rows_height -= 1
        for index in self.listing.visible(rows_height):
            job = self.listing.row(index)
            content = row_line(chosen, job) if job is not None else [span("…", "soft")]
            mark = "*" if job is not None and job["key"] in self.host.marked else " "
            is_cursor = index == self.listing.cursor
            lines.append(pointed(content, room, is_cursor=is_cursor, has_focus=has_focus, mark=mark))
        if not self.listing.count:
            words = "no job matches the filter" if self.filter else "no job is known here yet"
            lines.append([span(f" {words}" if self.is_loaded else " …", "soft")])
        if self.listing.is_outside:
            self.host.renew()
        return lines

    # Acting

    def current(self) -> Job | None:
        return self.listing.chosen

    def jobs(self) -> Sequence[Job]:
        if self.host.marked:
            return list(self.host.marked.values())
        chosen = self.listing.chosen
        return [chosen] if chosen is not None else []

    def press(self, key: str) -> bool:
        if self.listing.press(key):
            return True
        chosen = self.listing.chosen
        if key == "enter" and chosen is not None:
            self.host.open(JobPage(self.host, chosen))
        elif key == "/":
            self.host.open(Prompt(self.host, self.filter, self.set_filter))
        elif key in ("s", "S"):
            self._turn(key)
        elif key == "space" and chosen is not None:
            self._mark(chosen)
            self.listing.press("down")
        elif key == "*":
            self._mark_all()
        elif key == "x":
            self._compare()
        elif key == "escape" and (self.host.marked or self.filter):
            if self.host.marked:
                self.host.marked.clear()
            else:
                self.set_filter("")
        else:
            return False
        return True

    def set_filter(self, text: str) -> None:
        """Show the jobs that a filter lets through."""
        self.filter = text
        self.listing.reset()
        self.host.renew()

    def _turn(self, key: str) -> None:
        if key == "S":
            self.sort = self.sort.removeprefix("-") if self.sort.startswith("-") else f"-{self.sort}"
            self.sort = "" if self.sort == "-" else self.sort
        else:
            names = ["", *(one.sort for one in columns(self._tags, 0) if one.sort)]
            place = names.index(self.sort.removeprefix("-")) if self.sort.removeprefix("-") in names else 0
            self.sort = names[(place + 1) % len(names)]
        self.host.say(f"sorted by {self.sort}" if self.sort else "in order of submission")
        self.listing.reset()
        self.host.renew()

    def _mark(self, job: Job) -> None:
        if job["key"] in self.host.marked:
            del self.host.marked[job["key"]]
        else:
            self.host.marked[job["key"]] = job

    def _mark_all(self) -> None:
        if self.host.marked:
            self.host.marked.clear()
            return
        group, filter, sort = self.host.group, self.filter, self.sort

        def question(provider: StateProvider) -> list[Job]:
            found: list[Job] = []
            while len(found) < MOST_MARKED:
                part = provider.jobs(group, filter, sort, len(found), 1_000)["jobs"]
                found += part
                if len(part) < 1_000:
                    break
            return found[:MOST_MARKED]

        self.host.later(question, self._take_marks)

    def _take_marks(self, jobs: list[Job]) -> None:
        self.host.marked.update((job["key"], job) for job in jobs)
        self.host.say(f"{len(jobs):,} marked")

    def _compare(self) -> None:
        marked = list(self.host.marked.values())
        chosen = self.listing.chosen
        if len(marked) == 2:
            self.host.open(diff_page(self.host, marked[0], marked[1]))
        elif len(marked) == 1 and chosen is not None and chosen["key"] != marked[0]["key"]:
            self.host.open(diff_page(self.host, chosen, marked[0]))
        else:
            self.host.say("mark two jobs with space, then x shows in what they differ")
