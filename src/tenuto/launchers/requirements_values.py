"""What a job needs of the machine that runs it, as values: an alternative, and the GPUs in it.
Reads no text (`requirements_text` does), and knows no launcher.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tenuto.errors import RequirementError
from tenuto.light import fractions

if TYPE_CHECKING:
    from fractions import Fraction

KINDS = ("cuda", "rocm", "mps", "gpu")
"""The kinds of GPU that can be asked for; `gpu` is any of them."""
MOST = 1_000_000
"""Cores, or GPUs."""
LONGEST_S = 100 * 366 * 86_400
LARGEST_BYTES = 1 << 60

_TIMES = (("d", 86_400), ("h", 3600), ("m", 60))
_SIZES = (("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10))


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs of one kind, and the memory that each must have."""

    kind: str = "gpu"
    count: int = 1
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            _refuse("kind", self.kind, f"one of {', '.join(KINDS)}")
        _check_count("count", self.count)
        _check_size(self.memory_bytes)

    def __str__(self) -> str:
        memory = f"(mem={size_text(self.memory_bytes)})" if self.memory_bytes is not None else ""
        return f"{self.kind}{memory}{f'*{self.count}' if self.count > 1 else ''}"


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to satisfy a requirement; None is what it leaves open."""

    duration_s: float | None = None
    cores: int | None = None
    memory_bytes: int | None = None
    gpus: Gpus | None = None

    def __post_init__(self) -> None:
        duration = self.duration_s
        if duration is not None and not (
            type(duration) in (int, float) and math.isfinite(duration) and 0 < duration <= LONGEST_S
        ):
            _refuse("duration_s", duration, f"seconds, more than 0 and at most {LONGEST_S}")
        if self.cores is not None:
            _check_count("cores", self.cores)
        _check_size(self.memory_bytes)
        gpus: Any = self.gpus
        if gpus is not None and not isinstance(gpus, Gpus):
            _refuse("gpus", gpus, "Gpus(...)")
        if duration is None and self.cores is None and self.memory_bytes is None and self.gpus is None:
            raise RequirementError("an alternative asks for something: give it at least one value", "", 0)

    def __str__(self) -> str:
        cpu = [f"cores={self.cores}"] if self.cores is not None else []
        cpu += [f"mem={size_text(self.memory_bytes)}"] if self.memory_bytes is not None else []
        terms = [f"duration={time_text(self.duration_s)}"] if self.duration_s is not None else []
        terms += [f"cpu({', '.join(cpu)})"] if cpu else []
        terms += [str(self.gpus)] if self.gpus is not None else []
        return " & ".join(terms)


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
