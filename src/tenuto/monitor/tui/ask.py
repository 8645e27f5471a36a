"""The questions before an action, which name each attempt, and the sentences that tell what became of it.
It decides nothing: the provider refuses what does not fit the job as it is now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tenuto.jobs.text import safe
from tenuto.monitor import shapes
from tenuto.monitor.tui.cells import Line, Span, line, rule, span, wrapped
from tenuto.monitor.tui.view import Host, View
from tenuto.monitor.tui.words import key_name

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


def fits(action: str, job: shapes.Job) -> bool:
    """True if an action makes sense for a job as it is shown."""
    is_final = job["state"] in ("done", "error")
    if action == "kill":
        return not is_final and job["state"] != "unscheduled"
    return job["state"] == "error" if action == "retry" else is_final


def objection(action: str, chosen: Sequence[shapes.Job], *, is_read_only: bool, is_past: bool) -> str | None:
    """Why nothing is asked: an action on the jobs that it fits, if there are any."""
    if is_read_only:
        return "this only shows: nothing is done here"
    if is_past:
        return "this is the past: End goes back to live, where jobs can be acted on"
    return None if chosen else f"nothing to {action}: no job that is chosen {_FITTING[action]}"


class Question(View):
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
        name = f"{job['task'].rpartition('.')[2]} {job['id'][:12]}"
        return [span("   "), span(name, "title"), span(attempt)]

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


def outcome_words(targets: Sequence[tuple[str, int]], outcomes: Sequence[shapes.Outcome]) -> str:
    """What became of an action, in a sentence."""
    if len(outcomes) > 3:
        counts = Counter(one["outcome"].replace("_", " ") for one in outcomes)
        return ", ".join(f"{number:,} {outcome}" for outcome, number in counts.items())
    seen = dict(targets)
    return " ".join(_sentence(one, seen.get(one["key"], 0)) for one in outcomes)


def _sentence(outcome: shapes.Outcome, seen: int) -> str:
    name = key_name(outcome["key"])
    if outcome["outcome"] == "stale":
        now = f"it is at attempt {outcome['attempt']} now" if outcome["attempt"] else "it has changed"
        return f"Nothing was done: you saw {name} at attempt {seen}, {now}."
    detail = f" ({safe(outcome['detail'])})" if outcome["detail"] else ""
    return f"{name} {_SENTENCES.get(outcome['outcome'], outcome['outcome'])}{detail}."
