"""Reads the requirement language: `duration=4h & cpu(cores=8, mem=32G) & cuda(mem=24G)*2 | duration=1h`.
It makes alternatives of a text, or says where the text breaks; it decides nothing.

    requirement = alternative { "|" alternative }     alternative = term { "&" term }
    term  = "duration" "=" time | "cpu" "(" arg {"," arg} ")" | kind [ "(" "mem" "=" size ")" ] [ "*" count ]
    arg   = "cores" "=" count | "mem" "=" size        kind = "cuda" | "rocm" | "mps" | "gpu"
    time  = number unit { number unit }               size = number unit
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from tenuto.errors import RequirementError
from tenuto.launchers.requirements_values import (
    KINDS,
    LARGEST_BYTES,
    LONGEST_S,
    MOST,
    Alternative,
    Gpus,
    as_fraction,
)
from tenuto.light import fractions, pattern

if TYPE_CHECKING:
    from fractions import Fraction

LONGEST = 4_000
_SHOWN = 60

_TOKEN = pattern(r"(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<word>[^\W\d_]+)|(?P<sign>\S)")
_TIME_UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86_400),
}
_SIZE_UNITS = {
    f"{letter}{ending}": 1 << 10 * power
    for power, letter in enumerate("kmgt", 1)
    for ending in ("", "b", "ib")
}
_TERM = "duration=, cpu(...) or one of " + ", ".join(KINDS)


class Lexeme(NamedTuple):
    """A number, a word, a sign, or the end of the text (empty)."""

    text: str
    kind: str
    position: int


def read_alternatives(text: str) -> tuple[Alternative, ...]:
    """The alternatives of a requirement, in order; a `RequirementError` shows where the text breaks."""
    if len(text) > LONGEST:
        refuse(text[:LONGEST], 0, f"the requirement is longer than {LONGEST} characters")
    return tuple(_Reader(text).requirement())


def refuse(text: str, position: int, problem: str) -> NoReturn:
    """Raises the error: the text, and below it a pointer with what was expected."""
    before, after = _plain(text[:position]), _plain(text[position:])
    before = before if len(before) <= _SHOWN else "..." + before[3 - _SHOWN :]
    after = after if len(after) <= _SHOWN else after[: _SHOWN - 3] + "..."
    raise RequirementError(f"{before}{after}\n{' ' * len(before)}^ {problem}", text, position)


def _plain(text: str) -> str:
    """Text whose characters all take one cell of a terminal, and none of which steers it."""
    return "".join(c if c.isascii() and c.isprintable() else ascii(c)[1:-1] for c in text)


class _Reader:
    """Reads one text from left to right, one lexeme ahead."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lexemes = self._lexemes()
        self.next = next(self.lexemes)

    def _lexemes(self) -> Iterator[Lexeme]:
        for found in _TOKEN.finditer(self.text):
            yield Lexeme(found[0], str(found.lastgroup), found.start())
        end = Lexeme("", "end", len(self.text.rstrip()))
        while True:
            yield end

    def requirement(self) -> Iterator[Alternative]:
        yield self.alternative()
        while self.next.text == "|":
            self.take()
            yield self.alternative()
        if self.next.kind != "end":
            self.refuse("expected '&', '|' or the end")

    def alternative(self) -> Alternative:
        said: dict[str, object] = {}
        self.term(said)
        while self.next.text == "&":
            self.take()
            self.term(said)
        return Alternative(**said)  # type: ignore[arg-type]

    def term(self, said: dict[str, object]) -> None:
        word = self.next
        if word.text == "duration":
            self.once(said, "duration_s", "duration")
            self.expect("=")
            said["duration_s"] = self.time()
        elif word.text == "cpu":
            self.take()
            self.expect("(")
            self.argument(said)
            while self.next.text == ",":
                self.take()
                self.argument(said)
            self.expect(")", "expected ',' or ')'")
        elif word.text in KINDS:
            self.once(said, "gpus", "GPUs")
            said["gpus"] = self.gpus(word.text)
        else:
            self.refuse(f"expected {_TERM}")

    def argument(self, said: dict[str, object]) -> None:
        if self.next.text == "cores":
            self.once(said, "cores", "cores")
            self.expect("=")
            said["cores"] = self.count()
        elif self.next.text == "mem":
            self.once(said, "memory_bytes", "mem")
            self.expect("=")
            said["memory_bytes"] = self.size()
        else:
            self.refuse("expected cores= or mem=")

    def gpus(self, kind: str) -> Gpus:
        memory, count = None, 1
        if self.next.text == "(":
            self.take()
            self.expect("mem")
            self.expect("=")
            memory = self.size()
            self.expect(")")
        if self.next.text == "*":
            self.take()
            count = self.count()
        return Gpus(kind, count, memory)

    def time(self) -> float:
        total = fractions.Fraction(0)
        first = self.next
        while self.next.kind == "number" or not total:
            number = self.number("a time, such as 4h or 1h30m")
            total += number * self.unit(_TIME_UNITS, "s, m, h or d", "number")
        if total > LONGEST_S:
            self.refuse("this duration is too long", first)
        if not float(total):
            self.refuse("this duration is too short", first)
        return float(total)

    def size(self) -> int:
        first = self.next
        number = self.number("a size, such as 32G")
        size = -(-(number * self.unit(_SIZE_UNITS, "K, M, G or T", "size")) // 1)
        if size > LARGEST_BYTES:
            self.refuse("this size is too large", first)
        return int(size)

    def count(self) -> int:
        lexeme = self.next
        if lexeme.kind != "number":
            self.refuse("expected a number: 1, 2, ...")
        if not lexeme.text.isdecimal() or not 0 < as_fraction(lexeme.text) <= MOST:
            self.refuse(f"expected an integer from 1 to {MOST}")
        return int(self.take().text)

    def number(self, expected: str) -> Fraction:
        if self.next.kind != "number":
            self.refuse(f"expected {expected}")
        number = as_fraction(self.next.text)
        if not number:
            self.refuse("expected a number more than 0")
        self.take()
        return number

    def unit(self, units: dict[str, int], names: str, what: str) -> int:
        if self.next.kind != "word":
            # Behind the number, wherever the next lexeme stands: that is where the unit belongs.
            self.refuse(f"this {what} has no unit: expected {names}", self.behind)
        found = units.get(self.next.text.lower())
        if found is None:
            self.refuse(f"expected a unit: {names}")
        self.take()
        return found

    def once(self, said: dict[str, object], key: str, name: str) -> None:
        if key in said:
            self.refuse(f"{name} said twice; separate alternatives by '|'")
        self.take()

    def expect(self, sign: str, problem: str | None = None) -> None:
        if self.next.text != sign:
            self.refuse(problem or f"expected {sign!r}")
        self.take()

    def take(self) -> Lexeme:
        taken, self.next = self.next, next(self.lexemes)
        self.behind = taken._replace(position=taken.position + len(taken.text))
        return taken

    def refuse(self, problem: str, at: Lexeme | None = None) -> NoReturn:
        refuse(self.text, (at or self.next).position, problem)
