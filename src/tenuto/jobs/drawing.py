"""The drawing kit: tables, bars, plots, heat maps, sparklines, graphs as lines of text (graphs also as SVG).
Pure: values in, lines out; it prints nothing and knows no door. Outside strings are made harmless here.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tenuto.jobs.row import Row
from tenuto.jobs.text import UNKNOWN, fit, safe, truncate, width
from tenuto.lifecycle.states import JobState
from tenuto.light import late
from tenuto.tasks.tags import tag_words

if TYPE_CHECKING:
    import html
else:
    html = late("html")


class GraphNode(NamedTuple):
    """A job, or all jobs of one task."""

    id: str
    """Of a job; of a task its name."""
    title: str
    detail: str
    states: Mapping[JobState, int]
    needs: tuple[str, ...] = ()
    """The ids of the nodes that it waits for."""

    @property
    def state(self) -> JobState:
        """The state to colour it by: of several, the state that a person should know of first."""
        order = (JobState.ERROR, JobState.RUNNING, JobState.SCHEDULED, JobState.READY, JobState.WAITING)
        return next((state for state in order if self.states.get(state)), max(self.states))


def job_nodes(jobs: Sequence[Row]) -> list[GraphNode]:
    """A node for each job, in the order the jobs were submitted."""
    known = {job.id for job in jobs}
    return [
        GraphNode(
            job.id,
            job.task,
            tag_words(job.tags) or job.name,
            {job.state: 1},
            tuple(one for one in job.depends_on if one in known),
        )
        for job in jobs
    ]


def task_nodes(jobs: Sequence[Row]) -> list[GraphNode]:
    """A node for each task, which waits for the tasks of the jobs that its own wait for."""
    task_of = {job.id: job.task for job in jobs}
    states: dict[str, Counter[JobState]] = {}
    needs: dict[str, dict[str, None]] = {}
    for job in jobs:
        states.setdefault(job.task, Counter())[job.state] += 1
        needed = (task_of[one] for one in job.depends_on if one in task_of)
        needs.setdefault(job.task, {}).update(dict.fromkeys(needed))
    return [
        GraphNode(
            task, task, _counted(counts), dict(counts), tuple(one for one in needs[task] if one != task)
        )
        for task, counts in states.items()
    ]


def _counted(counts: Mapping[JobState, int]) -> str:
    total = sum(counts.values())
    told = ", ".join(f"{number} {state.name.lower()}" for state, number in sorted(counts.items()))
    return f"{total} {'job' if total == 1 else 'jobs'}: {told}"


def layers(nodes: Sequence[GraphNode]) -> list[list[GraphNode]]:
    """Sorts the nodes by the number of nodes before them: nodes that wait for nothing come first.

    Tasks may wait for each other in a circle (jobs cannot): the rest is then one last layer.
    """
    left = {node.id: node for node in nodes}
    found: list[list[GraphNode]] = []
    while left:
        free = [node for node in left.values() if not any(one in left for one in node.needs)]
        layer = free or list(left.values())
        found.append(layer)
        for node in layer:
            del left[node.id]
    return found


# -- tables ------------------------------------------------------------------------------------------

GAP = 2
NARROWEST = 3


class Column(NamedTuple):
    """A column of a table."""

    title: str
    right: bool = False
    least: int = 0
    """The cells down to which it may be cut; 0: it is not cut."""
    rank: int = 0
    """In a narrow window the columns of the highest rank are left out first; columns of rank 0 stay."""


@dataclass(frozen=True, slots=True)
class Styled:
    """A cell with a colour."""

    text: str
    colour: str | None = None
    bold: bool = False
    dim: bool = False


Cell = str | Styled


def _unpainted(_: Cell, text: str) -> str:
    return text


def table_lines(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    room: int | None,
    paint: Callable[[Cell, str], str] = _unpainted,
) -> list[str]:
    """The lines of a table that fits `room` cells."""
    columns = [column._replace(title=safe(column.title)) for column in columns]  # a tag, a key of a result
    texts = [[safe(cell if isinstance(cell, str) else cell.text) for cell in row] for row in rows]
    natural = [
        max([width(column.title), *(width(row[place]) for row in texts)])
        if not column.rank or any(row[place] not in ("", UNKNOWN) for row in texts)
        else 0  # a column that says nothing is left out
        for place, column in enumerate(columns)
    ]
    widths = fitting(columns, natural, room)
    shown = [place for place, cells in enumerate(widths) if cells]

    def line(cells: Sequence[Cell], content: Sequence[str]) -> str:
        painted = []
        for place in shown:
            text = _aligned(content[place], widths[place], columns[place].right, place == shown[-1])
            painted.append(paint(cells[place], text))
        return (" " * GAP).join(painted).rstrip(" ")

    titles = [Styled(column.title, bold=True) for column in columns]
    return [
        line(titles, [column.title for column in columns]),
        *(line(row, content) for row, content in zip(rows, texts, strict=True)),
    ]


def fitting(columns: Sequence[Column], natural: Sequence[int], room: int | None) -> list[int]:
    """The width of each column so that all fit the room; 0 for a column left out."""
    widths = list(natural)
    if room is None:
        return widths
    while _excess(widths, room) > 0:
        cuttable = [
            place for place, column in enumerate(columns) if column.least and widths[place] > column.least
        ]
        if cuttable:
            widest = max(cuttable, key=lambda place: widths[place])
            others = [widths[place] for place in cuttable if place != widest]
            least = max(columns[widest].least, min(max(others, default=0), widths[widest] - 1))
            widths[widest] = max(least, widths[widest] - _excess(widths, room))
            continue
        last = max(
            range(len(columns)), key=lambda place: (columns[place].rank if widths[place] else 0, place)
        )
        if columns[last].rank and widths[last]:
            widths[last] = 0  # the other columns may be wide again
            widths = [natural[place] if cells else 0 for place, cells in enumerate(widths)]
            continue
        widest = max(range(len(columns)), key=lambda place: widths[place])
        if widths[widest] <= NARROWEST:
            break
        widths[widest] -= 1
    return widths


def _excess(widths: Sequence[int], room: int) -> int:
    shown = [cells for cells in widths if cells]
    return sum(shown) + GAP * (len(shown) - 1) - room


def _aligned(text: str, cells: int, right: bool, last: bool) -> str:
    cut = truncate(text, cells)
    if right:
        return " " * (cells - width(cut)) + cut
    return cut if last else fit(cut, cells)


# -- bars and plots ---------------------------------------------------------------------------------

BAR = "█"
POINT = "•"
MANY = "●"
_MOST_BINS = 12
_MOST_LABELS = 30
_ROWS = 16
_LOG_FROM = 50.0
"""From this ratio of the largest to the smallest on, an axis of positive numbers is logarithmic."""


class PlotPoint(NamedTuple):
    """One job."""

    x: float
    y: float


def histogram(values: Sequence[float], columns: int) -> list[str]:
    """How many values lie where, a line for each range."""
    low, high = min(values), max(values)
    if low == high:
        return _bars([(f"{low:.4g}", float(len(values)), str(len(values)))], columns)
    bins = min(_MOST_BINS, max(3, math.ceil(math.sqrt(len(values)))))
    step = (high - low) / bins
    counts = [0] * bins
    for value in values:
        counts[min(int((value - low) / step), bins - 1)] += 1
    lines = [
        (f"{low + place * step:.4g} to {low + (place + 1) * step:.4g}", float(count), str(count))
        for place, count in enumerate(counts)
    ]
    return _bars(lines, columns)


def bars(labelled: Sequence[tuple[str, float]], columns: int) -> list[str]:
    """A bar for each label, in the given order."""
    shown = [(safe(label), value, f"{value:.4g}") for label, value in labelled[:_MOST_LABELS]]
    lines = _bars(shown, columns)
    if len(labelled) > len(shown):
        lines.append(f"and {len(labelled) - len(shown)} more")
    return lines


def _bars(lines: Sequence[tuple[str, float, str]], columns: int) -> list[str]:
    label_width = min(max(width(label) for label, _, _ in lines), max(columns // 3, 8))
    text_width = max(len(text) for _, _, text in lines)
    room = max(columns - label_width - text_width - 4, 1)
    least = min(0.0, *(size for _, size, _ in lines))
    span = max(size for _, size, _ in lines) - least or 1.0
    return [
        f"{fit(truncate(label, label_width), label_width)}  "
        f"{BAR * round((size - least) / span * room)} {text}".rstrip()
        for label, size, text in lines
    ]


class _Axis(NamedTuple):
    """Places numbers on cells, evenly or by their logarithms."""

    low: float
    high: float
    is_log: bool

    @classmethod
    def of(cls, values: Sequence[float]) -> _Axis:
        low, high = min(values), max(values)
        return cls(low, high, low > 0 and high / low >= _LOG_FROM)

    def cell(self, value: float, cells: int) -> int:
        if self.low == self.high:
            return (cells - 1) // 2
        if self.is_log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(max(round(share * (cells - 1)), 0), cells - 1)

    @property
    def note(self) -> str:
        return " (log)" if self.is_log else ""


def scatter(points: Sequence[PlotPoint], x_name: str, y_name: str, columns: int) -> list[str]:
    """A point for each job, larger where several lie on one place."""
    across, up = _Axis.of([point.x for point in points]), _Axis.of([point.y for point in points])
    top, bottom = f"{up.high:.4g}", f"{up.low:.4g}"
    margin = max(len(top), len(bottom))
    room = max(columns - margin - 3, 8)
    grid = [[" "] * room for _ in range(_ROWS)]
    for point in points:
        row, place = _ROWS - 1 - up.cell(point.y, _ROWS), across.cell(point.x, room)
        grid[row][place] = POINT if grid[row][place] == " " else MANY
    labels = {0: top, _ROWS - 1: bottom}
    lines = [truncate(f"{safe(y_name)}{up.note}", max(columns, 8))]
    lines += [
        f"{labels.get(place, ''):>{margin}} │{''.join(cells)}".rstrip() for place, cells in enumerate(grid)
    ]
    lines.append(f"{'':>{margin}} └{'─' * room}")
    left, right = f"{across.low:.4g}", f"{across.high:.4g}"
    name = truncate(f"{safe(x_name)}{across.note}", max(room - len(left) - len(right) - 2, 1))
    gap = max(room - len(left) - len(right) - width(name), 0)
    before = gap // 2
    lines.append(f"{'':>{margin}}  {left}{' ' * before}{name}{' ' * (gap - before)}{right}")
    return lines


# -- sparklines, bars of blocks, braille --------------------------------------------------------------

HEIGHTS = " ▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The dots of a braille cell, from its head, left and right."""


def spark_line(values: Sequence[float], columns: int) -> str:
    """The course of a number in one line of blocks."""
    if len(values) > columns:
        values = [values[at * len(values) // columns] for at in range(columns - 1)] + [values[-1]]
    low, span = min(values, default=0.0), max(values, default=0.0) - min(values, default=0.0)
    return "".join(HEIGHTS[1 + min(int((v - low) / span * 8), 7)] if span > 0 else HEIGHTS[1] for v in values)


def filled_bar(fraction: float, cells: int, full: str = "█", empty: str = " ") -> str:
    """A fraction as so many cells; blocks are filled by eighths, other signs whole."""
    share = min(max(fraction, 0.0), 1.0)
    whole, part = divmod(int(share * cells * 8), 8)
    begun = _EIGHTHS[part] if part and (full, empty) == ("█", " ") else ""
    return full * whole + begun + empty * (cells - whole - len(begun))


class Braille:
    """Dots, two across and four down in each cell; the style of a cell is the one of its last styled dot."""

    def __init__(self, columns: int, rows: int) -> None:
        self.across, self.down = columns * 2, rows * 4
        self._bits = [[0] * columns for _ in range(rows)]
        self._styles = [[""] * columns for _ in range(rows)]

    def dot(self, x: int, y: int, style: str = "") -> None:
        """A dot; (0, 0) is the upper left."""
        row, cell = y // 4, x // 2
        self._bits[row][cell] |= _DOTS[y % 4][x % 2]
        self._styles[row][cell] = style or self._styles[row][cell]

    def rows(self) -> list[list[tuple[str, str]]]:
        """The letter and the style of each cell, row by row."""
        return [
            [(chr(0x2800 + bits) if bits else " ", style) for bits, style in zip(*line, strict=True)]
            for line in zip(self._bits, self._styles, strict=True)
        ]


# -- heat maps ---------------------------------------------------------------------------------------

# Cividis, which people see alike however they see colours; from dark to light, of the 256 colours.
PALETTE = (17, 18, 24, 60, 59, 66, 102, 101, 137, 143, 179, 185, 221, 227)
PARENT = 231
EMPTY = 236
SHADES = " .:-=+*#%@"
_RESET = "\x1b[0m"


class HeatmapRow(NamedTuple):
    """One line of the picture: plain, and with colours."""

    plain: str
    painted: str


class Pixel(NamedTuple):
    """One cell of the picture: how good its elite is, from 0 to 1; None if it is empty."""

    level: float | None = None
    is_parent: bool = False


def heat_map(
    levels: Mapping[tuple[int, int], Pixel], size: tuple[int, int], columns: int, rows: int
) -> list[HeatmapRow]:
    """A map of `size` cells in half blocks, two cells of it in each cell of the terminal; y grows upwards."""
    across, down = _fitted_cells(size[0], columns), _fitted_cells(size[1], 2 * rows)
    pixels = [[_best(levels, xs, ys) for xs in across] for ys in reversed(down)]  # the largest at the top
    if len(pixels) % 2:
        pixels.append([Pixel()] * len(pixels[0]))
    lines = []
    for at in range(0, len(pixels), 2):
        upper, lower = pixels[at], pixels[at + 1]
        pairs = list(zip(upper, lower, strict=True))
        lines.append(HeatmapRow("".join(_shade(a, b) for a, b in pairs), _painted(pairs)))
    return lines


def _fitted_cells(count: int, room: int) -> list[range]:
    """Which cells each pixel shows: several where there are too many, one repeated where there are few."""
    if count <= room:
        times = min(max(1, room // count), 6)
        return [range(at, at + 1) for at in range(count) for _ in range(times)]
    return [range(at * count // room, (at + 1) * count // room) for at in range(room)]


def _best(levels: Mapping[tuple[int, int], Pixel], xs: range, ys: range) -> Pixel:
    found = [levels[x, y] for x in xs for y in ys if (x, y) in levels]
    if not found:
        return Pixel()
    return Pixel(max(pixel.level or 0.0 for pixel in found), any(pixel.is_parent for pixel in found))


def _shade(upper: Pixel, lower: Pixel) -> str:
    found = [pixel.level for pixel in (upper, lower) if pixel.level is not None]
    if not found:
        return SHADES[0]
    if upper.is_parent or lower.is_parent:
        return "o"
    return SHADES[1 + min(int(max(found) * (len(SHADES) - 1)), len(SHADES) - 2)]


def _color(pixel: Pixel) -> int:
    if pixel.level is None:
        return EMPTY
    if pixel.is_parent:
        return PARENT
    return PALETTE[min(int(pixel.level * len(PALETTE)), len(PALETTE) - 1)]


def _painted(pairs: Sequence[tuple[Pixel, Pixel]]) -> str:
    parts = []
    before = None
    for upper, lower in pairs:
        colors = (_color(upper), _color(lower))
        if colors != before:
            parts.append(f"\x1b[38;5;{colors[0]};48;5;{colors[1]}m")
            before = colors
        parts.append("▀")
    return "".join([*parts, _RESET])


# -- graphs ------------------------------------------------------------------------------------------

_FILLS = {
    JobState.DONE: "#d6f0d6",
    JobState.ERROR: "#f8d0d0",
    JobState.RUNNING: "#cfe6fa",
    JobState.SCHEDULED: "#cfe6fa",
    JobState.READY: "#fbf0c4",
    JobState.WAITING: "#fbf0c4",
    JobState.UNSCHEDULED: "#eeeeee",
}
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 210, 44, 70, 14, 16
_LONGEST = 30


def graph_lines(nodes: Sequence[GraphNode]) -> Iterator[str]:
    """A tree that begins at the nodes that wait for nothing; a node met again is only named."""
    dependents: dict[str, list[GraphNode]] = {node.id: [] for node in nodes}
    for node in nodes:
        for needed in node.needs:
            dependents[needed].append(node)
    shown: set[str] = set()
    for root in sorted(nodes, key=lambda node: bool(node.needs)):
        if root.id not in shown:  # one with needs is left only where tasks wait for each other in a circle
            yield from _graph_tree(root, dependents, shown)


def _graph_tree(root: GraphNode, dependents: dict[str, list[GraphNode]], shown: set[str]) -> Iterator[str]:
    waiting = [(root, "", "")]
    while waiting:  # a chain of thousands of jobs is no reason to recurse
        node, first, others = waiting.pop()
        again = node.id in shown
        has_more = again and dependents[node.id]
        yield f"{first}{_described(node)}{'  (see above)' if has_more else ''}"
        if again:
            continue
        shown.add(node.id)
        below = dependents[node.id]
        for place, child in reversed(list(enumerate(below))):
            last = place == len(below) - 1
            branch, on = ("└─ ", "   ") if last else ("├─ ", "│  ")
            waiting.append((child, others + branch, others + on))


def _described(node: GraphNode) -> str:
    several = sum(node.states.values()) > 1
    state = "" if several or ":" in node.detail else f"  {node.state.name.lower()}"
    return f"{safe(node.title)}  {safe(node.detail)}{state}"


def graph_dot(nodes: Sequence[GraphNode]) -> Iterator[str]:
    """The graph for Graphviz: ``tenuto graph --dot | dot -Tpdf``."""
    yield "digraph jobs {"
    yield '  rankdir=LR; node [shape=box, style="rounded,filled", fontname="sans-serif"];'
    numbers = {node.id: number for number, node in enumerate(nodes)}
    for node in nodes:
        # JSON writes the quotes and backslashes of a text as DOT wants them.
        label = json.dumps(f"{safe(node.title)}\n{safe(node.detail)}", ensure_ascii=False)
        yield f'  n{numbers[node.id]} [label={label}, fillcolor="{_FILLS[node.state]}"];'
    for node in nodes:
        for needed in node.needs:
            yield f"  n{numbers[needed]} -> n{numbers[node.id]};"
    yield "}"


def graph_svg(nodes: Sequence[GraphNode]) -> Iterator[str]:
    """The graph as a picture: layers from left to right."""
    placed = layers(nodes)
    tallest = max((len(layer) for layer in placed), default=0)
    across = 2 * _MARGIN + len(placed) * (_WIDTH + _GAP_X) - (_GAP_X if placed else 0)
    height = 2 * _MARGIN + tallest * (_HEIGHT + _GAP_Y)
    corners: dict[str, tuple[float, float]] = {}
    for column, layer in enumerate(placed):
        above = (tallest - len(layer)) * (_HEIGHT + _GAP_Y) / 2
        for row, node in enumerate(layer):
            x = _MARGIN + column * (_WIDTH + _GAP_X)
            corners[node.id] = x, _MARGIN + above + row * (_HEIGHT + _GAP_Y)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{across}" height="{height}" '
        f'viewBox="0 0 {across} {height}" font-family="sans-serif" font-size="12">'
    )
    for node in nodes:
        for needed in node.needs:
            yield _graph_edge(corners[needed], corners[node.id])
    for node in nodes:
        yield from _graph_box(node, *corners[node.id])
    yield "</svg>"


def _graph_edge(start: tuple[float, float], end: tuple[float, float]) -> str:
    x, y = start[0] + _WIDTH, start[1] + _HEIGHT / 2
    to_x, to_y = end[0], end[1] + _HEIGHT / 2
    bend = _GAP_X / 2
    return (
        f'<path d="M{x:g},{y:g} C{x + bend:g},{y:g} {to_x - bend:g},{to_y:g} {to_x:g},{to_y:g}" '
        f'fill="none" stroke="#888"/>'
    )


def _graph_box(node: GraphNode, x: float, y: float) -> Iterator[str]:
    title, detail = (html.escape(truncate(safe(text), _LONGEST)) for text in (node.title, node.detail))
    whole = html.escape(safe(f"{node.title} {node.detail}: {node.state.name.lower()}"))
    yield (
        f'<g><title>{whole}</title><rect x="{x:g}" y="{y:g}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" '
        f'fill="{_FILLS[node.state]}" stroke="#666"/>'
    )
    yield f'<text x="{x + 8:g}" y="{y + 18:g}" font-weight="bold">{title}</text>'
    yield f'<text x="{x + 8:g}" y="{y + 35:g}">{detail}</text></g>'
