"""A few lines at the bottom of a terminal, drawn again and again; what a script prints goes above them.
It knows nothing of jobs.

Rich has such a display too; after the window was made narrower it leaves remains of the old lines behind,
since it counts the rows that it drew, not the rows that the terminal made of them.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, unique
from typing import ClassVar, NamedTuple, TextIO

from tenuto.jobs.text import truncate, width

ERASE_BELOW = "\x1b[J"
_RESET = "\x1b[0m"


@unique
class Style(Enum):
    """How a line looks; the value is the code that switches it on."""

    PLAIN = ""
    STRONG = "\x1b[1m"
    FAINT = "\x1b[2m"
    BAD = "\x1b[31m"


class ScreenLine(NamedTuple):
    """One line of safe text."""

    text: str
    style: Style = Style.PLAIN
    painted: str | None = None
    """The same text with colours of its own, shown where there are colours and it fits."""


class Size(NamedTuple):
    """Of a terminal, in cells."""

    columns: int
    rows: int


def size_of(stream: TextIO) -> Size:
    """The size of the terminal behind a stream; never smaller than anything could be drawn in."""
    try:
        columns, rows = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        columns, rows = 80, 24
    return Size(max(columns, 8), max(rows, 2))


def _fitted(line: ScreenLine, columns: int) -> ScreenLine:
    text = truncate(line.text, columns)
    return line if text == line.text else ScreenLine(text, line.style)


class Screen:
    """The lines at the bottom of one terminal."""

    keeps_last = False
    """The last lines stay when the display is over."""

    def __init__(
        self, stream: TextIO, *, color: bool = True, size: Callable[[TextIO], Size] = size_of
    ) -> None:
        self._stream = stream
        self._print = stream.write  # as it is now: `PrintingAbove` puts another in its place
        self._flush = stream.flush
        self._color = color
        self._size = size
        self._lock = threading.RLock()
        self._drawn: list[ScreenLine] = []
        self._drawn_for: Size | None = None
        self._gone = False

    @property
    def size(self) -> Size:
        """How much can be shown now."""
        return self._size(self._stream)

    @property
    def is_colored(self) -> bool:
        """Whether colours are shown."""
        return self._color

    def draw(self, lines: Sequence[ScreenLine]) -> None:
        """Replaces the lines; the rest that does not fit is cut."""
        with self._lock:
            size = self.size
            # Three cells stay free at the end of a line: there the terminal echoes a ^C.
            fitting = [_fitted(line, size.columns - 3) for line in lines]
            fitting = fitting[: size.rows - 1]
            if fitting == self._drawn and size == self._drawn_for:
                return
            self._write(self._erased(size) + "\n".join(map(self._styled, fitting)))
            self._drawn, self._drawn_for = fitting, size

    def print(self, text: str) -> None:
        """Prints whole lines above."""
        with self._lock:
            drawn = "\n".join(map(self._styled, self._drawn))
            self._write(f"{self._erased(self.size)}{text}{drawn}")

    def clear(self) -> None:
        """Removes the lines, and leaves the cursor where they began."""
        with self._lock:
            self._write(self._erased(self.size))
            self._drawn = []

    def _erased(self, size: Size) -> str:
        """What takes the cursor to the first of the drawn lines and removes them."""
        if not self._drawn:
            return ""
        rows = sum(max(1, -(-width(line.text) // size.columns)) for line in self._drawn)
        up = f"\x1b[{rows - 1}A" if rows > 1 else ""
        return f"{up}\r{ERASE_BELOW}"

    def _styled(self, line: ScreenLine) -> str:
        if self._color and line.painted is not None:
            return line.painted
        if not self._color or line.style is Style.PLAIN:
            return line.text
        return f"{line.style.value}{line.text}{_RESET}"

    def _write(self, text: str) -> None:
        if self._gone or not text:
            return
        try:
            self._print(text)
            self._flush()
        except (OSError, ValueError):  # the window was closed; the jobs continue
            self._gone = True
            let_go_of(self._stream)


def let_go_of(stream: TextIO) -> None:
    """Have nothing more written to a closed window: Python would try at its end, and exit with 120."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class Above:
    """Writes for a standard stream while a screen is shown: printed text goes above the lines."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._begun = ""
        self._lock = threading.RLock()

    def write(self, text: str) -> int:
        """Keeps the unfinished line; of a line written over, as bars are, only the last state."""
        with self._lock:
            if "\r" in self._begun and text[:1] not in ("\r", "\n"):
                self._begun = ""  # another writer; the bar is written again with its next step
            whole, end, begun = (self._begun + text).rpartition("\n")
            self._begun = begun
        if end:
            lines = [line.rstrip("\r").rpartition("\r")[2] for line in whole.split("\n")]
            self._screen.print("\n".join(lines) + end)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """As of a file."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Shows the unfinished line: it may be a question to a person; but no unfinished bar."""
        with self._lock:
            if "\r" in self._begun:
                return
            begun, self._begun = self._begun, ""
        if begun:
            self._screen.print(begun + "\n")

    def end(self) -> None:
        """The screen prints the last line, which the script did not end."""
        with self._lock:
            begun, self._begun = self._begun.rstrip("\r").rpartition("\r")[2], ""
        if begun:
            self._screen.print(begun + "\n")


class PrintingAbove:
    """Has `sys.stdout` and `sys.stderr` print above a screen, as far as they lead to a terminal.

    The streams stay the objects that they are, and only write in another way: a handler of `logging` keeps
    the stream that it was made with. Text written into another stream was drawn over, and moved the lines.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._changed: list[tuple[TextIO, Above]] = []

    def begin(self) -> None:
        """From now on; a process that the script forks prints as ever, since it has no thread that draws."""
        if not _Forks.are_heard:
            os.register_at_fork(after_in_child=_Forks.print_as_ever)
            _Forks.are_heard = True
        _Forks.printing_above.append(self)
        for stream in dict.fromkeys((sys.stdout, sys.stderr)):
            known = [one for one, _ in self._changed]
            if stream is None or stream in known or not stream.isatty():
                continue
            above = Above(self._screen)
            with contextlib.suppress(AttributeError):  # an object of another program's, which stays as it is
                for name in _WRITING:
                    setattr(stream, name, getattr(above, name))
                self._changed.append((stream, above))

    def end(self) -> None:
        """No more."""
        if self in _Forks.printing_above:
            _Forks.printing_above.remove(self)
        for above in self.restore():
            above.end()

    def restore(self) -> list[Above]:
        """Have the streams write as they did before; what they have not shown yet is left to the caller."""
        changed, self._changed = self._changed, []
        for stream, _ in changed:
            for name in _WRITING:
                with contextlib.suppress(AttributeError):
                    delattr(stream, name)
        return [above for _, above in changed]


class _Forks:
    """The streams that a forked process must not find changed: a lock of theirs may stay held there."""

    are_heard = False
    printing_above: ClassVar[list[PrintingAbove]] = []

    @classmethod
    def print_as_ever(cls) -> None:
        for one in cls.printing_above:
            one.restore()
        cls.printing_above.clear()


_WRITING = ("write", "writelines", "flush")
