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


def row_fields(row: Row, now: datetime) -> dict[str, Any]:
    """What a filter may ask of a row; besides, its tags and parameters."""
    experiment, run = experiment_of(row.group)
    return {
        "state": row.state,
        "task": row.task,
        "id": row.id,
        "reason": row.reason,
        "message": row.message,
        "experiment": experiment,
        "run": run,
        "attempt": row.attempt,
        "submitted": row.submitted,
        "started": row.started,
        "ended": row.ended,
        "duration": row.elapsed_s(now),
        "progress": row.progress,
        "key": row.key,
        "group": row.group,
        "door": row.door.value,
        "door_state": row.door_state or None,
        "owner": row.owner or None,
        "where": row.where or None,
        "eta": row.left_s(now),
        "energy_kwh": row.energy_kwh,
        "alarm": row.alarm,
    }


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

    def fields(row: Row) -> dict[str, Any]:
        stored = parameters(row.key) if others else {}
        found = {name: stored[name] for name in others if name in stored}
        return {**found, **row.tags, **row_fields(row, now)}

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
