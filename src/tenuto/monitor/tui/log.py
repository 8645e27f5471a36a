"""The log of a job as the terminal holds it: the last lines, following the output, bars as they ended.
Bounded: at most 5,000 lines; the provider gives the rest on request.
"""

from __future__ import annotations

from typing import Any

from tenuto.jobs.text import safe_lines, size_text
from tenuto.monitor import shapes
from tenuto.monitor.state_provider import StateProvider
from tenuto.monitor.tui.cells import Line, Span, span
from tenuto.monitor.tui.text import number

TAIL_BYTES = 65_536
MOST_LINES = 5_000
LONGEST = 4_000
LONGEST_REST = 256 * 1024


def settled(text: str) -> str:
    """A line as a terminal would leave it: after a carriage return only the last state; long ones cut."""
    if "\r" in text:
        text = next((part for part in reversed(text.split("\r")) if part), "")
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]} … ({len(text):,} characters)"
    return safe_lines(text).replace("\t", "    ")


class LogPane:
    """The lines of one stream of one job."""

    def __init__(self) -> None:
        self.key: str | None = None
        self.stream = "out"
        self._may_turn = False
        """The stream was not chosen by a person."""
        self.follows = True
        self.has_ended = False
        self._lines: list[str] = []
        self._first = 1
        self._rest = ""
        self._attempt = 0
        self._start = 0
        self._next: int | None = None
        self._top = 0
        self._height = 1
        self._from_start = False
        self._sought = ""
        self._match: int | None = None
        """The number of the line that the search is at."""
        self.trouble = ""

    def begin(self, job: shapes.Job | None) -> None:
        """The log of another job: of a failed one its errors, or what it printed if there are none."""
        has_failed = job is not None and job["state"] == "error"
        self.show(job["key"] if job is not None else None, "err" if has_failed else "out")
        self._may_turn = has_failed

    def show(self, key: str | None, stream: str | None = None) -> None:
        """Another job, or another stream of it."""
        stream = stream or self.stream
        if (key, stream) == (self.key, self.stream):
            return
        self.key, self.stream = key, stream
        self._forget()
        self.follows = True

    def _forget(self) -> None:
        self._lines, self._rest, self._first = [], "", 1
        self._next = None
        self._top = 0
        self.has_ended = False
        self._from_start = False
        self._match = None
        self.trouble = ""

    @property
    def is_live(self) -> bool:
        """True if more may come."""
        return self.key is not None and not self.has_ended

    # The provider

    def ask(self, provider: StateProvider) -> Any:
        """The new lines; called in a thread."""
        key, stream, start = self.key, self.stream, self._next
        if key is None:
            return None
        if start is not None:
            return provider.log(key, stream, start=start)
        if self._from_start:
            return provider.log(key, stream, start=0)
        return provider.log(key, stream, tail=TAIL_BYTES)

    def take(self, part: shapes.LogPart | None) -> None:
        """The new text; a log that was replaced by a new attempt begins again."""
        if part is None or part["key"] != self.key or part["stream"] != self.stream:
            return
        if self._may_turn and not part["next"] and part["ended"]:
            self.show(self.key, "out")
            self._may_turn = False
            return
        is_next = self._next is not None and part["attempt"] == self._attempt and part["offset"] == self._next
        if self._next is not None and not is_next:
            follows = self.follows
            self._forget()
            self.follows = follows
            if part["offset"] != 0:
                return
        if self._next is None:
            self._start, self._attempt = part["offset"], part["attempt"]
        self._next, self.has_ended = part["next"], part["ended"]
        self._add(part["text"])

    def _add(self, text: str) -> None:
        pieces = (self._rest + text).replace("\r\n", "\n").split("\n")
        self._rest = pieces.pop()[-LONGEST_REST:]
        self._lines += [settled(piece) for piece in pieces[-MOST_LINES:]]
        self._first += max(len(pieces) - MOST_LINES, 0)
        extra = len(self._lines) - MOST_LINES
        if extra > 0:
            del self._lines[:extra]
            self._first += extra
            self._top = max(self._top - extra, 0)

    # Looking

    @property
    def count(self) -> int:
        """How many lines are held."""
        return len(self._lines) + (1 if self._rest else 0)

    def status(self) -> str:
        """``1,204 lines, following``."""
        word = "ended" if self.has_ended else "following" if self.follows else "not following"
        lines = self._first - 1 + self.count
        part = f" of the last {size_text((self._next or 0) - self._start)}" if self._start else ""
        sought = f", {self._matches()}" if self._sought else ""
        return self.trouble or f"{number(lines)} {'line' if lines == 1 else 'lines'}{part}, {word}{sought}"

    def _matches(self) -> str:
        """``/loss/ 3 of 16``."""
        found = self._found()
        place = found.index(self._match) + 1 if self._match in found else 0
        return f"/{safe_lines(self._sought)}/ {place} of {len(found)}"

    def _found(self) -> list[int]:
        """The numbers of the lines that hold the text that is sought; capital letters are no difference."""
        sought = self._sought.casefold()
        return [self._first + place for place in range(self.count) if sought in self._line(place).casefold()]

    def _line(self, place: int) -> str:
        return self._lines[place] if place < len(self._lines) else settled(self._rest)

    def search(self, text: str) -> bool:
        """Go to the last line with a text; an empty one ends the search. False if no line here has it."""
        self._sought, self._match = text, None
        return not text or self._step(-1)

    def _step(self, step: int) -> bool:
        """To the next line with the text, or to the one before; from the last to the first."""
        found = self._found() if self._sought else []
        if not found:
            return False
        if self._match is None:
            self._match = found[-1] if step < 0 else found[0]
        elif step > 0:
            self._match = next((line for line in found if line > self._match), found[0])
        else:
            self._match = next((line for line in reversed(found) if line < self._match), found[-1])
        place = self._match - self._first
        if not self._top <= place < self._top + self._height:
            self._top = max(place - self._height // 2, 0)
        self.follows = False
        return True

    def draw(self, room: int, height: int) -> list[Line]:
        """The lines in sight, with their numbers where they are known."""
        self._height = max(height, 1)
        last = max(self.count - self._height, 0)
        self._top = last if self.follows else min(self._top, last)
        has_numbers = not self._start and room > 30
        digits = len(str(self._first + self.count)) + 1
        drawn: list[Line] = []
        for place in range(self._top, min(self._top + height, self.count)):
            text = self._line(place)
            mark = f"{self._first + place:>{digits}} " if has_numbers else " "
            style = "error" if _looks_bad(text) else ""
            if self._sought and self._sought.casefold() in text.casefold():
                style += " chosen" if self._first + place == self._match else " lit"
            drawn.append([Span(mark, "soft"), span(text, style.strip())])
        return drawn

    def press(self, key: str) -> bool:
        """Scroll, follow, change the stream; True if the key does."""
        steps = {"down": 1, "j": 1, "up": -1, "k": -1, "pagedown": self._height, "pageup": -self._height}
        if key in steps:
            self._scroll(self._top + steps[key])
        elif key in ("g", "home"):
            self._scroll(0)
            if self._start and not self._from_start:
                self._forget()
                self._from_start, self.follows = True, False
        elif key == "G":
            self._scroll(self.count)
        elif key == "F":
            self.follows = not self.follows
        elif key in ("n", "N") and self._sought:
            self._step(1 if key == "n" else -1)
        elif key == "e":
            self._may_turn = False
            self.show(self.key, "err" if self.stream == "out" else "out")
        else:
            return False
        return True

    def _scroll(self, top: int) -> None:
        last = max(self.count - self._height, 0)
        self._top = min(max(top, 0), last)
        self.follows = top >= last


def _looks_bad(text: str) -> bool:
    return text.startswith(("Traceback", "ERROR", "CRITICAL", "FATAL")) or "Error: " in text
