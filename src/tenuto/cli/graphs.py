"""A graph of jobs as lines of text, as DOT and as SVG.
Pure: nodes in, text out. Titles and tags are outside strings, and are made harmless here.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence

from tenuto.jobs.job_graph import GraphNode, layers
from tenuto.jobs.text import safe, truncate
from tenuto.lifecycle.states import JobState

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


def text_lines(nodes: Sequence[GraphNode]) -> Iterator[str]:
    """A tree that begins at the nodes that wait for nothing; a node met again is only named."""
    dependents: dict[str, list[GraphNode]] = {node.name: [] for node in nodes}
    for node in nodes:
        for needed in node.needs:
            dependents[needed].append(node)
    shown: set[str] = set()
    for root in sorted(nodes, key=lambda node: bool(node.needs)):
        if root.name not in shown:  # one with needs is left only where tasks wait for each other in a circle
            yield from _tree(root, dependents, shown)


def _tree(root: GraphNode, dependents: dict[str, list[GraphNode]], shown: set[str]) -> Iterator[str]:
    waiting = [(root, "", "")]
    while waiting:  # a chain of thousands of jobs is no reason to recurse
        node, first, others = waiting.pop()
        again = node.name in shown
        has_more = again and dependents[node.name]
        yield f"{first}{_described(node)}{'  (see above)' if has_more else ''}"
        if again:
            continue
        shown.add(node.name)
        below = dependents[node.name]
        for place, child in reversed(list(enumerate(below))):
            last = place == len(below) - 1
            branch, on = ("└─ ", "   ") if last else ("├─ ", "│  ")
            waiting.append((child, others + branch, others + on))


def _described(node: GraphNode) -> str:
    several = sum(node.states.values()) > 1
    state = "" if several or ":" in node.detail else f"  {node.state.name.lower()}"
    return f"{safe(node.title)}  {safe(node.detail)}{state}"


def dot(nodes: Sequence[GraphNode]) -> Iterator[str]:
    """The graph for Graphviz: ``tenuto graph --dot | dot -Tpdf``."""
    yield "digraph jobs {"
    yield '  rankdir=LR; node [shape=box, style="rounded,filled", fontname="sans-serif"];'
    numbers = {node.name: number for number, node in enumerate(nodes)}
    for node in nodes:
        # JSON writes the quotes and backslashes of a text as DOT wants them.
        label = json.dumps(f"{safe(node.title)}\n{safe(node.detail)}", ensure_ascii=False)
        yield f'  n{numbers[node.name]} [label={label}, fillcolor="{_FILLS[node.state]}"];'
    for node in nodes:
        for needed in node.needs:
            yield f"  n{numbers[needed]} -> n{numbers[node.name]};"
    yield "}"


def svg(nodes: Sequence[GraphNode]) -> Iterator[str]:
    """The graph as a picture: layers from left to right."""
    placed = layers(nodes)
    tallest = max((len(layer) for layer in placed), default=0)
    width = 2 * _MARGIN + len(placed) * (_WIDTH + _GAP_X) - (_GAP_X if placed else 0)
    height = 2 * _MARGIN + tallest * (_HEIGHT + _GAP_Y)
    corners: dict[str, tuple[float, float]] = {}
    for column, layer in enumerate(placed):
        above = (tallest - len(layer)) * (_HEIGHT + _GAP_Y) / 2
        for row, node in enumerate(layer):
            x = _MARGIN + column * (_WIDTH + _GAP_X)
            corners[node.name] = x, _MARGIN + above + row * (_HEIGHT + _GAP_Y)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
    )
    for node in nodes:
        for needed in node.needs:
            yield _edge(corners[needed], corners[node.name])
    for node in nodes:
        yield from _box(node, *corners[node.name])
    yield "</svg>"


def _edge(start: tuple[float, float], end: tuple[float, float]) -> str:
    x, y = start[0] + _WIDTH, start[1] + _HEIGHT / 2
    to_x, to_y = end[0], end[1] + _HEIGHT / 2
    bend = _GAP_X / 2
    return (
        f'<path d="M{x:g},{y:g} C{x + bend:g},{y:g} {to_x - bend:g},{to_y:g} {to_x:g},{to_y:g}" '
        f'fill="none" stroke="#888"/>'
    )


def _box(node: GraphNode, x: float, y: float) -> Iterator[str]:
    title, detail = (html.escape(truncate(safe(text), _LONGEST)) for text in (node.title, node.detail))
    whole = html.escape(safe(f"{node.title} {node.detail}: {node.state.name.lower()}"))
    yield (
        f'<g><title>{whole}</title><rect x="{x:g}" y="{y:g}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" '
        f'fill="{_FILLS[node.state]}" stroke="#666"/>'
    )
    yield f'<text x="{x + 8:g}" y="{y + 18:g}" font-weight="bold">{title}</text>'
    yield f'<text x="{x + 8:g}" y="{y + 35:g}">{detail}</text></g>'
