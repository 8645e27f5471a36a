"""The tree of a filter: `state=running and lr<0.1 and task~train`; what it holds for, and how it is written.
It decides; `filter_reader` reads the text, and the caller brings the values.

A word that looks like a number compares as one; a quoted string is always text. `~` looks for a part of the
text, whatever the case. `none` is what a field without a value equals. Against a number, `5m` or `1h30m` is a
duration in seconds.
"""

from __future__ import annotations

import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, unique
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

KEYWORDS = frozenset({"and", "or", "not"})
WORD = re.compile(r"""[^\s()"'=!<>~]+""")
CASELESS = frozenset({"state", "reason"})
"""Fields whose values are words of ours, so that `state=RUNNING` and `state=running` are one."""


@unique
class Form(Enum):
    """How a value is written."""

    WORD = "word"
    STRING = "string"
    REGEX = "regular expression"


@dataclass(frozen=True, slots=True)
class Value:
    """What a field is compared with, as written."""

    text: str
    form: Form

    def __str__(self) -> str:
        match self.form:
            case Form.WORD:
                return self.text
            case Form.STRING:
                return quoted(self.text)
            case Form.REGEX:
                return f"/{self.text}/"


@dataclass(frozen=True, slots=True)
class Compare:
    """One field against one value."""

    field: str
    operator: str
    value: Value

    def __str__(self) -> str:
        field = self.field if _is_word(self.field) else quoted(self.field)
        return f"{field}{self.operator}{self.value}"

    def matches(self, fields: Mapping[str, Any]) -> bool:
        return _compare(self, fields.get(self.field))


@dataclass(frozen=True, slots=True)
class Not:
    """Whatever the other does not match."""

    inner: Filter

    def __str__(self) -> str:
        return f"not {_within(self.inner, And, Or)}"

    def matches(self, fields: Mapping[str, Any]) -> bool:
        return not self.inner.matches(fields)


@dataclass(frozen=True, slots=True)
class And:
    """What all of them match."""

    parts: tuple[Filter, ...]

    def __str__(self) -> str:
        return " and ".join(_within(part, And, Or) for part in self.parts)

    def matches(self, fields: Mapping[str, Any]) -> bool:
        return all(part.matches(fields) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Or:
    """What at least one of them matches."""

    parts: tuple[Filter, ...]

    def __str__(self) -> str:
        return " or ".join(_within(part, Or) for part in self.parts)

    def matches(self, fields: Mapping[str, Any]) -> bool:
        return any(part.matches(fields) for part in self.parts)


Filter: TypeAlias = Compare | Not | And | Or
Item = TypeVar("Item")


Read: TypeAlias = Callable[[Item], Any]
"""Reads one field of an item."""


def predicate(tree: Filter, readers: Mapping[str, Read[Item]]) -> Callable[[Item], bool]:
    """What `matches` says, of items whose fields are read one by one: for lists of 100,000.

    `readers` has one for each name of the tree. A text, or a word of an enum, is compared once.
    """
    match tree:
        case Compare():
            return _remembering(tree, readers[tree.field])
        case Not():
            inner = predicate(tree.inner, readers)
            return lambda item: not inner(item)
        case And():
            parts = [predicate(part, readers) for part in tree.parts]
            return lambda item: all(part(item) for part in parts)
        case Or():
            parts = [predicate(part, readers) for part in tree.parts]
            return lambda item: any(part(item) for part in parts)


def _remembering(asked: Compare, read: Read[Item]) -> Callable[[Item], bool]:
    verdicts: dict[Any, bool] = {}

    def holds(item: Item) -> bool:
        value = read(item)
        if not isinstance(value, str | Enum):
            return _compare(asked, value)
        verdict = verdicts.get(value)
        if verdict is None:
            if len(verdicts) >= _MOST_VERDICTS:
                verdicts.clear()
            verdict = verdicts[value] = _compare(asked, value)
        return verdict

    return holds


def names(tree: Filter) -> Iterator[str]:
    """The fields that a filter asks for."""
    match tree:
        case Compare():
            yield tree.field
        case Not():
            yield from names(tree.inner)
        case And() | Or():
            for part in tree.parts:
                yield from names(part)


def _within(tree: Filter, *bind_weaker: type) -> str:
    return f"({tree})" if isinstance(tree, bind_weaker) else str(tree)


def _is_word(text: str) -> bool:
    return WORD.fullmatch(text) is not None and text.lower() not in KEYWORDS


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+", re.ASCII)
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_INTEGER_DIGITS = 300
_MOST_VERDICTS = 10_000


def compiled_pattern(pattern: str) -> re.Pattern[str]:
    with warnings.catch_warnings():  # about patterns that a later Python may read differently
        warnings.simplefilter("ignore")
        return re.compile(pattern)


def _compare(asked: Compare, value: Any) -> bool:
    match asked.operator:
        case "=":
            return _equal(asked, value)
        case "!=":
            return not _equal(asked, value)
        case "~":
            return value is not None and _contains(asked.value, _text(value))
        case order:
            return value is not None and _ordered(_ORDER[order], asked.value, value)


def _equal(asked: Compare, value: Any) -> bool:
    given = asked.value
    is_word = given.form is Form.WORD
    if value is None:
        return is_word and given.text.lower() == "none"
    text = _text(value)
    if asked.field in CASELESS or isinstance(value, Enum | bool):
        return text.lower() == given.text.lower()
    if text == given.text:
        return True
    left, right = _number(value), _literal_number(given, value)
    return left is not None and right is not None and left == right


def _ordered(order: Callable[[Any, Any], bool], given: Value, value: Any) -> bool:
    left, right = _number(value), _literal_number(given, value)
    if left is not None and right is not None:
        return order(left, right)
    if isinstance(value, int | float) and not isinstance(value, Enum):
        return False
    return order(_text(value), given.text)


def _contains(given: Value, text: str) -> bool:
    if given.form is Form.REGEX:
        return compiled_pattern(given.text).search(text) is not None
    return given.text.lower() in text.lower()


def _text(value: Any) -> str:
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _number(value: Any) -> int | float | None:
    if isinstance(value, Enum | bool):
        return None
    if isinstance(value, int | float):
        return value
    return _read_number(value) if isinstance(value, str) else None


def _literal_number(given: Value, value: Any) -> int | float | None:
    if given.form is not Form.WORD:
        return None
    number, seconds = _literal(given.text)
    return seconds if number is None and isinstance(value, int | float) else number


@lru_cache(maxsize=256)
def _literal(text: str) -> tuple[int | float | None, float | None]:
    """A word as a number, and as the seconds of a duration; a filter asks it of each of 100,000 jobs."""
    is_duration = _DURATION.fullmatch(text) is not None
    parts = _DURATION_PART.findall(text) if is_duration else ()
    return _read_number(text), sum(float(n) * _SECONDS[unit] for n, unit in parts) if is_duration else None


def _read_number(text: str) -> int | float | None:
    if not _NUMBER.fullmatch(text):
        return {"inf": float("inf"), "-inf": float("-inf")}.get(text.lower())
    digits = text.lstrip("+-")
    return int(text) if digits.isdigit() and len(digits) <= _INTEGER_DIGITS else float(text)
