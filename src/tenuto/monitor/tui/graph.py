"""The graph of a group: tasks as boxes with their counts, or the surroundings of one job, from left to right.
Layers and order come from the provider; this module places boxes and draws the lines between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tenuto.jobs.text import safe, width
from tenuto.monitor import shapes
from tenuto.monitor.state_provider import StateProvider
from tenuto.monitor.tui.cells import Line, joined, span
from tenuto.monitor.tui.job import JobPage
from tenuto.monitor.tui.text import count_spans, filter_value, key_group_name, key_name, number, short_task
from tenuto.monitor.tui.view import Host, View, group_or_newest

GAP = 5
_BOX = 4
_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_LINES = {
    3: "│", 12: "─", 10: "┌", 6: "┐", 9: "└", 5: "┘", 11: "├", 7: "┤", 14: "┬", 13: "┴", 15: "┼",
    1: "│", 2: "│", 4: "─", 8: "─",
}  # fmt: skip


class Box(NamedTuple):
    """A node where it is drawn."""

    node: shapes.NodeJson
    x: int
    y: int
    wide: int


def boxes(nodes: Sequence[shapes.NodeJson]) -> list[Box]:
    """Every node at its place: layers from left to right, each as wide as its widest node."""
    wide: dict[int, int] = {}
    for node in nodes:
        wide[node["layer"]] = max(wide.get(node["layer"], 0), _content(node) + 4)
    left = {}
    x = 2
    for layer in sorted(wide):
        left[layer] = x
        x += wide[layer] + GAP
    return [Box(node, left[node["layer"]], node["order"] * _BOX, wide[node["layer"]]) for node in nodes]


def _content(node: shapes.NodeJson) -> int:
    counts = "  ".join(words for words, _ in count_spans(node["counts"]))
    return max(width(safe(_name(node))) + 1, width(counts))


def _name(node: shapes.NodeJson) -> str:
    task = short_task(node["task"])
    return task if node["label"] in (task, node["task"]) else f"{task} {node['label']}"


class _Grid:
    """Cells of a drawing that may be larger than the window."""

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int], tuple[str, str]] = {}
        self._lines: dict[tuple[int, int], int] = {}

    def write(self, x: int, y: int, text: str, style: str = "") -> None:
        place = x
        for letter in text:
            size = width(letter)
            if not size:
                continue
            self._cells[place, y] = (letter, style)
            if size == 2:
                self._cells[place + 1, y] = ("", style)
            place += size

    def wire(self, start: tuple[int, int], end: tuple[int, int]) -> None:
        """A line from the right of one box to the left of another, with one bend in the gap before it."""
        (x1, y1), (x2, y2) = start, end
        bend = max(x2 - 3, x1)
        self._horizontal(x1, bend, y1)
        step = 1 if y2 > y1 else -1
        for y in range(y1, y2, step):
            self._add(bend, y, _DOWN if step > 0 else _UP)
            self._add(bend, y + step, _UP if step > 0 else _DOWN)
        self._horizontal(bend, x2 - 1, y2)
        self._cells[x2 - 1, y2] = ("▶", "soft")

    def _horizontal(self, x1: int, x2: int, y: int) -> None:
        for x in range(x1, x2):
            self._add(x, y, _RIGHT)
            self._add(x + 1, y, _LEFT)

    def _add(self, x: int, y: int, direction: int) -> None:
        self._lines[x, y] = self._lines.get((x, y), 0) | direction

    def line(self, y: int, left: int, room: int) -> Line:
        places = ((x, y) for x in range(left, left + room))
        found = ((place, self._lines.get(place, 0)) for place in places)
        return joined(
            self._cells.get(place, (_LINES[bits] if bits else " ", "soft" if bits else ""))
            for place, bits in found
        )


def drawn(graph: shapes.Graph, chosen: str | None) -> tuple[_Grid, list[Box]]:
    """The graph on a grid."""
    grid = _Grid()
    placed = boxes(graph["nodes"])
    of_node = {box.node["id"]: box for box in placed}
    for edge in graph["edges"]:
        source, target = of_node.get(edge["from"]), of_node.get(edge["to"])
        if source is not None and target is not None and source.x < target.x:
            grid.wire((source.x + source.wide, source.y + 1), (target.x, target.y + 1))
    for box in placed:
        _draw_box(grid, box, is_chosen=box.node["id"] == chosen)
    return grid, placed


def _draw_box(grid: _Grid, box: Box, *, is_chosen: bool) -> None:
    edge = "title" if is_chosen else "soft"
    name = safe(_name(box.node))
    rest = max(box.wide - 2 - width(name), 0)
    grid.write(box.x, box.y, "┌", edge)
    grid.write(box.x + 1, box.y, name, "title chosen" if is_chosen else "title")
    grid.write(box.x + 1 + width(name), box.y, "─" * rest + "┐", edge)
    grid.write(box.x, box.y + 1, "│" + " " * (box.wide - 2) + "│", edge)
    place = box.x + 2
    for words, state in count_spans(box.node["counts"]):
        grid.write(place, box.y + 1, words, state)
        place += width(words) + 2
    grid.write(box.x, box.y + 2, "└" + "─" * (box.wide - 2) + "┘", edge)


class GraphView(View):
    """Boxes and lines; arrows go from node to node."""

    name = "graph"
    hints = "↑ ↓ node  Enter open  + - depth around a job  Esc back"

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._graph: shapes.Graph | None = None
        self._group: str | None = None
        self._number = 0
        self.around: str | None = None
        self._depth = 2
        self._left = self._top = 0

    # The provider

    def ask(self, provider: StateProvider) -> tuple[str | None, shapes.Graph | None]:
        group = self.host.group
        if self.around is not None and group is None:
            group = provider.job(self.around)["group"]
        group = group_or_newest(provider, group)
        if group is None:
            return None, None
        return group, provider.graph(group, self.around, self._depth)

    def take(self, answer: tuple[str | None, shapes.Graph | None]) -> None:
        self._group, self._graph = answer
        nodes = self._graph["nodes"] if self._graph else []
        self._number = min(self._number, max(len(nodes) - 1, 0))

    # Looking

    def heading(self) -> Line:
        name = key_group_name(self._group, self.host.now) if self._group else ""
        content = [span(f"graph {name}   ", "title")]
        if self.around is not None:
            return [*content, span(f"around {key_name(self.around)}, {self._depth} steps")]
        total = sum(node["total"] for node in self._graph["nodes"]) if self._graph else 0
        return [*content, span(f"by task ({number(total)} jobs)")]

    def draw(self, room: int, height: int) -> list[Line]:
        node = self.chosen
        if self._graph is None or node is None:
            return [[span(" no job is known here yet" if self._graph is not None else " …", "soft")]]
        grid, placed = drawn(self._graph, node["id"])
        box = next(one for one in placed if one.node is node)
        self._left = _shifted(self._left, box.x - 2, box.x + box.wide + 1, room)
        self._top = _shifted(self._top, box.y, box.y + 3, height)
        return [grid.line(y, self._left, room) for y in range(self._top, self._top + height)]

    @property
    def chosen(self) -> shapes.NodeJson | None:
        """The node under the cursor."""
        nodes = self._graph["nodes"] if self._graph else []
        return nodes[self._number] if self._number < len(nodes) else None

    # Acting

    def press(self, key: str) -> bool:
        nodes = self._graph["nodes"] if self._graph else []
        node = self.chosen
        steps = {
            "down": 1,
            "j": 1,
            "tab": 1,
            "up": -1,
            "k": -1,
            "shift+tab": -1,
            "g": -self._number,
            "G": 10**6,
        }
        if key in steps:
            self._number = min(max(self._number + steps[key], 0), max(len(nodes) - 1, 0))
        elif key == "enter" and node is not None:
            self._open(node)
        elif key in ("+", "-") and self.around is not None:
            self._depth = min(max(self._depth + (1 if key == "+" else -1), 1), 50)
            self.host.renew()
        elif key == "escape" and self.around is not None:
            self.around = None
            self.host.renew()
        else:
            return False
        return True

    def _open(self, node: shapes.NodeJson) -> None:
        if self.around is None:
            self.host.group = self._group
            self.host.go(f"jobs task={filter_value(node['task'])}")
            return
        key = node["id"]
        self.host.later(
            lambda provider: provider.job(key), lambda job: self.host.open(JobPage(self.host, job))
        )


def _shifted(start: int, first: int, last: int, room: int) -> int:
    """Where a window begins so that a part is in sight."""
    if last - first >= room or first < start:
        return max(first, 0)
    return max(last - room, start, 0) if last > start + room else start
