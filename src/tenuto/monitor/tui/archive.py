"""The archive of a search: a map of its cells, the chosen cell, and the parents of its elite.
The provider says what fills each cell; of more than two measures the best over the others is shown.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tenuto.jobs.drawing import spark_line
from tenuto.monitor import shapes
from tenuto.monitor.state_provider import StateProvider
from tenuto.monitor.tui.cells import Line, Span, beside, fitted, span
from tenuto.monitor.tui.help import Asked
from tenuto.monitor.tui.job import JobPage
from tenuto.monitor.tui.text import clock, glyph, key_name, number, percent
from tenuto.monitor.tui.view import Host, View, group_or_newest

SHADES = "░▒▓█"
_STYLES = ("unscheduled", "scheduled", "running", "done")
LABEL = 6
LEAST_FACTS = 26
MOST_PARENTS = 20


class Cell(NamedTuple):
    """What fills a cell of the map."""

    objective: float | None
    key: str
    since: str
    flies: str = ""
    replaced: int = 0
    """How often another elite took the cell."""
    gain: float | None = None
    """How much better the last one was than the one before."""


Place = tuple[int, int]


def projected(archive: shapes.ArchiveJson, across: int, up: int) -> dict[Place, Cell]:
    """The cells by two measures; over the others the best is taken."""
    measures = len(archive["axes"])

    def place(one: list[Any]) -> Place:
        return (int(one[across]) if measures else 0, int(one[up]) if measures > 1 else 0)

    found: dict[Place, Cell] = {}
    for one in archive["cells"]:
        objective, key, since, replaced, gain = one[measures : measures + 5]
        before = found.get(place(one))
        if before is None or before.objective is None or (objective or 0) > before.objective:
            found[place(one)] = Cell(objective, str(key), str(since or ""), "", int(replaced), gain)
    for one in archive["in_flight"]:
        empty = Cell(None, "", "")
        found[place(one)] = found.get(place(one), empty)._replace(flies=str(one[measures]))
    return found


class ArchiveView(View):
    """A map; arrows move from cell to cell."""

    name = "archive"
    hints = "arrows move  Enter job  p parents  x y measures  Esc back"

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._archive: shapes.ArchiveJson | None = None
        self._group: str | None = None
        self._is_known = False
        self._cells: dict[Place, Cell] = {}
        self._axes = [0, 1]
        self._chosen: Place | None = None
        self._left = self._bottom = 0
        self._across, self._down = 2, 1

    # The provider

    def ask(self, provider: StateProvider) -> tuple[str | None, shapes.ArchiveJson | None]:
        own = self.host.group
        group = group_or_newest(provider, own if own and own.startswith("search:") else None, "search")
        return group, provider.archive(group) if group else None

    def take(self, answer: tuple[str | None, shapes.ArchiveJson | None]) -> None:
        self._group, self._archive = answer
        self._is_known = True
        if self._archive is None:
            return
        count = len(self._archive["axes"])
        self._axes = [axis if axis < count else 0 for axis in self._axes]
        self._cells = projected(self._archive, *self._axes)
        if self._chosen is None and self._cells:
            filled = [place for place, cell in self._cells.items() if cell.objective is not None]
            self._chosen = max(filled or self._cells, key=lambda place: self._cells[place].objective or 0.0)

    def fail(self, error: Exception) -> bool:
        self._is_known = True
        return False

    # Looking

    def heading(self) -> Line:
        content = [span("archive ", "title")]
        if self._archive is None:
            return content
        found = self._archive
        share = percent(found["filled"] / max(found["total"], 1))
        name = (self._group or "").partition(":")[2]
        facts = f"   {share} of {number(found['total'])}   best {number(found['best'])}"
        return [*content, span(name, "title"), span(f"{facts}   {len(found['in_flight'])} in flight")]

    def draw(self, room: int, height: int) -> list[Line]:
        if self._archive is None:
            words = " no search with an archive is known here" if self._is_known else " …"
            return [[span(words, "soft")]]
        wide, tall = self._sides()
        self._across = min(max((room - LABEL - 3 - 2 * LEAST_FACTS) // wide, 2), 5)
        self._down = 2 if self._across > 3 and tall * 2 + 2 <= height else 1
        map_room = min(LABEL + 2 + wide * self._across + 1, room)
        if room - map_room - 2 < LEAST_FACTS and room > LEAST_FACTS * 2:
            map_room = room - LEAST_FACTS - 2
        lines = self._draw_map(map_room, height)
        if room - map_room < 10:
            return lines
        facts = self._draw_facts(room - map_room - 1)
        return beside([(lines, map_room), (facts, room - map_room - 1)], height, " ")

    def _sides(self) -> tuple[int, int]:
        assert self._archive is not None
        axes = self._archive["axes"]
        wide = int(axes[self._axes[0]]["cells"]) if axes else 1
        return wide, int(axes[self._axes[1]]["cells"]) if len(axes) > 1 else 1

    def _draw_map(self, room: int, height: int) -> list[Line]:
        assert self._archive is not None
        wide, tall = self._sides()
        columns = max(min(wide, (room - LABEL - 2) // self._across), 1)
        rows = max(min(tall, (height - 2) // self._down), 1)
        chosen = self._chosen or (0, 0)
        self._left = _shifted(self._left, chosen[0], columns, wide)
        self._bottom = _shifted(self._bottom, chosen[1], rows, tall)
        known = [cell.objective for cell in self._cells.values() if cell.objective is not None]
        low, high = min(known, default=0.0), max(known, default=1.0)
        axes = self._archive["axes"]
        up: Any = axes[self._axes[1]] if len(axes) > 1 else {"name": "", "low": 0, "high": 0}
        lines: list[Line] = [[span(f" {up['name']}", "key")]] if height > rows else []
        for y in reversed(range(self._bottom, self._bottom + rows)):
            label = number(up["high"]) if y == tall - 1 else number(up["low"]) if y == 0 else ""
            content = [span(f"{label:>{LABEL}} ", "soft"), Span("┤", "soft")]
            for x in range(self._left, self._left + columns):
                content += self._draw_cell(x, y, low, high)
            blank = [span(" " * LABEL + " "), Span("┤", "soft"), *content[2:]]
            lines += [content, *[blank] * (self._down - 1)]
        if axes:
            across = axes[self._axes[0]]
            words = f"{number(across['low'])}  {across['name']} →  {number(across['high'])}"
            lines.append([Span(" " * (LABEL + 1)), Span("└ ", "soft"), span(words, "key")])
        return [fitted(one, room) for one in lines]

    def _draw_cell(self, x: int, y: int, low: float, high: float) -> list[Span]:
        cell = self._cells.get((x, y))
        if (x - 1, y) == self._chosen:
            edge = "<"
        else:
            edge = ">" if (x, y) == self._chosen else " "
        if cell is None:
            letter, style = "·", "soft"
        elif cell.flies:
            letter, style = "▶", "alarm"
        else:
            share = ((cell.objective or 0.0) - low) / ((high - low) or 1.0)
            level = min(int(share * len(SHADES)), len(SHADES) - 1)
            letter, style = SHADES[level], _STYLES[level]
        size = self._across - 1
        filled = letter * size if letter in SHADES else letter.center(size)
        return [Span(edge, "title"), Span(filled, style)]

    def _draw_facts(self, room: int) -> list[Line]:
        assert self._archive is not None
        lines: list[Line] = []
        if self._chosen is not None:
            x, y = self._chosen
            cell = self._cells.get(self._chosen)
            lines.append([span(f"cell {x},{y}", "title")])
            if cell is None or (cell.objective is None and not cell.flies):
                lines.append([span("empty", "soft")])
            elif cell.objective is not None:
                lines.append([span("objective  ", "key"), span(f"{cell.objective:.6g}")])
                if cell.since:
                    lines.append([span("elite since ", "key"), span(clock(cell.since, self.host.now))])
                job = [span(f"{glyph('done')} ", "done"), span(key_name(cell.key))]
                lines.append([span("job        ", "key"), *job])
                if cell.replaced:
                    times = "once" if cell.replaced == 1 else f"{cell.replaced} times"
                    lines.append([span("replaced   ", "key"), span(times)])
                if cell.gain is not None:
                    lines.append([span("last by    ", "key"), span(f"{cell.gain:+.3g}")])
            if cell is not None and cell.flies:
                lines.append([span("in flight  ", "key"), span(key_name(cell.flies))])
        found = self._archive
        score = found["qd_score"]
        lines += [[], [span("best       ", "key"), span(number(found["best"]))]]
        lines.append(
            [span("filled     ", "key"), span(f"{number(found['filled'])} of {number(found['total'])}")]
        )
        lines.append([span("QD score   ", "key"), span(number(score))])
        lines += [[], *_curve(found["history"], room)]
        lines += [[], [span("░▒▓█ low to high  ▶ in flight", "soft")]]
        return [fitted(one, room) for one in lines]

    # Acting

    def press(self, key: str) -> bool:
        cell = self._cells.get(self._chosen) if self._chosen is not None else None
        moves = {"left": (-1, 0), "right": (1, 0), "up": (0, 1), "down": (0, -1), "k": (0, 1), "j": (0, -1)}
        if key in moves and self._archive is not None:
            (x, y), (wide, tall) = self._chosen or (0, 0), self._sides()
            right, up = moves[key]
            self._chosen = (min(max(x + right, 0), wide - 1), min(max(y + up, 0), tall - 1))
        elif key == "enter" and cell is not None:
            job_key = cell.key or cell.flies
            self.host.later(
                lambda provider: provider.job(job_key), lambda job: self.host.open(JobPage(self.host, job))
            )
        elif key == "p" and cell is not None and cell.key:
            self.host.open(_parents(self.host, cell.key))
        elif key in ("x", "y") and self._archive is not None:
            place = 0 if key == "x" else 1
            self._axes[place] = (self._axes[place] + 1) % max(len(self._archive["axes"]), 1)
            self._chosen = None
            self.take((self._group, self._archive))
        else:
            return False
        return True


def _shifted(start: int, chosen: int, room: int, total: int) -> int:
    start = min(max(start, chosen - room + 1), chosen)
    return min(max(start, 0), max(total - room, 0))


def _curve(history: list[list[Any]], room: int) -> list[Line]:
    """How the best and the filled cells grew, as two rows of blocks."""
    if len(history) < 2 or room < 12:
        return []
    wide = min(room - 8, 40)
    lines: list[Line] = []
    for label, column, style in (("best  ", 2, "done"), ("filled", 1, "running")):
        values = [float(one[column] or 0) for one in history]
        lines.append([span(f"{label} ", "soft"), Span(spark_line(values, wide), style)])
    return lines


def _parents(host: Host, key: str) -> Asked:
    """The line of parents of a candidate, as far as it is known."""

    def question(provider: StateProvider) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        current: str | None = key
        while current is not None and len(found) < MOST_PARENTS:
            job: Any = provider.job(current)
            values = " · ".join(f"{name} {value}" for name, value in job["parameters"].items())
            found.append((key_name(current), f"{glyph(job['state'])} {values or job['state']}"))
            parent = job.get("parent")
            current = f"{current.rpartition('/')[0]}/{parent}" if parent is not None else None
        return found

    return Asked(host, f"parents of {key_name(key)}", question)
