"""Requirements: what a job needs, as alternatives in the order of preference, and the hosts that satisfy one.
Starts and chooses nothing; `selection` finds a launcher for a requirement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from tenuto.errors import RequirementError
from tenuto.light import fractions, pattern
from tenuto.tasks.arguments import guarded_by

if TYPE_CHECKING:
    from fractions import Fraction

KINDS = ("cuda", "rocm", "mps", "gpu")
"""The kinds of GPU that can be asked for; `gpu` is any of them."""
MOST = 1_000_000
"""Cores, or GPUs."""
LONGEST_S = 100 * 366 * 86_400
LARGEST_BYTES = 1 << 60
_TYPE = pattern(r"[A-Za-z0-9][\w.+-]{0,63}")
"""The type of a GPU, such as `a100` or `rtx_3090`."""

_TYPE_WORDS = pattern(r"[a-z0-9]+")
_TIMES = (("d", 86_400), ("h", 3600), ("m", 60))
_SIZES = (("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10))


@guarded_by(RequirementError)
@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs of one kind, and the memory and type that each must have."""

    kind: str = "gpu"
    count: int = 1
    memory_bytes: int | None = None
    type: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            _refuse("kind", self.kind, f"one of {', '.join(KINDS)}")
        _check_count("count", self.count)
        _check_size(self.memory_bytes)
        type_: Any = self.type
        if type_ is not None and not (isinstance(type_, str) and _TYPE.fullmatch(type_)):
            _refuse("type", type_, "such as a100 or rtx_3090")

    def __str__(self) -> str:
        said = [f"mem={size_text(self.memory_bytes)}"] if self.memory_bytes is not None else []
        said += [f"type={self.type}"] if self.type is not None else []
        each = f"({', '.join(said)})" if said else ""
        return f"{self.kind}{each}{f'*{self.count}' if self.count > 1 else ''}"


@guarded_by(RequirementError)
@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to satisfy a requirement; None leaves a quantity open.

    Of a job with several tasks `cores` are those of each task, `memory_bytes` and `gpus` those of each node.
    """

    duration_s: float | None = None
    cores: int | None = None
    memory_bytes: int | None = None
    gpus: Gpus | None = None
    nodes: int | None = None
    tasks: int | None = None
    """Processes in all, which its program starts on its nodes, on each as many."""

    def __post_init__(self) -> None:
        duration = self.duration_s
        if duration is not None and not (
            type(duration) in (int, float) and math.isfinite(duration) and 0 < duration <= LONGEST_S
        ):
            _refuse("duration_s", duration, f"seconds, more than 0 and at most {LONGEST_S}")
        for name in ("cores", "nodes", "tasks"):
            if getattr(self, name) is not None:
                _check_count(name, getattr(self, name))
        if self.tasks is not None and self.tasks % (self.nodes or 1):
            _refuse("tasks", self.tasks, f"a multiple of nodes, which is {self.nodes}")
        _check_size(self.memory_bytes)
        gpus: Any = self.gpus
        if gpus is not None and not isinstance(gpus, Gpus):
            _refuse("gpus", gpus, "Gpus(...)")
        if all(getattr(self, name) is None for name in self.__slots__):
            raise RequirementError("an alternative asks for something: give it at least one value", "", 0)

    def __str__(self) -> str:
        cpu = [f"cores={self.cores}"] if self.cores is not None else []
        cpu += [f"mem={size_text(self.memory_bytes)}"] if self.memory_bytes is not None else []
        terms = [f"duration={time_text(self.duration_s)}"] if self.duration_s is not None else []
        terms += [f"cpu({', '.join(cpu)})"] if cpu else []
        terms += [str(self.gpus)] if self.gpus is not None else []
        terms += [f"nodes={self.nodes}"] if self.nodes is not None else []
        terms += [f"tasks={self.tasks}"] if self.tasks is not None else []
        return " & ".join(terms)

    @property
    def tasks_per_node(self) -> int:
        return (self.tasks or 1) // (self.nodes or 1) or 1

    @property
    def cores_per_node(self) -> int:
        return (self.cores or 1) * self.tasks_per_node


def time_text(seconds: float) -> str:
    """A duration as the language writes it: ``1h30m``, ``2d``, ``0.5s``."""
    rest = fractions.Fraction(repr(seconds))
    text = ""
    for unit, length in _TIMES:
        number, rest = divmod(rest, length)
        text += f"{number}{unit}" if number else ""
    return f"{text}{_decimal(rest)}s" if rest else text


def size_text(size: int) -> str:
    """A size as the language writes it, in the largest unit of which it is a whole number."""
    unit, length = next((known for known in _SIZES if size % known[1] == 0), _SIZES[-1])
    return f"{_decimal(fractions.Fraction(size, length))}{unit}"


def about_size(size: int) -> str:
    """The size of a machine, which is rarely a round number."""
    return f"{size / (1 << 30):.1f}G" if size >= 1 << 30 else f"{size / (1 << 20):.0f}M"


def _decimal(number: Fraction) -> str:
    """The digits of a fraction that has finitely many, without an exponent."""
    whole, rest = divmod(number, 1)
    text = str(whole)
    digits = ""
    while rest:
        digit, rest = divmod(rest * 10, 1)
        digits += str(digit)
    return f"{text}.{digits}" if digits else text


def as_fraction(digits: str) -> Fraction:
    """A number of the language, exactly."""
    return fractions.Fraction(digits)


def _check_count(name: str, count: Any) -> None:
    if type(count) is not int or not 0 < count <= MOST:
        _refuse(name, count, f"an integer from 1 to {MOST}")


def _check_size(size: Any) -> None:
    if size is not None and (type(size) is not int or not 0 < size <= LARGEST_BYTES):
        _refuse("memory_bytes", size, f"an integer from 1 to {LARGEST_BYTES}")


def _refuse(name: str, value: Any, expected: str) -> None:
    text = repr(value)[:60]
    raise RequirementError(f"{name} must be {expected}, not {text}", text, 0)


# Reads the requirement language: `duration=4h & cpu(cores=8, mem=32G) & cuda(mem=24G)*2 | duration=1h`.
# It makes alternatives of a text, or says where the text breaks; it decides nothing.
#
#   requirement = alternative { "|" alternative }     alternative = term { "&" term }
#   term  = "duration" "=" time | "cpu" "(" arg {"," arg} ")" | kind [ "(" each {"," each} ")" ] [ "*" count ]
#         | "nodes" "=" count | "tasks" "=" count
#   arg   = "cores" "=" count | "mem" "=" size        kind = "cuda" | "rocm" | "mps" | "gpu"
#   each  = "mem" "=" size | "type" "=" name          name = such as a100 or rtx_3090
#   time  = number unit { number unit }               size = number unit


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
_TERM = "duration=, cpu(...), nodes=, tasks= or one of " + ", ".join(KINDS)


class Lexeme(NamedTuple):
    """A number, a word, a sign, or the end of the text (empty)."""

    text: str
    kind: str
    position: int


def read_alternatives(text: str) -> tuple[Alternative, ...]:
    """The alternatives of a requirement, in order; a `RequirementError` shows where the text breaks."""
    if len(text) > LONGEST:
        refuse(text[:LONGEST], 0, f"the requirement is longer than {LONGEST} characters")
    return tuple(RequirementReader(text).requirement())


def refuse(text: str, position: int, problem: str) -> NoReturn:
    """Raises the error: the text, and below it a pointer with the expected words."""
    before, after = _plain(text[:position]), _plain(text[position:])
    before = before if len(before) <= _SHOWN else "..." + before[3 - _SHOWN :]
    after = after if len(after) <= _SHOWN else after[: _SHOWN - 3] + "..."
    raise RequirementError(f"{before}{after}\n{' ' * len(before)}^ {problem}", text, position)


def _plain(text: str) -> str:
    """Text whose characters all take one cell of a terminal, and none of which steers it."""
    return "".join(c if c.isascii() and c.isprintable() else ascii(c)[1:-1] for c in text)


class RequirementReader:
    """Reads one text from left to right, one lexeme ahead."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.next = self._lexeme(0)

    def _lexeme(self, position: int) -> Lexeme:
        found = _TOKEN.search(self.text, position)
        if found is None:
            return Lexeme("", "end", len(self.text.rstrip()))
        return Lexeme(found[0], str(found.lastgroup), found.start())

    def requirement(self) -> Iterator[Alternative]:
        yield self.alternative()
        while self.next.text == "|":
            self.take()
            yield self.alternative()
        if self.next.kind != "end":
            self.refuse("expected '&', '|' or the end")

    def alternative(self) -> Alternative:
        said: dict[str, Any] = {}
        self.term(said)
        while self.next.text == "&":
            self.take()
            self.term(said)
        return Alternative(**said)

    def term(self, said: dict[str, Any]) -> None:
        word = self.next
        if word.text == "duration":
            self.value(said, "duration_s", self.time)
        elif word.text == "cpu":
            self.take()
            self.inside(self.argument, said)
        elif word.text in KINDS:
            self.once(said, "gpus", "GPUs")
            said["gpus"] = self.gpus(word.text)
        elif word.text in ("nodes", "tasks"):
            at = self.value(said, word.text, self.count)
            nodes, tasks = said.get("nodes"), said.get("tasks")
            if nodes is not None and tasks is not None and tasks % nodes:
                self.refuse(f"tasks={tasks} is no multiple of nodes={nodes}", at)
        else:
            self.refuse(f"expected {_TERM}")

    def argument(self, said: dict[str, Any]) -> None:
        self.one_of(said, cores=("cores", self.count), mem=("memory_bytes", self.size))

    def gpus(self, kind: str) -> Gpus:
        said: dict[str, Any] = {}
        if self.next.text == "(":
            self.inside(self.each, said)
        if self.next.text == "*":
            self.take()
            said["count"] = self.count()
        return Gpus(kind, **said)

    def each(self, said: dict[str, Any]) -> None:
        self.one_of(said, mem=("memory_bytes", self.size), type=("type", self.name))

    def one_of(self, said: dict[str, Any], **words: tuple[str, Callable[[], Any]]) -> None:
        if self.next.text not in words:
            self.refuse(f"expected {' or '.join(f'{word}=' for word in words)}")
        self.value(said, *words[self.next.text])

    def inside(self, one: Callable[[dict[str, Any]], None], said: dict[str, Any]) -> None:
        """Reads what stands in parentheses, with commas between."""
        self.expect("(")
        one(said)
        while self.next.text == ",":
            self.take()
            one(said)
        self.expect(")", "expected ',' or ')'")

    def value(self, said: dict[str, Any], key: str, read: Callable[[], Any]) -> Lexeme:
        """Reads a word, `=` and what it is; returns where that began."""
        self.once(said, key, self.next.text)
        self.expect("=")
        at = self.next
        said[key] = read()
        return at

    def name(self) -> str:
        found = _TYPE.match(self.text, self.next.position)
        if found is None:
            self.refuse("expected the type of a GPU, such as a100")
        self.next = Lexeme(found[0], "word", found.start())
        return self.take().text

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

    def once(self, said: dict[str, Any], key: str, name: str) -> None:
        if key in said:
            self.refuse(f"{name} said twice; separate alternatives by '|'")
        self.take()

    def expect(self, sign: str, problem: str | None = None) -> None:
        if self.next.text != sign:
            self.refuse(problem or f"expected {sign!r}")
        self.take()

    def take(self) -> Lexeme:
        taken = self.next
        self.next = self._lexeme(taken.position + len(taken.text))
        self.behind = taken._replace(position=taken.position + len(taken.text))
        return taken

    def refuse(self, problem: str, at: Lexeme | None = None) -> NoReturn:
        refuse(self.text, (at or self.next).position, problem)


@guarded_by(RequirementError)
@dataclass(frozen=True, slots=True)
class Gpu:
    """A device of a host."""

    kind: str
    memory_bytes: int
    type: str = ""
    """As its maker or the site calls it, such as `NVIDIA A100-SXM4-80GB`."""


@guarded_by(RequirementError)
@dataclass(frozen=True, slots=True)
class Host:
    """What a machine, or a partition of a cluster, offers to one job; None is without limit."""

    cores: int | None = None
    memory_bytes: int | None = None
    gpus: tuple[Gpu, ...] = ()
    max_duration_s: float | None = None
    least_gpus: int = 0
    """Jobs that ask for fewer GPUs are not wanted here."""
    priority: int = 0
    """Of two hosts that fit, the one with the larger number is chosen."""
    nodes: int | None = None
    """How many such hosts one job may have."""


@dataclass(frozen=True, slots=True)
class Match:
    """How a host satisfies a requirement; of several matches the largest score is the best."""

    alternative: Alternative
    score: tuple[float, ...]


@guarded_by(RequirementError)
@dataclass(frozen=True, slots=True)
class Requirement:
    """What a job needs: alternatives, the preferred one first. ``str()`` is canonical and reads back."""

    alternatives: tuple[Alternative, ...]

    def __post_init__(self) -> None:
        given: Any = self.alternatives
        if not isinstance(given, tuple) or not given or not all(isinstance(a, Alternative) for a in given):
            told = f"a requirement is a tuple of one or more alternatives, not {given!r:.60}"
            raise RequirementError(told, "", 0)

    @classmethod
    def parse(cls, text: Any) -> Requirement:
        """Reads a text such as ``"duration=4h & cuda*2 | duration=1d"``; returns a requirement as it is.

        Raises `RequirementError`, with the position of the first character that cannot be.
        """
        if isinstance(text, Requirement):
            return text
        if not isinstance(text, str):
            shown = f"{type(text).__name__}: {text!r:.60}"
            raise RequirementError(f"a requirement is a text, such as 'cpu(cores=2)', not {shown}", "", 0)
        return cls(read_alternatives(text))

    def __str__(self) -> str:
        return " | ".join(map(str, self.alternatives))

    def __and__(self, other: Requirement) -> Requirement:
        """Both: each alternative of the one joined with each of the other; nothing may be said by both."""
        if not isinstance(other, Requirement):
            return NotImplemented
        pairs = [f"{mine} & {its}" for mine in self.alternatives for its in other.alternatives]
        return Requirement(tuple(joined for pair in pairs for joined in read_alternatives(pair)))

    def __or__(self, other: Requirement) -> Requirement:
        """Either: the alternatives of this one first."""
        if not isinstance(other, Requirement):
            return NotImplemented
        return Requirement(self.alternatives + other.alternatives)

    def match(self, host: Host) -> Match | None:
        """How a host satisfies this requirement: by the first alternative that fits; None if none does."""
        for number, alternative in enumerate(self.alternatives):
            if unfit(alternative, host) is None:
                return Match(alternative, (-number, host.priority, -_waste(alternative, host)))
        return None


class Devices(NamedTuple):
    """Which devices of a host a job gets."""

    chosen: tuple[int, ...]
    wasted_bytes: int


def choose_devices(gpus: Gpus, host: Host) -> Devices | None:
    """Positions of the smallest devices that fit, none twice; None if there are too few."""
    fitting = sorted(
        (device.memory_bytes, position)
        for position, device in enumerate(host.gpus)
        if gpus.kind in ("gpu", device.kind)
        and device.memory_bytes >= (gpus.memory_bytes or 0)
        and is_type(gpus.type, device.type)
    )[: gpus.count]
    if len(fitting) < gpus.count:
        return None
    wasted = sum(size - (gpus.memory_bytes or 0) for size, _ in fitting)
    return Devices(tuple(position for _, position in fitting), wasted)


def is_type(wanted: str | None, type_: str) -> bool:
    """True if a device is of a type: `a100` is `NVIDIA A100-SXM4-80GB`, and `a10` is not."""
    return set(_TYPE_WORDS.findall((wanted or "").lower())) <= set(_TYPE_WORDS.findall(type_.lower()))


def unfit(alternative: Alternative, host: Host) -> str | None:
    """Why a host cannot run an alternative; None if it can."""
    cores, memory, gpus = alternative.cores_per_node, alternative.memory_bytes, alternative.gpus
    if host.nodes is not None and (alternative.nodes or 1) > host.nodes:
        return f"{alternative.nodes} nodes are asked for, and it has {host.nodes}"
    if host.cores is not None and cores > host.cores:
        return f"{cores} cores are asked for, and it offers {host.cores}"
    if memory is not None and host.memory_bytes is not None and memory > host.memory_bytes:
        return f"{size_text(memory)} of memory are asked for, and it offers {about_size(host.memory_bytes)}"
    duration = alternative.duration_s
    if duration is not None and host.max_duration_s is not None and duration > host.max_duration_s:
        return f"{time_text(duration)} are asked for, and it allows {time_text(host.max_duration_s)}"
    if (gpus.count if gpus else 0) < host.least_gpus:
        return f"it is for jobs with at least {host.least_gpus} GPUs"
    if gpus is not None and choose_devices(gpus, host) is None:
        return f"{gpus} is asked for, and it has {_devices(host)}"
    return None


def _waste(alternative: Alternative, host: Host) -> float:
    """How much of a host a job would leave unused, from 0 to about 3."""
    waste = 0.0
    if host.cores:
        waste += 1 - alternative.cores_per_node / host.cores
    if host.memory_bytes:
        waste += 1 - (alternative.memory_bytes or 0) / host.memory_bytes
    everything = sum(device.memory_bytes for device in host.gpus)
    if everything:
        gpus = alternative.gpus
        devices = choose_devices(gpus, host) if gpus else None
        used = sum(host.gpus[position].memory_bytes for position in devices.chosen) if devices else 0
        waste += 1 - (used - (devices.wasted_bytes if devices else 0)) / everything
    return waste


def _devices(host: Host) -> str:
    if not host.gpus:
        return "no GPU"
    return ", ".join(
        f"{device.kind}(mem={about_size(device.memory_bytes)}{device.type and f', type={device.type}'})"
        for device in host.gpus
    )


__all__ = ["KINDS", "Alternative", "Gpu", "Gpus", "Host", "Match", "Requirement", "choose_devices", "unfit"]
