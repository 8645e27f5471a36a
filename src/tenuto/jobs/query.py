"""Questions about rows: a filter, an order, a window; the order of the answer is kept per question.
Pure but for parameters, which the caller reads when a filter names one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
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
_MORE = 10_000
"""`sift` keeps so many rows more than the caller asked for, and sorts them seldom."""

Parameters = Callable[[str], Mapping[str, Any]]
"""The parameters of a job, by its key."""
OfRow = Callable[[Row], Mapping[str, Any]]
"""The parameters of a job, by its row."""
Chunks = Callable[[], Iterable[Sequence[Row]]]
"""Gives rows, some at a time; from the first one at each call."""
Arranged = Callable[[list[Row]], list[Row]]
"""Gives rows the order that they have where a question names none."""


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
PLAIN_FIELDS: Mapping[str, Callable[[Row, datetime], Any]] = {
    **{
        name: lambda row, _, read=read: read(row)  # type: ignore[misc]
        for name, read in _OF_A_ROW.items()
        if name not in ("id", "key", "name", "group", "kind")
    },
    **_AT_AN_INSTANT,
}
"""Those that many jobs have alike, or that are numbers or instants."""
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
    every = rows if isinstance(rows, list) else list(rows)
    found = sift(lambda: (every,), question, now, lambda row: parameters(row.key))
    return Matches(found.known, found.rows)


class Sieved(list[Row]):
    """Rows of which others were left out by a sieve."""

    left_out = 0
    """How many that do not match."""
    more = 0
    """How many that match."""
    names: frozenset[str] = frozenset()
    """The parameters and results that they have."""
    tags: frozenset[str] = frozenset()


_NOT_SIEVED = Sieved()


class Sifted(NamedTuple):
    """What a question finds among rows of which the others were not kept."""

    rows: list[Row]
    total: int
    """How many match; `rows` may be the first of them."""
    known: int
    """How many there are."""
    unknown: Sequence[str] = ()
    """The names in the question that no row has: no field, tag, parameter or result."""


def sift(
    chunks: Chunks,
    question: Question,
    now: datetime,
    parameters: OfRow,
    *,
    arranged: Arranged = list,
    most: int | None = None,
    tells_unknown: bool = False,
    tags: set[str] | None = None,
) -> Sifted:
    """The rows that match, `most` at most, in the order asked for; the others are not kept.

    `tells_unknown`: whether names that no row has are looked for, which reads parameters. `tags`: names that
    are known to be tags; those that are met are added.
    """
    tree = read_question(question.filter, regex=question.regex, words=question.words)
    name = question.sort.removeprefix("-")
    asked = {*(names(tree) if tree is not None else ()), *([name] if name else [])}
    own = set() if tree is not None and not values(tree, "kind") <= KINDS else {"kind"}
    if tree is not None and not own:
        every = (row for chunk in chunks() for row in chunk)
        _check_kind(question.filter, values(tree, "kind") - KINDS, every, parameters)
    unsure = asked - {ANY, *FIELDS} if tells_unknown else set()
    tags = set() if tags is None else tags
    while True:
        read: dict[str, dict[str, Any]] = {one: {} for one in asked}
        readers = {one: _reader(one, tags, now, parameters, own, read[one]) for one in asked}
        order = partial(_in_order, question.sort, readers, arranged)
        holds = predicate(tree, readers) if tree is not None else None
        kept: list[Row] = []
        known = total = 0
        for chunk in chunks():
            sieved = chunk if isinstance(chunk, Sieved) else _NOT_SIEVED
            met = {tag for row in chunk for tag in row.tags} | sieved.tags if asked - OURS else set()
            if late := met & asked - OURS - tags:
                # Where one row has a tag, that of others is none, and no parameter: from the first again.
                tags.update(late)
                break
            unsure -= sieved.names
            for row in chunk:
                if not unsure - tags:
                    break
                unsure -= parameters(row).keys()
            found = chunk if holds is None else list(filter(holds, chunk))
            total += len(found) + sieved.more
            known += len(chunk) + sieved.more + sieved.left_out
            _forget(read, chunk, found)
            kept += found
            if most is not None and len(kept) >= most + _MORE:
                first = {id(row) for row in order(kept)[:most]}
                before, kept = kept, [row for row in kept if id(row) in first]
                _forget(read, before, kept)
        else:
            return Sifted(order(kept)[:most], total, known, sorted(unsure - tags))


def _in_order(sort: str, readers: Mapping[str, Read[Row]], arranged: Arranged, rows: list[Row]) -> list[Row]:
    name, rows = sort.removeprefix("-"), arranged(rows)
    if not name:
        return rows
    read = _OF_A_ROW.get(name, readers[name]) if name != "kind" else readers[name]
    return ordered(rows, read, as_text=name in _TEXTS, descending=sort.startswith("-"))


def _forget(read: Mapping[str, dict[str, Any]], rows: Sequence[Row], kept: Sequence[Row]) -> None:
    """Drops what was read of rows that are not kept."""
    if len(kept) < len(rows) and any(read.values()):
        for key in {row.key for row in rows} - {row.key for row in kept}:
            for values_read in read.values():
                values_read.pop(key, None)


def _check_kind(text: str, words: Collection[str], rows: Iterable[Row], parameters: OfRow) -> None:
    """Refuses a kind of job that there is not, unless jobs have a tag or a parameter of that name."""
    if not any("kind" in row.tags or "kind" in parameters(row) for row in rows):
        at, known = text.find("kind"), ", ".join(sorted(KINDS))
        raise FilterError(
            f"{safe(text)}\n{' ' * at}^ kind is never {min(words)!r}; it is one of {known}", text, at
        )


OURS = {
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
    name: str,
    tags: Collection[str],
    now: datetime,
    parameters: OfRow,
    own: Collection[str],
    known: dict[str, Any],
) -> Read[Row]:
    """Reads one field of a row: its own, else a tag, else a parameter, which takes a look at a file.

    Of a field that people call their own things so, too, both are read: the field and the tag of that name.
    `kind` is the field in `own` only if it is compared with the name of a kind: else a parameter.
    `known`: the parameters that were read, by the key of the row.
    """
    if name == ANY:
        return _texts
    if name in _OF_A_ROW and name in tags and name not in OURS:
        of_a_row = _OF_A_ROW[name]
        return lambda row: (of_a_row(row), _tag(row, name))
    if name in _OF_A_ROW and (name != "kind" or name in own):
        return _OF_A_ROW[name]
    if name in _AT_AN_INSTANT:
        of = _AT_AN_INSTANT[name]
        return lambda row: of(row, now)
    if name in tags:
        return lambda row: _tag(row, name)

    def parameter(row: Row) -> Any:
        if row.key not in known:
            known[row.key] = parameters(row).get(name)
        return known[row.key]

    return parameter


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
