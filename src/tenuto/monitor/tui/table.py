"""A list of any length of which only a window of rows is held: its cursor, its rows in sight, its columns.
Pure: it draws rows that a view fetched, and says which window it wants next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from tenuto.jobs.text import safe, truncate, width
from tenuto.monitor.tui.cells import Line, Span, fitted, restyled

WINDOW = 200
"""How many rows are asked for at a time."""
GAP = 1

R = TypeVar("R")


class TableColumn(NamedTuple, Generic[R]):
    """A column of a table."""

    label: str
    room: int
    text: Callable[[R], str]
    right: bool = False
    rank: int = 0
    """In a narrow window the column of the highest rank is left out first; columns of rank 0 stay."""
    grows: bool = False
    """True if the column takes the cells that are left; `room` is the least it needs."""
    style: Callable[[R], str] = lambda row: ""
    cut: Callable[[R, int], Line] | None = None
    """Draws a cell of exactly so many cells, in place of `text`."""
    sort: str = ""
    """The field that rows are sorted by."""


def placed(columns: Sequence[TableColumn[R]], room: int) -> list[tuple[TableColumn[R], int]]:
    """The columns that have room, each with its cells."""
    kept = list(columns)
    while len(kept) > 1 and sum(one.room + GAP for one in kept) - GAP > room and max(c.rank for c in kept):
        worst = max(range(len(kept)), key=lambda place: (kept[place].rank, place))
        del kept[worst]
    left = max(room - sum(one.room + GAP for one in kept) + GAP, 0)
    growing = [one for one in kept if one.grows]
    extra = left // len(growing) if growing else 0
    return [(one, one.room + (extra if one.grows else 0)) for one in kept]


def header(columns: Sequence[tuple[TableColumn[R], int]], sort: str = "") -> Line:
    """The labels of columns; the column of the order has a sign."""
    name, mark = sort.removeprefix("-"), "▼" if sort.startswith("-") else "▲"
    content: Line = []
    for place, (column, room) in enumerate(columns):
        label = safe(column.label)
        if name and name == column.sort:
            label = truncate(label, room - 1) + mark
        shown = truncate(label, room)
        blank = " " * (room - width(shown))
        content.append(
            Span((blank + shown if column.right else shown + blank) + _gap(place, columns), "head")
        )
    return content


def row_line(columns: Sequence[tuple[TableColumn[R], int]], row: R) -> Line:
    """One row in its columns."""
    content: Line = []
    for place, (column, room) in enumerate(columns):
        if column.cut is not None:
            content += fitted(column.cut(row, room), room)
            content.append(Span(_gap(place, columns)))
            continue
        shown = truncate(safe(column.text(row)), room)
        blank = " " * (room - width(shown))
        cell = blank + shown if column.right else shown + blank
        content.append(Span(cell + _gap(place, columns), column.style(row)))
    return content


def _gap(place: int, columns: Sequence[object]) -> str:
    return " " * GAP if place < len(columns) - 1 else ""


class Listing(Generic[R]):
    """The cursor and the window of a list."""

    def __init__(self, identity: Callable[[R], str] = str) -> None:
        self._identity = identity
        self.cursor = 0
        self.top = 0
        self.count = 0
        self.offset = 0
        self.rows: Sequence[R] = ()
        self._page = 10
        self._chosen: str | None = None

    def take(self, rows: Sequence[R], count: int, offset: int = 0) -> None:
        """A new window; the cursor stays on its row, also where others came before it."""
        self.rows, self.count, self.offset = rows, count, offset
        if self._chosen is not None and self.row(self.cursor) is not None:
            for place, row in enumerate(rows):
                if self._identity(row) == self._chosen:
                    moved = offset + place - self.cursor
                    self.cursor += moved
                    self.top = max(self.top + moved, 0)
                    break
        self._choose(self.cursor)

    def row(self, index: int) -> R | None:
        """A row of the window; None if it is not held."""
        place = index - self.offset
        return self.rows[place] if 0 <= place < len(self.rows) else None

    @property
    def chosen(self) -> R | None:
        """The row under the cursor."""
        return self.row(self.cursor)

    def press(self, key: str) -> bool:
        """Move the cursor; True if the key moves it."""
        steps = {"down": 1, "j": 1, "up": -1, "k": -1, "pagedown": self._page, "pageup": -self._page}
        if key in steps:
            self._choose(self.cursor + steps[key])
        elif key in ("g", "home"):
            self._choose(0)
        elif key == "G":
            self._choose(self.count - 1)
        else:
            return False
        return True

    def reset(self) -> None:
        """Go to the first row, whatever that will be."""
        self.cursor = self.top = 0
        self._chosen = None

    def _choose(self, index: int) -> None:
        self.cursor = min(max(index, 0), max(self.count - 1, 0))
        row = self.row(self.cursor)
        self._chosen = self._identity(row) if row is not None else None

    def wanted(self) -> int:
        """The offset of the window that holds the visible rows, with room on both sides."""
        has_all = self.offset <= self.top and (
            self.offset + len(self.rows) >= min(self.top + self._page + 1, self.count)
        )
        if has_all and (self.rows or not self.count):
            return self.offset
        return max(self.top - WINDOW // 3, 0)

    @property
    def is_outside(self) -> bool:
        """True if rows in sight are not held."""
        return self.wanted() != self.offset

    def visible(self, height: int) -> range:
        """The rows in sight of so many lines; the cursor is among them."""
        self._page = max(height, 1)
        if self.cursor < self.top:
            self.top = self.cursor
        elif self.cursor >= self.top + self._page:
            self.top = self.cursor - self._page + 1
        self.top = min(self.top, max(self.count - self._page, 0))
        return range(self.top, min(self.top + max(height, 0), self.count))


def pointed(content: Line, room: int, *, is_cursor: bool, has_focus: bool = True, mark: str = " ") -> Line:
    """A row with its place for the cursor in front."""
    if not is_cursor:
        return fitted([Span(mark, "marked" if mark != " " else ""), *content], room)
    drawn = [Span(">" if mark == " " else mark, "cursor"), *content]
    if has_focus:
        return [Span(one.text, "chosen") for one in fitted(drawn, room)]
    return restyled(fitted(drawn, room), "faint")
