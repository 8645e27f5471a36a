"""Lines of a terminal as spans of styled text: made harmless, cut, filled, put side by side.
Pure: it knows neither Textual nor jobs. Every text of a span has passed `safe`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tenuto.jobs.drawing import filled_bar
from tenuto.jobs.text import fit, safe, truncate, width


class Span(NamedTuple):
    """A text of one style; a style is words of `app.STYLES`, divided by spaces."""

    text: str
    style: str = ""


Line = list[Span]


def span(value: object, style: str = "") -> Span:
    """Any value as harmless text of one line."""
    return Span(safe(value if isinstance(value, str) else str(value)), style)


def line(*parts: Span | str) -> Line:
    """A line of spans; a plain text is made harmless."""
    return [part if isinstance(part, Span) else span(part) for part in parts]


def joined(letters: Iterable[tuple[str, str]]) -> Line:
    """Letters with their styles, as a span for each run of one style."""
    content: Line = []
    for letter, style in letters:
        if content and content[-1].style == style:
            content[-1] = Span(content[-1].text + letter, style)
        else:
            content.append(Span(letter, style))
    return content


def cells(content: Line) -> int:
    """How many cells a line takes."""
    return sum(width(one.text) for one in content)


def text_of(content: Line) -> str:
    """A line without its styles."""
    return "".join(one.text for one in content)


def fitted(content: Line, room: int) -> Line:
    """A line as exactly so many cells: cut, or filled with spaces."""
    left = max(room, 0)
    done: Line = []
    for one in content:
        size = width(one.text)
        if size > left:
            done.append(Span(fit(one.text, left), one.style))
            return done
        done.append(one)
        left -= size
    if left:
        done.append(Span(" " * left))
    return done


def restyled(content: Line, style: str) -> Line:
    """A line with one more style on all of it."""
    return [Span(one.text, f"{one.style} {style}".strip()) for one in content]


def spread(left: Line, right: Line, room: int) -> Line:
    """One line at the left edge and one at the right; the left one is cut first."""
    size = cells(right)
    if size >= room:
        return fitted(right, room)
    return [*fitted(left, room - size), *right]


def rule(title: str | Line, room: int, style: str = "soft") -> Line:
    """A horizontal rule with a title: ``─ now ──────``."""
    named = title if isinstance(title, list) else [span(title, "title")]
    if not text_of(named):
        return [Span("─" * max(room, 0), style)]
    begun = [Span("─ ", style), *fitted(named, min(cells(named), max(room - 3, 0))), Span(" ", style)]
    return fitted([*begun, Span("─" * max(room - cells(begun), 0), style)], room)


def bar(fraction: float | None, room: int, style: str = "") -> Line:
    """A fraction as a bar of exactly so many cells: ``▕████▌   ▏``."""
    inside = room - 2
    if inside < 1:
        return [Span(" " * max(room, 0))]
    return [Span("▕", "soft"), Span(filled_bar(fraction or 0.0, inside), style), Span("▏", "soft")]


def wrapped(text: str, room: int) -> list[str]:
    """A harmless text in lines of so many cells, broken at spaces where there are any."""
    lines: list[str] = []
    current = ""
    for word in text.split(" "):
        joined = f"{current} {word}" if current else word
        if width(joined) <= room:
            current = joined
            continue
        if current:
            lines.append(current)
        current = word
        while width(current) > room > 0:
            head = truncate(current, room, "") or current[:1]
            lines.append(head)
            current = current[len(head) :]
    return [*lines, current]


def beside(panes: Sequence[tuple[Sequence[Line], int]], height: int, divider: str = "│") -> list[Line]:
    """Panes side by side, each of its width, with a divider between them."""
    drawn: list[Line] = []
    for row in range(height):
        content: Line = []
        for place, (lines, room) in enumerate(panes):
            shown = lines[row] if row < len(lines) else []
            if place:
                content.append(Span(_joint(content, shown) if divider == "│" else divider, "soft"))
            content += fitted(shown, room)
        drawn.append(content)
    return drawn


def _joint(left: Line, right: Line) -> str:
    """The divider between two lines, joined to the rules beside it."""
    ends = bool(left) and left[-1].text.endswith("─")
    begins = bool(right) and right[0].text.startswith("─")
    return {(True, True): "┼", (True, False): "┤", (False, True): "├"}.get((ends, begins), "│")


def framed(lines: Iterable[Line], room: int, height: int) -> list[Line]:
    """Exactly so many lines of exactly so many cells."""
    shown = [fitted(one, room) for one, _ in zip(lines, range(max(height, 0)), strict=False)]
    return shown + [[Span(" " * max(room, 0))] for _ in range(height - len(shown))]


def shares(wanted: Sequence[int], room: int) -> list[int]:
    """How many rows each part gets: the small ones all they want, the large ones share the rest."""
    given = [0] * len(wanted)
    left = max(room, 0)
    while left > 0:
        hungry = [place for place, want in enumerate(wanted) if given[place] < want]
        if not hungry:
            break
        for place in hungry[:left]:
            given[place] += 1
        left -= min(len(hungry), left)
    return given
