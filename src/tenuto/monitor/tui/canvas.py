"""The one widget of the terminal: lines of spans as Textual's strips, and the words of styles as colours.
Only lines that changed are drawn again. Every segment has a style, since `NO_COLOR` is a filter over styles.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tenuto.jobs.text import safe
from tenuto.monitor.tui.cells import Line

STYLES = {
    "title": Style(bold=True),
    "head": Style(bold=True, dim=True),
    "soft": Style(dim=True),
    "key": Style(color="cyan"),
    "tag": Style(color="blue"),
    "cursor": Style(bold=True),
    "chosen": Style(reverse=True),
    "faint": Style(underline=True),
    "marked": Style(color="magenta", bold=True),
    "alarm": Style(color="magenta", bold=True),
    "lit": Style(bold=True),
    "done": Style(color="green"),
    "running": Style(color="cyan", bold=True),
    "error": Style(color="red"),
    "waiting": Style(color="yellow"),
    "ready": Style(color="yellow"),
    "scheduled": Style(color="blue"),
    "unscheduled": Style(dim=True),
}
"""The words of a style; the colours are those of the user's own palette."""
_PLAIN = Style()


@lru_cache(maxsize=512)
def style_of(words: str) -> Style:
    """The style of some words; unknown ones say nothing."""
    style = _PLAIN
    for word in words.split():
        style += STYLES.get(word, _PLAIN)
    return style


class Canvas(Widget):
    """The whole window."""

    DEFAULT_CSS = "Canvas { width: 100%; height: 100%; }"

    def __init__(self) -> None:
        super().__init__()
        self._lines: Sequence[Line] = ()

    def show(self, lines: Sequence[Line]) -> None:
        """Draw lines, those that are not on the screen yet."""
        before, self._lines = self._lines, lines
        changed = [
            Region(0, row, self.size.width, 1)
            for row in range(max(len(lines), len(before)))
            if row >= len(lines) or row >= len(before) or lines[row] != before[row]
        ]
        if changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        room = self.size.width
        content = self._lines[y] if y < len(self._lines) else []
        # `safe` again, whatever a view forgot: nothing but printable text reaches the terminal.
        segments = [Segment(safe(one.text), style_of(one.style)) for one in content]
        return Strip(segments).adjust_cell_length(room, _PLAIN)
