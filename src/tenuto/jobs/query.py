"""Questions about rows: a filter, an order, a window; the order of the answer is kept per question.
Pure but for parameters, which the caller reads when a filter names one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from tenuto.errors import FilterError
from tenuto.jobs.filters import ANY, Filter, Read, names, parse_filter, predicate, values
from tenuto.jobs.row import Row
from tenuto.jobs.text import safe
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobFailureStatus, JobState

CHOICES = {
    "state": [state.name.lower() for state in JobState],
    "reason": [reason.name.lower() for reason in JobFailureStatus],
}
"""The words that two fields can have, so that a slip is an error and not an empty list."""
KINDS = frozenset(door.kind for door in Door)
KEPT_ANSWERS = 16

Parameters = Callable[[str], Mapping[str, Any]]
"""The parameters of a job, by its key."""


class Question(NamedTuple):
    """Which rows, in which order; of all groups if `group` is None."""

    group: str | None = None
    filter: str = ""
    sort: str = ""
    regex: bool = False
    """True if the filter may hold regular expressions, which can run for ever."""
    words: bool = False
    """True if a plain word is looked for in every text of a job."""


class Matches(NamedTuple):
    """The rows that a question finds, in its order."""

    total: int
    rows: Sequence[Row]


@lru_cache(maxsize=10_000)
def group_names(group: str) -> tuple[str, ...]:
    """What a person may call a group: ``fits``, ``fits/20261118_1``, or its key."""
    name = group.partition(":")[2]
    return tuple(dict.fromkeys((name.rpartition("/")[0] or name, name, group)))


_OF_A_ROW: Mapping[str, Read[Row]] = {
    "state": attrgetter("state"),
    "task": attrgetter("task"),
    "id": attrgetter("id"),
    "reason": attrgetter("reason"),
    "message": attrgetter("message"),
    "name": attrgetter("name"),
    "experiment": attrgetter("experiment"),
    "run": attrgetter("run"),
    "attempt": attrgetter("attempt"),
    "submitted": attrgetter("submitted"),
    "started": attrgetter("started"),
    "ended": attrgetter("ended"),
    "progress": attrgetter("progress"),
    "key": attrgetter("key"),
    "group": lambda row: group_names(row.group),
    "kind": lambda row: row.door.kind,
    "status": lambda row: row.status or None,
    "owner": lambda row: row.owner or None,
    "where": lambda row: row.where or None,
    "energy_kwh": attrgetter("energy_kwh"),
    "alarm": attrgetter("alarm"),
}
"""What a filter may ask of a row, besides what follows from the instant, its tags and its parameters."""
_AT_AN_INSTANT: Mapping[str, Callable[[Row, datetime], Any]] = {
    "duration": Row.elapsed_s,
    "eta": Row.left_s,
}
_TEXTS = frozenset({"task", "id", "name", "message", "experiment", "run", "key", "group", "alarm"})
"""Fields that are sorted as texts, also where one looks like a number."""


def read_question(filter: str, *, regex: bool = False, words: bool = False) -> Filter | None:
    """The tree of a filter; `FilterError` points at the character. `regex`: of a trusted person."""
    return parse_filter(filter, choices=CHOICES, regex=regex, words=words) if filter.strip() else None


def _texts(row: Row) -> tuple[str, ...]:
    """Everything of a row that a person would search for."""
    tags = (f"{name}={value}" for name, value in row.tags.items())
    own = (row.id, row.task, row.name, row.message or "", row.reason.name if row.reason else "")
    return (*own, row.progress_desc or "", row.where, row.owner, *tags)


def order_key(value: Any) -> tuple[int, Any] | None:
    """What values are sorted by: numbers and instants by size, also those in texts; then texts."""
    match value:
        case None:
            return None
        case float():
            return 0, value
        case datetime():
            return 0, value.timestamp()
    try:
        return 0, float(value)
    except (TypeError, ValueError, OverflowError):
        return 1, str(value)


def ordered(rows: Sequence[Row], value: Read[Row], *, as_text: bool = False, descending: bool) -> list[Row]:
    """Rows sorted by a value, rows without one last; equal ones keep their order."""
    keys = map(value, rows) if as_text else map(order_key, map(value, rows))
    keyed = list(zip(keys, rows, strict=True))
    known = [pair for pair in keyed if pair[0] is not None]
    known.sort(key=itemgetter(0), reverse=descending)
    found = [row for _, row in known]
    return found if len(found) == len(keyed) else found + [row for key, row in keyed if key is None]


def find(rows: Iterable[Row], question: Question, now: datetime, parameters: Parameters) -> Matches:
    """The rows that match, in the order asked for."""
    tree = read_question(question.filter, regex=question.regex, words=question.words)
    name = question.sort.removeprefix("-")
    every = rows if isinstance(rows, list) else list(rows)
    asked = {*(names(tree) if tree is not None else ()), *([name] if name else [])}
    tags = {tag for row in every for tag in row.tags} if asked - _OURS else set()
    own = set() if tree is not None and not values(tree, "kind") <= KINDS else {"kind"}
    if tree is not None and not own:
        _check_kind(question.filter, values(tree, "kind") - KINDS, every, parameters)
    readers = {one: _reader(one, tags, now, parameters, own) for one in asked}
    found = every if tree is None else list(filter(predicate(tree, readers), every))
    if name:
        is_descending = question.sort.startswith("-")
        read = _OF_A_ROW.get(name, readers[name]) if name != "kind" else readers[name]
        found = ordered(found, read, as_text=name in _TEXTS, descending=is_descending)
    return Matches(len(every), found)


def _check_kind(text: str, words: Collection[str], rows: Iterable[Row], parameters: Parameters) -> None:
    """Refuses a kind of job that there is not, unless jobs have a tag or a parameter of that name."""
    if not any("kind" in row.tags or "kind" in parameters(row.key) for row in rows):
        at, known = text.find("kind"), ", ".join(sorted(KINDS))
        raise FilterError(
            f"{safe(text)}\n{' ' * at}^ kind is never {min(words)!r}; it is one of {known}", text, at
        )


_OURS = {
    *("state", "task", "id", "reason", "message", "experiment", "run", "attempt", "progress", "key"),
    *("submitted", "started", "ended", "duration", ANY),
}
"""Fields that are never a tag of a person's own."""
FIELDS = (*_OF_A_ROW, *_AT_AN_INSTANT)
"""What a filter may ask of any job; besides, its tags, its parameters and its result."""


def _tag(row: Row, name: str) -> Any:
    """A tag; one with several values as a tuple, of which a filter compares each."""
    value = row.tags.get(name)
    return tuple(value) if isinstance(value, list) else value


def _reader(
    name: str, tags: Collection[str], now: datetime, parameters: Parameters, own: Collection[str]
) -> Read[Row]:
    """Reads one field of a row: its own, else a tag, else a parameter, which takes a look at a file.

    Of a field that people call their own things so, too, both are read: the field and the tag of that name.
    `kind` is the field in `own` only if it is compared with the name of a kind: else a parameter.
    """
    if name == ANY:
        return _texts
    if name in _OF_A_ROW and name in tags and name not in _OURS:
        of_a_row = _OF_A_ROW[name]
        return lambda row: (of_a_row(row), _tag(row, name))
    if name in _OF_A_ROW and (name != "kind" or name in own):
        return _OF_A_ROW[name]
    if name in _AT_AN_INSTANT:
        of = _AT_AN_INSTANT[name]
        return lambda row: of(row, now)
    if name in tags:
        return lambda row: _tag(row, name)
    known: dict[str, Any] = {}

    def parameter(row: Row) -> Any:
        if row.key not in known:
            known[row.key] = parameters(row.key).get(name)
        return known[row.key]

    return parameter


def unknown_names(rows: Sequence[Row], question: Question, parameters: Parameters) -> list[str]:
    """The names in a question that no row has: no field, tag, parameter or result."""
    tree = read_question(question.filter, regex=question.regex)
    asked = {*(names(tree) if tree is not None else ()), question.sort.removeprefix("-")} - {"", ANY, *FIELDS}
    unsure = asked - {tag for row in rows for tag in row.tags}
    for row in rows:
        if not unsure:
            break
        unsure -= parameters(row.key).keys()
    return sorted(unsure)


class Answers:
    """The last answers, each good for the picture it was made of: a window is then a slice."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Question, tuple[int, Matches]] = OrderedDict()

    def get(self, question: Question, seq: int) -> Matches | None:
        """The answer to a question, if nothing changed since."""
        kept = self._kept.get(question)
        if kept is None or kept[0] != seq:
            return None
        self._kept.move_to_end(question)
        return kept[1]

    def put(self, question: Question, seq: int, answer: Matches) -> None:
        """Keep an answer in place of the oldest."""
        self._kept[question] = (seq, answer)
        self._kept.move_to_end(question)
        while len(self._kept) > KEPT_ANSWERS:
            self._kept.popitem(last=False)
