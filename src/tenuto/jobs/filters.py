"""Filters: the language in which a person asks for jobs, read into a tree that is matched with their fields.
Knows no job: the caller says what each name stands for.
"""

from __future__ import annotations

import difflib
import operator
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, unique
from functools import lru_cache
from typing import Any, NoReturn, TypeAlias, TypeVar

from tenuto.errors import FilterError
from tenuto.jobs.text import safe, width

KEYWORDS = frozenset({"and", "or", "not"})
ANY = "*"
"""Stands for all texts of a job that a person would search: the field of a plain word."""
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
class ComparedValue:
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
class Term:
    """One field against one value."""

    field: str
    operator: str
    value: ComparedValue

    def __str__(self) -> str:
        if self.field == ANY:
            return str(self.value)
        field = self.field if _is_word(self.field) else quoted(self.field)
        return f"{field}{self.operator}{self.value}"

    def matches(self, fields: Mapping[str, Any]) -> bool:
        return compare(self, fields.get(self.field))


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


Filter: TypeAlias = Term | Not | And | Or
Item = TypeVar("Item")


Read: TypeAlias = Callable[[Item], Any]
"""Reads one field of an item."""


def predicate(tree: Filter, readers: Mapping[str, Read[Item]]) -> Callable[[Item], bool]:
    """What `matches` says, of items whose fields are read one by one: for lists of 100,000.

    `readers` has one for each name of the tree. A text, or a word of an enum, is compared once.
    """
    match tree:
        case Term():
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


def _remembering(asked: Term, read: Read[Item]) -> Callable[[Item], bool]:
    verdicts: dict[Any, bool] = {}

    def holds(item: Item) -> bool:
        value = read(item)
        if not isinstance(value, str | Enum | tuple):
            return compare(asked, value)
        verdict = verdicts.get(value)
        if verdict is None:
            if len(verdicts) >= _MOST_VERDICTS:
                verdicts.clear()
            verdict = verdicts[value] = compare(asked, value)
        return verdict

    return holds


def names(tree: Filter) -> Iterator[str]:
    """The fields that a filter asks for."""
    match tree:
        case Term():
            yield tree.field
        case Not():
            yield from names(tree.inner)
        case And() | Or():
            for part in tree.parts:
                yield from names(part)


def values(tree: Filter, field: str) -> set[str]:
    """The words that a filter compares a field with."""
    match tree:
        case Term():
            return {tree.value.text} if tree.field == field else set()
        case Not():
            return values(tree.inner, field)
        case And() | Or():
            return {word for part in tree.parts for word in values(part, field)}


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
ORDER: dict[str, Callable[[Any, Any], bool]] = {
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


def compare(asked: Term, value: Any) -> bool:
    if isinstance(value, tuple):  # names of one thing
        every = all if asked.operator == "!=" else any
        return every(compare(asked, one) for one in value)
    match asked.operator:
        case "=":
            return _equal(asked, value)
        case "!=":
            return not _equal(asked, value)
        case "~":
            return value is not None and _contains(asked.value, _text(value))
        case order:
            return value is not None and _ordered(ORDER[order], asked.value, value)


def _equal(asked: Term, value: Any) -> bool:
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


def _ordered(order: Callable[[Any, Any], bool], given: ComparedValue, value: Any) -> bool:
    left, right = _number(value), _literal_number(given, value)
    if left is not None and right is not None:
        return order(left, right)
    if isinstance(value, int | float) and not isinstance(value, Enum):
        return False
    return order(_text(value), given.text)


def _contains(given: ComparedValue, text: str) -> bool:
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


def _literal_number(given: ComparedValue, value: Any) -> int | float | None:
    if given.form is not Form.WORD:
        return None
    number, seconds = literal(given.text)
    return seconds if number is None and isinstance(value, int | float) else number


@lru_cache(maxsize=256)
def literal(text: str) -> tuple[int | float | None, float | None]:
    """A word as a number, and as the seconds of a duration; a filter asks it of each of 100,000 jobs."""
    is_duration = _DURATION.fullmatch(text) is not None
    parts = _DURATION_PART.findall(text) if is_duration else ()
    return _read_number(text), sum(float(n) * _SECONDS[unit] for n, unit in parts) if is_duration else None


def _read_number(text: str) -> int | float | None:
    if not _NUMBER.fullmatch(text):
        return {"inf": float("inf"), "-inf": float("-inf")}.get(text.lower())
    digits = text.lstrip("+-")
    return int(text) if digits.isdigit() and len(digits) <= _INTEGER_DIGITS else float(text)


LONGEST = 4_000
DEEPEST = 50
_SPACE = re.compile(r"\s*")
_OPERATOR = re.compile(r"<=|>=|!=|=|<|>|~")
_STRING = re.compile(r""""((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)\'""", re.DOTALL)
_REGEX = re.compile(r"/((?:\\.|[^/\\])*)/", re.DOTALL)
_UNESCAPED = re.compile(r"\\(.)", re.DOTALL)


def parse_filter(
    text: str,
    *,
    choices: Mapping[str, Collection[str]] | None = None,
    regex: bool = True,
    words: bool = False,
) -> Filter:
    """The tree of a filter; a `FilterError` shows the character where the text breaks.

    `choices` names the values that a field such as ``state`` can have, so that a slip is an error and not an
    empty list. Without `regex`, regular expressions are refused: they can run for ever, and are not for a
    server that takes filters from others. With `words` a word alone is looked for in all texts of a job, and
    words stand beside each other: for a box that searches, not for a command that acts.
    """
    return _Reader(text, choices or {}, regex, words).read()


class _Reader:
    """Reads one text from left to right."""

    def __init__(self, text: str, choices: Mapping[str, Collection[str]], regex: bool, words: bool) -> None:
        self.text = text
        self.at = 0
        self.choices = choices
        self.regex = regex
        self.words = words

    def read(self) -> Filter:
        if len(self.text) > LONGEST:
            self.refuse(f"the filter is longer than {LONGEST} characters", 0)
        tree = self.either(0)
        if self.at < len(self.text):
            self.refuse("expected 'and', 'or' or the end")
        return tree

    def either(self, depth: int) -> Filter:
        parts = [self.all(depth)]
        while self.keyword("or"):
            parts.append(self.all(depth))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def all(self, depth: int) -> Filter:
        parts = [self.one(depth)]
        while self.keyword("and") or (self.words and self.has_more()):
            parts.append(self.one(depth))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def has_more(self) -> bool:
        """True if another term stands beside the last one, without a keyword between them."""
        self.skip()
        found = WORD.match(self.text, self.at)
        if found is not None:
            return found[0].lower() != "or"
        return self.text.startswith(("(", '"', "'"), self.at)

    def one(self, depth: int) -> Filter:
        if depth > DEEPEST:
            self.refuse(f"nested more than {DEEPEST} deep")
        if self.keyword("not"):
            return Not(self.one(depth + 1))
        self.skip()
        if self.text.startswith("(", self.at):
            opened = self.at
            self.at += 1
            tree = self.either(depth + 1)
            self.skip()
            if not self.text.startswith(")", self.at):
                if self.at == len(self.text):
                    self.refuse("this parenthesis is never closed", opened)
                self.refuse("expected 'and', 'or' or ')'")
            self.at += 1
            return tree
        return self.comparison()

    def comparison(self) -> Filter:
        named = self.word_or_string("a field, such as state, task or the name of a tag")
        field = named.text
        self.skip()
        found = _OPERATOR.match(self.text, self.at)
        if found is None and self.words:
            return Term(ANY, "~", named)
        if found is None:
            self.refuse(f"expected one of = != < <= > >= ~ after {field!r}")
        self.at = found.end()
        self.skip()
        start = self.at
        value = self.regular_expression() if found[0] == "~" else None
        value = value or self.word_or_string("a value")
        self.check_choice(field, found[0], value, start)
        return Term(field, found[0], value)

    def word_or_string(self, expected: str) -> ComparedValue:
        self.skip()
        if string := _STRING.match(self.text, self.at):
            self.at = string.end()
            return ComparedValue(
                _UNESCAPED.sub(r"\1", string[1] if string[1] is not None else string[2]), Form.STRING
            )
        if self.text.startswith(('"', "'"), self.at):
            self.refuse("this quote is never closed")
        word = WORD.match(self.text, self.at)
        if word is None:
            self.refuse(f"expected {expected}")
        if word[0].lower() in KEYWORDS:
            self.refuse(f"expected {expected}; write {quoted(word[0])} if the word itself is meant")
        self.at = word.end()
        return ComparedValue(word[0], Form.WORD)

    def regular_expression(self) -> ComparedValue | None:
        if not self.text.startswith("/", self.at):
            return None
        if not self.regex:
            self.refuse("regular expressions are not allowed here")
        found = _REGEX.match(self.text, self.at)
        if found is None:
            self.refuse("this regular expression has no closing /")
        try:
            compiled_pattern(found[1])
        except re.error as error:
            self.refuse(f"not a regular expression: {error.msg}", self.at + 1 + (error.pos or 0))
        except (OverflowError, RecursionError) as error:
            self.refuse(f"not a regular expression: {error}", self.at + 1)
        self.at = found.end()
        return ComparedValue(found[1], Form.REGEX)

    def check_choice(self, field: str, sign: str, value: ComparedValue, position: int) -> None:
        allowed = self.choices.get(field)
        if (
            allowed is None
            or sign not in ("=", "!=")
            or value.text.lower() in {"none", *map(str.lower, allowed)}
        ):
            return
        near = difflib.get_close_matches(value.text.lower(), map(str.lower, allowed), 1)
        hint = f"did you mean {near[0]}?" if near else f"it is one of {', '.join(map(str.lower, allowed))}"
        self.refuse(f"{field} is never {value.text!r}; {hint}", position)

    def keyword(self, word: str) -> bool:
        self.skip()
        found = WORD.match(self.text, self.at)
        if found is None or found[0].lower() != word:
            return False
        self.at = found.end()
        return True

    def skip(self) -> None:
        space = _SPACE.match(self.text, self.at)
        assert space is not None
        self.at = space.end()

    def refuse(self, problem: str, position: int | None = None) -> NoReturn:
        position = min(self.at if position is None else position, len(self.text))
        before, after = safe(self.text[:position]), safe(self.text[position:])
        before = before if len(before) <= 60 else "…" + before[-59:]
        pointer = " " * width(before) + "^ "
        raise FilterError(f"{before}{after[:60]}\n{pointer}{safe(problem)}", self.text, position)
