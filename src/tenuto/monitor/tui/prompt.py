"""The line in which a person writes a filter, a text to search or a code; an error points at the character.
It reads a filter as the provider does, and hands it over when it can be read.
"""

from __future__ import annotations

from collections.abc import Callable

from tenuto.errors import FilterError
from tenuto.jobs.query import read_question
from tenuto.jobs.text import safe, width
from tenuto.monitor.tui.cells import Line, Span, cells, span
from tenuto.monitor.tui.view import Host, View

MOST_CHARACTERS = 1_000


class Prompt(View):
    """A line of text: Enter takes it, Esc leaves it as it was."""

    name = "prompt"
    hints = "Enter filter  Esc leave  (state=error and lr<0.05)"
    is_dialog = True

    def __init__(self, host: Host, text: str, accept: Callable[[str], object], label: str = "filter") -> None:
        super().__init__(host)
        self._label = f" {label}: "
        self._is_filter = label == "filter"
        if not self._is_filter:
            self.hints = f"Enter {label}  Esc leave"
        self._text = text
        self._place = len(text)
        self._accept = accept
        self._error: FilterError | None = None

    def draw(self, room: int, height: int) -> list[Line]:
        lines: list[Line] = []
        before, here, after = (
            safe(self._text[: self._place]),
            safe(self._text[self._place : self._place + 1]) or " ",
            safe(self._text[self._place + 1 :]),
        )
        space = max(room - len(self._label) - 1, 1)
        while width(before) >= space:
            before = before[1:]
        lines.append([Span(self._label, "key"), Span(before), Span(here, "chosen"), Span(after)])
        if self._error is not None:
            start = width(safe(self._text[: self._error.position]))
            words = sentence(self._error)
            lines.append([Span(" " * (len(self._label) + start)), Span("^ ", "error"), span(words, "error")])
            if cells(lines[-1]) > room:  # the sentence starts at the left edge then
                lines[-1] = [Span(" " * (len(self._label) + start)), Span("^", "error")]
                lines.append([span(f" {words}", "error")])
        return lines

    def press(self, key: str) -> bool:
        if key == "escape":
            self.host.back()
        elif key == "enter":
            self._finish()
        elif key in ("left", "right", "home", "end"):
            size = len(self._text)
            places = {"left": self._place - 1, "right": self._place + 1, "home": 0, "end": size}
            self._place = min(max(places[key], 0), size)
        elif key in ("backspace", "delete"):
            start = self._place - 1 if key == "backspace" else self._place
            if start >= 0:
                self._text = self._text[:start] + self._text[start + 1 :]
                self._place = start
        elif key == "ctrl+u":
            self._text, self._place = "", 0
        else:
            self._type(" " if key == "space" else key)
        return True

    def _type(self, character: str) -> None:
        if len(character) == 1 and len(self._text) < MOST_CHARACTERS:
            self._text = self._text[: self._place] + character + self._text[self._place :]
            self._place += 1
            self._error = None

    def paste(self, text: str) -> None:
        """A text from the clipboard, on one line."""
        for character in text.replace("\n", " "):
            self._type(character)

    def _finish(self) -> None:
        try:
            if self._is_filter:
                read_question(self._text)
        except FilterError as error:
            self._error = error
            self._place = min(error.position, len(self._text))
            return
        self.host.back()
        self._accept(self._text.strip())


def sentence(error: FilterError) -> str:
    """What is wrong with a filter, without the drawing that the command line adds."""
    return str(error).splitlines()[-1].lstrip(" ^")
