"""The sparkline of a group, its jobs by state over time, drawn in braille; and tokens as bars.
Pure: answers of the provider in, lines out.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.jobs.drawing import Braille
from tenuto.jobs.text import duration
from tenuto.monitor import shapes
from tenuto.monitor.tui.cells import Line, Span, span
from tenuto.monitor.tui.text import COUNTED, clock, glyph, key_id, number, seconds_between

_STACKED = ("done", "error", "running", "scheduled", "ready", "waiting", "unscheduled")


def sparkline(history: shapes.HistoryJson | None, room: int, height: int) -> list[Line]:
    """Jobs by state, stacked, from the first moment to the last; the colour is the state of most dots."""
    if height <= 0:
        return []
    if history is None or not history["at"]:
        return [[span(" no past is known", "soft")]]
    rows = max(height - 1, 1)
    across = max(room - 10, 4)
    points = _sampled(history, across * 2)
    most = max((sum(point.values()) for point in points), default=0) or 1
    lines = _stacked(points, across, rows, most)
    lines[0].append(span(f" {number(most)}", "soft"))
    last = {state: history["counts"].get(state, [0])[-1] for state in COUNTED}
    legend: Line = [Span(" ")]
    for state, count in last.items():
        if count:
            legend += [span(f"{glyph(state)} {number(count)}", state), Span("  ")]
    took = seconds_between(history["at"][0], history["at"][-1])
    legend.append(span(f"since {clock(history['at'][0])}, {duration(took)}", "soft"))
    return [*lines[: height - 1], legend] if height > 1 else [legend]


def _sampled(history: shapes.HistoryJson, count: int) -> list[dict[str, int]]:
    size = len(history["at"])
    places = [min(place * size // count, size - 1) for place in range(count)]
    return [
        {state: history["counts"][state][place] for state in _STACKED if state in history["counts"]}
        for place in places
    ]


def _stacked(points: Sequence[dict[str, int]], across: int, rows: int, most: int) -> list[Line]:
    """The states of every point one above the other."""
    dots = Braille(across, rows)
    for x, point in enumerate(points):
        for y in range(dots.down):
            if state := _state_at(point, (dots.down - y - 0.5) / dots.down * most):
                dots.dot(x, y, state)
    return [[Span(" "), *(Span(*cell) for cell in row)] for row in dots.rows()]


def _state_at(point: dict[str, int], level: float) -> str:
    height = 0
    for state in _STACKED:
        height += point.get(state, 0)
        if level < height:
            return state
    return ""


def tokens(found: Sequence[shapes.Token], room: int, now: str) -> list[Line]:
    """``gpu ██ 2 of 2   1902e8bd 3414b16c   9 wait, oldest 4m12s``."""
    if not found:
        return [[span(" no job asks for a token", "soft")]]
    wide = min(max(len(token["name"]) for token in found), 12)
    return [_token(token, wide, room, now) for token in found]


def units(token: shapes.Token) -> Line:
    """The units of a token as blocks, and in numbers."""
    capacity = token["capacity"]
    blocks = "█" * min(token["held"], 8) + "░" * min(max((capacity or 0) - token["held"], 0), 8)
    return [
        span(f"{blocks} ", "running"),
        span(f"{token['held']} of {capacity if capacity is not None else '?'}"),
    ]


def _token(token: shapes.Token, wide: int, room: int, now: str) -> Line:
    held = " ".join(key_id(one["key"]) for one in token["holders"] if one["key"])
    content = [Span(" "), span(token["name"].ljust(wide)[:wide], "title"), Span(" "), *units(token)]
    return [*content, span(f"   {held}"), span(f"   {waiting_words(token, now)}", "waiting")]


def waiting_words(token: shapes.Token, now: str) -> str:
    """``9, oldest 4m12s``."""
    since = sorted(one["since"] for one in token["waiting"] if one["since"])
    oldest = f", oldest {duration(seconds_between(since[0], now))}" if since else ""
    return f"{len(token['waiting'])} wait{oldest}" if token["waiting"] else ""
