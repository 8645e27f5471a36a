"""The graph of a group: tasks with their counts, or the surroundings of one job; each node has its place.
Pure: rows in, nodes and edges out, for the terminal and the page alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tenuto.jobs.row import Row
from tenuto.lifecycle.states import JobState
from tenuto.monitor import shapes

MOST_NODES = 500
"""How many jobs the surroundings of one show at most."""


class Drawing(NamedTuple):
    """Nodes, layer by layer, and edges."""

    nodes: list[shapes.NodeJson]
    edges: list[shapes.Edge]


def by_task(rows: Iterable[Row]) -> Drawing:
    """One node for each task, with how many of its jobs are in which state."""
    every = list(rows)
    task_of = {row.id: row.task for row in every}
    counts: dict[str, Counter[JobState]] = {}
    edges: Counter[tuple[str, str]] = Counter()
    for row in every:
        counts.setdefault(row.task, Counter())[row.state] += 1
        for other in row.depends_on:
            if other in task_of:
                edges[task_of[other], row.task] += 1
    nodes = {task: (task.rpartition(".")[2], task, counted) for task, counted in counts.items()}
    return _drawn(nodes, edges)


def around(rows: Iterable[Row], key: str, depth: int) -> Drawing:
    """One job, and the jobs that it needs or that need it, up to a distance."""
    by_id = {row.id: row for row in rows}
    centre = next((row for row in by_id.values() if row.key == key), None)
    if centre is None:
        return Drawing([], [])
    dependents: dict[str, list[str]] = {}
    for row in by_id.values():
        for other in row.depends_on:
            dependents.setdefault(other, []).append(row.id)
    chosen = {centre.id: None}
    for step in (lambda one: by_id[one].depends_on, lambda one: dependents.get(one, ())):
        edge, seen = [centre.id], {centre.id}
        for _ in range(depth):
            edge = [other for one in edge for other in step(one) if other in by_id and other not in seen]
            seen.update(edge)
            for one in edge:
                if len(chosen) < MOST_NODES:
                    chosen[one] = None
    nodes = {
        by_id[one].key: (by_id[one].name, by_id[one].task, Counter({by_id[one].state: 1}))
        for one in by_id
        if one in chosen
    }
    edges = Counter(
        (by_id[other].key, by_id[one].key)
        for one in chosen
        for other in by_id[one].depends_on
        if other in chosen
    )
    return _drawn(nodes, edges)


def layers(nodes: Sequence[str], edges: Iterable[tuple[str, str]]) -> dict[str, int]:
    """The layer of each node: one more than the highest that it needs; a cycle of tasks is cut."""
    needs: dict[str, list[str]] = {node: [] for node in nodes}
    for source, target in edges:
        if source != target and source in needs and target in needs:
            needs[target].append(source)
    found: dict[str, int] = {}
    for start in nodes:
        stack = [(start, iter(needs[start]))]
        open_ = {start}
        while stack:
            node, rest = stack[-1]
            other = next((one for one in rest if one not in found and one not in open_), None)
            if other is None:
                stack.pop()
                open_.discard(node)
                found.setdefault(
                    node, 1 + max((found[one] for one in needs[node] if one in found), default=-1)
                )
            else:
                open_.add(other)
                stack.append((other, iter(needs[other])))
    return found


def _drawn(
    nodes: Mapping[str, tuple[str, str, Counter[JobState]]], edges: Counter[tuple[str, str]]
) -> Drawing:
    placed = layers(list(nodes), edges)
    order = _order(list(nodes), placed, edges)
    drawn: list[shapes.NodeJson] = [
        {
            "id": name,
            "label": label,
            "task": task,
            "total": counts.total(),
            "counts": {state.name.lower(): counts[state] for state in JobState if counts[state]},
            "layer": placed[name],
            "order": order[name],
        }
        for name, (label, task, counts) in nodes.items()
    ]
    drawn.sort(key=lambda node: (node["layer"], node["order"]))
    linked: list[shapes.Edge] = [
        {"from": source, "to": target, "count": count} for (source, target), count in edges.items()
    ]
    return Drawing(drawn, linked)


def _order(
    nodes: Sequence[str], placed: Mapping[str, int], edges: Iterable[tuple[str, str]]
) -> dict[str, int]:
    """The place of each node in its layer: near the middle of the jobs it needs."""
    needs: dict[str, list[str]] = {}
    for source, target in edges:
        needs.setdefault(target, []).append(source)
    order: dict[str, int] = {}
    for layer in range(max(placed.values(), default=-1) + 1):
        members = [node for node in nodes if placed[node] == layer]
        middle = {}
        for position, node in enumerate(members):
            above = [order[one] for one in needs.get(node, ()) if one in order]
            middle[node] = sum(above) / len(above) if above else float(position)
        members.sort(key=lambda node: middle[node])
        order.update({node: position for position, node in enumerate(members)})
    return order
