"""Dialogs over the foot of a view: the line in which a person writes, and the question before an action.
A filter is read as the provider reads it; the provider refuses an action that does not fit the job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tenuto.errors import FilterError
from tenuto.jobs.query import read_question
from tenuto.jobs.text import safe, width
from tenuto.monitor import shapes
from tenuto.monitor.tui.cells import Line, Span, cells, line, rule, span, wrapped
from tenuto.monitor.tui.text import key_name
from tenuto.monitor.tui.view import Host, View

MOST_CHARACTERS = 1_000
ACTIONS = {"K": "kill", "R": "retry", "D": "clean"}
CONSEQUENCES = {
    "kill": "The running attempt is stopped; what it wrote stays.",
    "retry": "A new attempt is started in the same directory.",
    "clean": "The directory is deleted, with all that the job wrote. This cannot be undone.",
}
_SENTENCES = {
    "asked": "was asked to stop",
    "retried": "is tried again",
    "deleted": "was deleted",
    "not_running": "does not run",
    "starting": "is just starting: try again in a moment",
    "elsewhere": "runs on another machine: act there",
    "in_use": "is in use by a run",
    "gone": "is gone",
    "refused": "was refused",
}
DIALOG_LINES = 9
"""The most that a question takes of the window."""
_FITTING = {"kill": "runs or waits", "retry": "has failed", "clean": "has ended"}
_MOST_NAMED = 5


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
                read_question(self._text, words=True)
        except FilterError as error:
            self._error = error
            self._place = min(error.position, len(self._text))
            return
        self.host.back()
        self._accept(self._text.strip())


def sentence(error: FilterError) -> str:
    """The error in a filter, without the drawing that the command line adds."""
    return str(error).splitlines()[-1].lstrip(" ^")


def fits(action: str, job: shapes.Job) -> bool:
    """True if an action makes sense for a job as it is shown."""
    is_final = job["state"] in ("done", "error")
    if action == "kill":
        return not is_final and job["state"] != "unscheduled"
    return job["state"] == "error" if action == "retry" else is_final


def objection(action: str, chosen: Sequence[shapes.Job], *, is_read_only: bool) -> str | None:
    """Why nothing is asked: an action on the jobs that it fits, if there are any."""
    if is_read_only:
        return "this only shows: nothing is done here"
    return None if chosen else f"nothing to {action}: no job that is chosen {_FITTING[action]}"


class QuestionScreen(View):
    """Kill, retry or clean? ``y`` does it, ``n`` and Esc do nothing."""

    name = "question"
    is_dialog = True
    hints = "y yes  n no"

    def __init__(
        self, host: Host, action: str, jobs: Sequence[shapes.Job], more: int, agreed: Callable[[], object]
    ) -> None:
        super().__init__(host)
        self._action = action
        self._jobs = jobs
        self._more = more
        self._agreed = agreed

    def draw(self, room: int, height: int) -> list[Line]:
        count = len(self._jobs)
        what = "this job" if count == 1 else f"{count:,} jobs"
        lines = [rule(f"{self._action} {what}?", room, "alarm")]
        shown = min(_MOST_NAMED, max(height - 3, 1))
        lines += [self._named(job) for job in self._jobs[:shown]]
        if count > shown or self._more:
            rest = f"and {count - shown:,} more" if count > shown else ""
            left = (
                f" ({self._more:,} others of this cause are not named: filter for them)" if self._more else ""
            )
            lines.append([span(f"   {rest}{left}", "soft")])
        lines += [[span(f" {one}", "soft")] for one in wrapped(CONSEQUENCES[self._action], max(room - 2, 1))]
        answer = line(" ", Span(" y ", "chosen"), f" {self._action}   ", Span(" n ", "chosen"), " leave it")
        return [*lines[: max(height - 1, 0)], answer]

    def _named(self, job: shapes.Job) -> Line:
        attempt = f", attempt {job['attempt']}" if job["attempt"] else ", never started"
        return [span("   "), span(key_name(job["key"]), "title"), span(attempt)]

    def press(self, key: str) -> bool:
        if key in ("y", "Y"):
            self.host.back()
            self._agreed()
            return True
        if key in ("n", "N", "escape", "enter"):
            self.host.back()
            self.host.say("nothing was done")
            return True
        return key not in ("q", "?")


def outcome_words(targets: Sequence[tuple[str, int]], outcomes: Sequence[shapes.OutcomeJson]) -> str:
    """What became of an action, in a sentence."""
    if len(outcomes) > 3:
        counts = Counter(one["outcome"].replace("_", " ") for one in outcomes)
        return ", ".join(f"{number:,} {outcome}" for outcome, number in counts.items())
    seen = dict(targets)
    return " ".join(_sentence(one, seen.get(one["key"], 0)) for one in outcomes)


def _sentence(outcome: shapes.OutcomeJson, seen: int) -> str:
    name = key_name(outcome["key"])
    if outcome["outcome"] == "stale":
        now = f"it is at attempt {outcome['attempt']} now" if outcome["attempt"] else "it has changed"
        return f"Nothing was done: you saw {name} at attempt {seen}, {now}."
    detail = f" ({safe(outcome['detail'])})" if outcome["detail"] else ""
    return f"{name} {_SENTENCES.get(outcome['outcome'], outcome['outcome'])}{detail}."
