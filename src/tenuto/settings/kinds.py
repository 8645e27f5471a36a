"""The kinds of values that a setting may hold: in words, how one is taken, and how a variable's text is read.
Knows no setting.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from tenuto.light import pattern

T = TypeVar("T")


class Unfit(Exception):
    """The value is not of the kind."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """What a setting may hold: in words, how a value is taken, and how the text of a variable is read."""

    name: str
    take: Callable[[Any], T]
    read: Callable[[str], Any] = str


def _number_or_text(text: str) -> Any:
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _flag_or_text(text: str) -> Any:
    words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False}
    return {**words, "off": False}.get(text.strip().lower(), text)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _take_flag(value: Any) -> bool:
    if type(value) is not bool:
        raise Unfit
    return value


def _take_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise Unfit
    return value


def _take_path(value: Any) -> Path:
    return value if isinstance(value, Path) else Path(_take_text(value))


def _take_seconds(value: Any) -> float:
    if type(value) not in (int, float) or not (value > 0 and math.isfinite(value)):
        raise Unfit
    return float(value)


_SIZE = pattern(r"(\d{1,12})\s*(?:([KMGT])(?:i?B)?)?", re.IGNORECASE)


def _take_bytes(value: Any) -> int:
    if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
        value = int(match[1]) << 10 * ("KMGT".index(match[2].upper()) + 1 if match[2] else 0)
    if type(value) is not int or value < 1:
        raise Unfit
    return value


_VARIABLE = pattern(r"[A-Za-z_][A-Za-z0-9_]*\*?", re.ASCII)


def _take_variables(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(
        isinstance(item, str) and _VARIABLE.fullmatch(item) for item in value
    ):
        raise Unfit
    return tuple(value)


def integer(at_least: int) -> Kind[int]:
    def take(value: Any) -> int:
        if type(value) is not int or value < at_least:
            raise Unfit
        return value

    return Kind(f"an integer, at least {at_least}", take, _number_or_text)


def choice(*words: str) -> Kind[str]:
    def take(value: Any) -> str:
        if value not in words:
            raise Unfit
        return str(value)

    return Kind(" or ".join(f'"{word}"' for word in words), take)


def optional(kind: Kind[T]) -> Kind[T | None]:
    def take(value: Any) -> T | None:
        return None if value == "none" else kind.take(value)

    return Kind(f'{kind.name}, or "none"', take, kind.read)


FLAG = Kind("true or false", _take_flag, _flag_or_text)
TEXT = Kind("text", _take_text)
PATH = Kind("a path", _take_path)
SECONDS = Kind("seconds, more than 0", _take_seconds, _number_or_text)
BYTES = Kind('bytes, such as 4096 or "4G"', _take_bytes, _number_or_text)
VARIABLES = Kind("a list of names; a last * stands for any ending", _take_variables, _split)
