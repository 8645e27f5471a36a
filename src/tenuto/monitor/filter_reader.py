"""Reads the filter language of the command line and of the page into a tree.

    filter      =  all { "or" all }
    all         =  one { "and" one }
    one         =  "not" one | "(" filter ")" | field operator value
    operator    =  "=" | "!=" | "<" | "<=" | ">" | ">=" | "~"
    field       =  word | string
    value       =  word | string | "/" regular expression "/", after "~" only

It decides nothing: what a tree holds for is in `filters`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from typing import NoReturn

from tenuto.errors import FilterError
from tenuto.jobs.text import safe, width
from tenuto.monitor.filters import (
    KEYWORDS,
    WORD,
    And,
    Compare,
    Filter,
    Form,
    Not,
    Or,
    Value,
    compiled_pattern,
    quoted,
)

LONGEST = 4_000
DEEPEST = 50
_SPACE = re.compile(r"\s*")
_OPERATOR = re.compile(r"<=|>=|!=|=|<|>|~")
_STRING = re.compile(r""""((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)\'""", re.DOTALL)
_REGEX = re.compile(r"/((?:\\.|[^/\\])*)/", re.DOTALL)
_UNESCAPED = re.compile(r"\\(.)", re.DOTALL)


def parse_filter(
    text: str, *, choices: Mapping[str, Collection[str]] | None = None, regex: bool = True
) -> Filter:
    """The tree of a filter; a `FilterError` shows the character where the text breaks.

    `choices` names the values that a field such as ``state`` can have, so that a slip is an error and not an
    empty list. Without `regex`, regular expressions are refused: they can run for ever, and are not for a
    server that takes filters from others.
    """
    return _Reader(text, choices or {}, regex).read()


class _Reader:
    """Reads one text from left to right."""

    def __init__(self, text: str, choices: Mapping[str, Collection[str]], regex: bool) -> None:
        self.text = text
        self.at = 0
        self.choices = choices
        self.regex = regex

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
        while self.keyword("and"):
            parts.append(self.one(depth))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

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
        field = self.word_or_string("a field, such as state, task or the name of a tag").text
        self.skip()
        found = _OPERATOR.match(self.text, self.at)
        if found is None:
            self.refuse(f"expected one of = != < <= > >= ~ after {field!r}")
        self.at = found.end()
        self.skip()
        start = self.at
        value = self.regular_expression() if found[0] == "~" else None
        value = value or self.word_or_string("a value")
        self.check_choice(field, found[0], value, start)
        return Compare(field, found[0], value)

    def word_or_string(self, expected: str) -> Value:
        self.skip()
        if string := _STRING.match(self.text, self.at):
            self.at = string.end()
            return Value(
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
        return Value(word[0], Form.WORD)

    def regular_expression(self) -> Value | None:
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
        return Value(found[1], Form.REGEX)

    def check_choice(self, field: str, sign: str, value: Value, position: int) -> None:
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
