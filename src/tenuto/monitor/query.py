"""Questions about rows: a filter, an order, a window; the order of the answer is kept per question.
Pure but for parameters, which the caller reads when a filter names one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from tenuto.jobs.fields import FIELDS
from tenuto.lifecycle.source import Row
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.monitor.filters import Filter, names, parse_filter
from tenuto.monitor.plain import experiment_of

CHOICES = {
    "state": [state.name.lower() for state in JobState],
    "reason": [reason.name.lower() for reason in JobFailureStatus],
}
"""The words that two fields can have, so that a slip is an error and not an empty list."""
MORE_FIELDS = "key group door door_state owner where eta energy_kwh alarm".split()
KEPT_ANSWERS = 16

Parameters = Callable[[str], Mapping[str, Any]]
"""The parameters of a job, by its key."""


class Question(NamedTuple):
    """Which rows, in which order; of all groups if `group` is None."""

    group: str | None = None
    filter: str = ""
    sort: str = ""


class Answer(NamedTuple):
    """The rows that a question finds, in its order."""

    total: int
    rows: Sequence[Row]


_OF_A_ROW: Mapping[str, Callable[[Row, datetime], Any]] = {
    "state": lambda row, now: row.state,
    "task": lambda row, now: row.task,
    "id": lambda row, now: row.id,
    "reason": lambda row, now: row.reason,
    "message": lambda row, now: row.message,
    "experiment": lambda row, now: experiment_of(row.group)[0],
    "run": lambda row, now: experiment_of(row.group)[1],
    "attempt": lambda row, now: row.attempt,
    "submitted": lambda row, now: row.submitted,
    "started": lambda row, now: row.started,
    "ended": lambda row, now: row.ended,
    "duration": lambda row, now: row.elapsed_s(now),
    "progress": lambda row, now: row.progress,
    "key": lambda row, now: row.key,
    "group": lambda row, now: row.group,
    "door": lambda row, now: row.door.value,
    "door_state": lambda row, now: row.door_state or None,
    "owner": lambda row, now: row.owner or None,
    "where": lambda row, now: row.where or None,
    "eta": lambda row, now: row.left_s(now),
    "energy_kwh": lambda row, now: row.energy_kwh,
    "alarm": lambda row, now: row.alarm,
}
"""What a filter may ask of a row, besides its tags and parameters."""


def row_fields(row: Row, now: datetime) -> dict[str, Any]:
    """All that a filter may ask of a row; besides, its tags and parameters."""
    return {name: of(row, now) for name, of in _OF_A_ROW.items()}


def read_question(filter: str) -> Filter | None:
    """The tree of a filter without regular expressions; `FilterError` points at the character."""
    return parse_filter(filter, choices=CHOICES, regex=False) if filter.strip() else None


def order_key(value: Any) -> tuple[int, Any] | None:
    """What values are sorted by: numbers by size, also those in texts; then texts. None comes last."""
    if value is None:
        return None
    try:
        return 0, float(value)
    except (TypeError, ValueError, OverflowError):
        return 1, value.isoformat() if isinstance(value, datetime) else str(value)


def ordered(rows: Sequence[Row], value: Callable[[Row], Any], *, descending: bool) -> list[Row]:
    """Rows sorted by a value, rows without one last; equal ones keep their order."""
    keyed = [(order_key(value(row)), row) for row in rows]
    known = [(key, row) for key, row in keyed if key is not None]
    known.sort(key=lambda pair: pair[0], reverse=descending)
    return [row for _, row in known] + [row for key, row in keyed if key is None]


def find(rows: Iterable[Row], question: Question, now: datetime, parameters: Parameters) -> Answer:
    """The rows that match, in the order asked for."""
    tree = read_question(question.filter)
    name = question.sort.removeprefix("-")
    asked = {*(names(tree) if tree is not None else ()), *([name] if name else [])}
    every = list(rows)
    tags = {tag for row in every for tag in row.tags} if asked else set()
    others = asked - {*FIELDS, *MORE_FIELDS} - tags
    own = [(name, _OF_A_ROW[name]) for name in asked if name in _OF_A_ROW]
    tags = (tags & asked) - _OF_A_ROW.keys()

    def fields(row: Row) -> dict[str, Any]:
        """What is asked of a row; the values that no filter names are not found out."""
        stored = parameters(row.key) if others else {}
        found = {name: stored[name] for name in others if name in stored}
        found.update((tag, row.tags[tag]) for tag in tags if tag in row.tags)
        found.update((name, of(row, now)) for name, of in own)
        return found

    found = every if tree is None else [row for row in every if tree.matches(fields(row))]
    if name:
        found = ordered(found, lambda row: fields(row).get(name), descending=question.sort.startswith("-"))
    return Answer(len(every), found)


class Answers:
    """The last answers, each good for the picture it was made of: a window is then a slice."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Question, tuple[int, Answer]] = OrderedDict()

    def get(self, question: Question, seq: int) -> Answer | None:
        """The answer to a question, if nothing changed since."""
        kept = self._kept.get(question)
        if kept is None or kept[0] != seq:
            return None
        self._kept.move_to_end(question)
        return kept[1]

    def put(self, question: Question, seq: int, answer: Answer) -> None:
        """Keep an answer in place of the oldest."""
        self._kept[question] = (seq, answer)
        self._kept.move_to_end(question)
        while len(self._kept) > KEPT_ANSWERS:
            self._kept.popitem(last=False)
