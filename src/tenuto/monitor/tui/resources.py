"""Resources: tokens, services of runs, queue and nodes of the service, energy, what a person may clean up.
Panels that no open door has are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from tenuto.errors import NotFound
from tenuto.jobs.text import UNKNOWN, duration, size_text
from tenuto.monitor import shapes
from tenuto.monitor.state_provider import StateProvider
from tenuto.monitor.tui.cells import Line, Span, fitted, rule, span
from tenuto.monitor.tui.sparkline import units, waiting_words
from tenuto.monitor.tui.text import (
    clock,
    energy,
    key_group_name,
    key_id,
    key_name,
    number,
    short_task,
)
from tenuto.monitor.tui.view import Host, View

T = TypeVar("T")
_WIDEST = 44
"""Cells of a column that could take more: its neighbours stay near."""
_NODE_STATES = {"away": ("✗", "error"), "idle": ("·", "soft")}
_MOST = 8


class ResourcesAnswers(NamedTuple):
    """The answer; None: no open door has it."""

    tokens: shapes.TokensJson | None
    groups: shapes.Groups
    queue: shapes.QueueJson | None
    nodes: shapes.Nodes | None
    carbon: shapes.Carbon | None
    cleanup: shapes.Cleanup | None


class ResourcesView(View):
    """Panels under each other; arrows scroll."""

    name = "resources"
    hints = "↑ ↓ scroll  K kill the unowned  Esc back"
    period_s = 2.0

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._known: ResourcesAnswers | None = None
        self._top = 0
        self._height = 1

    def ask(self, provider: StateProvider) -> ResourcesAnswers:
        return ResourcesAnswers(
            _if_any(provider.tokens),
            provider.groups(limit=50),
            _if_any(provider.queue),
            _if_any(provider.nodes),
            _if_any(provider.carbon),
            _if_any(provider.cleanup),
        )

    def take(self, answer: ResourcesAnswers) -> None:
        self._known = answer

    def heading(self) -> Line:
        return [span("resources", "title")]

    def draw(self, room: int, height: int) -> list[Line]:
        if self._known is None:
            return [[span(" …", "soft")]]
        lines = list(self._panels(self._known, room))
        self._height = max(height, 1)
        self._top = min(max(self._top, 0), max(len(lines) - height, 0))
        return lines[self._top : self._top + height]

    def jobs(self) -> Sequence[shapes.Job]:
        cleanup = self._known.cleanup if self._known else None
        return cleanup["unowned"] if cleanup else []

    def press(self, key: str) -> bool:
        steps = {"down": 1, "j": 1, "up": -1, "k": -1, "pagedown": self._height, "pageup": -self._height}
        steps |= {"g": -(10**6), "home": -(10**6), "G": 10**6}
        if key not in steps:
            return False
        self._top += steps[key]
        return True

    def _panels(self, known: ResourcesAnswers, room: int) -> Iterator[Line]:
        if known.tokens is not None:
            yield from _tokens(known.tokens, room)
        yield from _services(known.groups, room)
        if known.queue is not None:
            yield from _queue(known.queue, room)
        if known.nodes is not None:
            yield from _nodes(known.nodes, room)
        if known.carbon is not None:
            yield from _carbon(known.carbon, room)
        if known.cleanup is not None:
            yield from _cleanup(known.cleanup, room)


def _if_any(question: Callable[[], T]) -> T | None:
    try:
        return question()
    except NotFound:
        return None


def _columns(room: int, *parts: tuple[Any, int]) -> Line:
    """Values, each in its cells; the last one takes the rest."""
    content: Line = [Span(" ")]
    for value, cells in parts[:-1]:
        shown = value if isinstance(value, list) else [span(_text(value))]
        content += [*fitted(shown, cells), Span(" ")]
    last = parts[-1][0]
    return fitted([*content, *(last if isinstance(last, list) else [span(_text(last))])], room)


def _head(room: int, *parts: tuple[str, int]) -> Line:
    return [Span(one.text, "head") for one in _columns(room, *parts)]


def _text(value: Any) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, list):
        return ", ".join(str(one) for one in value)
    return str(value)


def _tokens(found: shapes.TokensJson, room: int) -> Iterator[Line]:
    yield rule("tokens", room)
    if not found["tokens"]:
        yield [span(" no job asks for a token", "soft")]
        return
    wide = min(room // 3, _WIDEST)
    yield _head(room, ("TOKEN", 14), ("UNITS", 14), ("HELD BY", wide), ("WAITING", 0))
    for token in found["tokens"]:
        held = [key_id(one["key"]) for one in token["holders"] if one["key"]]
        more = f" and {len(held) - _MOST} more" if len(held) > _MOST else ""
        waiting = waiting_words(token, found["now"]) or UNKNOWN
        name = [span(token["name"], "title")]
        yield _columns(
            room, (name, 14), (units(token), 14), (" ".join(held[:_MOST]) + more, wide), (waiting, 0)
        )


def _services(found: shapes.Groups, room: int) -> Iterator[Line]:
    rows = [(one, group) for group in found["groups"] for one in group["services"]]
    yield rule("services of runs", room)
    if not rows:
        yield [span(" no run has a service", "soft")]
        return
    wide = min(room // 3, _WIDEST)
    yield _head(room, ("SERVICE", 14), ("RUN", 18), ("URL", wide), ("STATE", 0))
    for one, group in rows:
        state = f"{one['state']}  {one['message'] or ''}"
        yield _columns(
            room,
            (one["id"], 14),
            (key_group_name(group["group"], found["now"]), 18),
            (one["url"] or "", wide),
            (state, 0),
        )


def _queue(found: shapes.QueueJson, room: int) -> Iterator[Line]:
    yield rule("queue", room)
    yield _head(room, ("SERVICE", 14), ("QUEUED", 7), ("RUNNING", 8), ("MOST", 6), ("OLDEST WAITS", 0))
    for one in found["services"]:
        oldest = one.get("oldest_s")
        waits = duration(oldest) if isinstance(oldest, int | float) else UNKNOWN
        numbers = ((one.get("queued"), 7), (one.get("running"), 8), (one.get("max_runs"), 6))
        yield _columns(room, (one.get("name"), 14), *numbers, (waits, 0))
    yield _head(room, ("USER", 14), ("QUEUED", 7), ("RUNNING", 8), ("QUOTA", 6), ("SERVICE", 0))
    for one in found["users"]:
        numbers = ((one.get("queued"), 7), (one.get("running"), 8), (one.get("quota"), 6))
        yield _columns(room, (one.get("user"), 14), *numbers, (one.get("service"), 0))


def _nodes(found: shapes.Nodes, room: int) -> Iterator[Line]:
    yield rule("nodes", room)
    if not found["nodes"]:
        yield [span(" no node is registered", "soft")]
        return
    wide = min(max(room - 60, 16), _WIDEST)
    yield _head(
        room,
        ("NODE", wide),
        ("STATE", 8),
        ("LOAD", 5),
        ("JOBS", 6),
        ("SEEN", 9),
        ("FAILED", 6),
        ("SERVICES", 0),
    )
    for one in found["nodes"]:
        load, seen = one.get("load"), one.get("seen")
        state = str(one.get("state"))
        glyph, style = _NODE_STATES.get(state, ("▶", "running"))
        shown = [span(f"{glyph} {state}", style)]
        yield _columns(
            room,
            (one.get("url"), wide),
            (shown, 8),
            (f"{load:.0%}" if isinstance(load, int | float) else UNKNOWN, 5),
            (f"{_text(one.get('running'))}/{_text(one.get('slots'))}", 6),
            (clock(seen) if isinstance(seen, str) else UNKNOWN, 9),
            (one.get("failures"), 6),
            (_text(one.get("services")), 0),
        )


def _carbon(found: shapes.Carbon, room: int) -> Iterator[Line]:
    measured = [one for one in found["groups"] if one.get("energy_kwh") is not None]
    if not measured and not found["tasks"]:
        return
    yield rule("energy", room)
    for one in measured:
        co2 = one.get("co2_kg")
        grams = f"{co2 * 1000:.3g} g CO2" if isinstance(co2, int | float) else ""
        name = key_group_name(str(one["group"]), found["now"])
        region = one.get("region") or ""
        seen = f"{number(one.get('measured'))} of {number(one.get('of'))} jobs measured"
        yield _columns(
            room, (name, 20), (energy(one["energy_kwh"]), 9), (grams, 12), (f"{seen}  {region}", 0)
        )
    for one in found["tasks"]:
        jobs = f"{number(one.get('jobs'))} jobs"
        yield _columns(
            room, (f"  {short_task(str(one['task']))}", 20), (energy(one.get("energy_kwh")), 9), (jobs, 0)
        )


def _cleanup(found: shapes.Cleanup, room: int) -> Iterator[Line]:
    yield rule("clean-up", room)
    unowned = found["unowned"]
    words = "1 running job belongs" if len(unowned) == 1 else f"{len(unowned):,} running jobs belong"
    names = "  ".join(key_name(job["key"]) for job in unowned[:_MOST])
    yield [span(f" {words} to no live run  ", "alarm" if unowned else ""), span(names)]
    orphans = found["orphans"]
    yield [span(f" {number(orphans['jobs'])} finished jobs belong to no run, {size_text(orphans['bytes'])}")]
    if found["bad_lines"]:
        yield [span(f" {number(found['bad_lines'])} lines of journals could not be read", "alarm")]
    for alarm in found["alarms"]:
        yield [
            Span(" ! ", "alarm"),
            span(f"{key_name(alarm['key'])}  " if alarm["key"] else ""),
            span(alarm["text"]),
        ]
