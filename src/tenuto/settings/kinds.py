"""The kinds of values that a setting may hold: in words, how one is taken, and how a variable's text is read.
Knows no setting.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tenuto.light import late, pattern, shlex
from tenuto.settings.urls import Url

if TYPE_CHECKING:
    import importlib.metadata as metadata
else:
    metadata = late("importlib.metadata")

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


def _take_lines(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Unfit
    if not all(character.isprintable() or character in "\n\t" for character in value):
        raise Unfit
    return value


def _take_number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise Unfit
    return float(value)


def _take_positive(value: Any) -> float:
    if (number := _take_number(value)) <= 0:
        raise Unfit
    return number


def _take_wait(value: Any) -> float:
    if (number := _take_number(value)) < 0:
        raise Unfit
    return number


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


def _take_words(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        try:
            value = shlex.split(_take_text(value))
        except ValueError:  # a quotation that does not end
            raise Unfit from None
    return _take_texts(value)


def _take_texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise Unfit
    return tuple(map(_take_text, value))


def _take_paths(value: Any) -> tuple[Path, ...]:
    if not isinstance(value, list | tuple):
        raise Unfit
    return tuple(map(_take_path, value))


_URL = pattern(r"([a-z][a-z0-9+.-]*)://[!-~]+", re.ASCII)
_NAME = pattern(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)
_HTTP = ("http", "https")
_SQL = ("postgresql", "postgres", "postgresql+psycopg", "sqlite")


def _take_url(value: Any, schemes: tuple[str, ...]) -> Url:
    if isinstance(value, Url):
        value = value.reveal()
    match = _URL.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[1] not in schemes:
        raise Unfit
    return Url(str(value))


def _take_database(value: Any) -> Path | Url:
    """A text with a scheme is an address; a misspelt scheme must not become a file of that name."""
    if isinstance(value, Url) or (isinstance(value, str) and "://" in value):
        return _take_url(value, _SQL)
    return _take_path(value)


def _take_nodes(value: Any) -> tuple[Url | str, ...]:
    if not isinstance(value, list | tuple):
        raise Unfit
    return tuple(map(_take_node, value))


def _take_node(value: Any) -> Url | str:
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    return Url(_take_url(value, _HTTP).reveal().rstrip("/"))


def integer(at_least: int | None = None, at_most: int | None = None) -> Kind[int]:
    def take(value: Any) -> int:
        if type(value) is not int:
            raise Unfit
        if (at_least is not None and value < at_least) or (at_most is not None and value > at_most):
            raise Unfit
        return value

    least = f", at least {at_least}" if at_least is not None else ""
    most = f", at most {at_most}" if at_most is not None else ""
    return Kind(f"an integer{least}{most}", take, _number_or_text)


def url(*schemes: str) -> Kind[Url]:
    words = " or ".join(f"{scheme}://..." for scheme in schemes)
    return Kind(f"a URL, {words}", lambda value: _take_url(value, schemes))


def choice(*words: str) -> Kind[str]:
    def take(value: Any) -> str:
        if value not in words:
            raise Unfit
        return str(value)

    return Kind(" or ".join(f'"{word}"' for word in words), take)


def choice_or_plugin(group: str, *words: str) -> Kind[str]:
    """One of some words, or the name of an entry point of a group that some distribution here has."""

    def take(value: Any) -> str:
        if value in words:
            return str(value)
        if not isinstance(value, str) or not metadata.entry_points(group=group, name=value):
            raise Unfit
        return value

    return Kind(" or ".join(f'"{word}"' for word in words) + ", or the name of a plug-in", take)


def optional(kind: Kind[T]) -> Kind[T | None]:
    def take(value: Any) -> T | None:
        return None if value == "none" else kind.take(value)

    return Kind(f'{kind.name}, or "none"', take, kind.read)


FLAG = Kind("true or false", _take_flag, _flag_or_text)
TEXT = Kind("text", _take_text)
PATH = Kind("a path", _take_path)
LINES = Kind("text, of one or more lines", _take_lines)
SECONDS = Kind("seconds, more than 0", _take_positive, _number_or_text)
WAIT = Kind("seconds, 0 or more", _take_wait, _number_or_text)
NUMBER = Kind("a number, more than 0", _take_positive, _number_or_text)
BYTES = Kind('bytes, such as 4096 or "4G"', _take_bytes, _number_or_text)
VARIABLES = Kind("a list of names; a last * stands for any ending", _take_variables, _split)
TEXTS = Kind("a list of texts", _take_texts, _split)
PATHS = Kind("a list of paths", _take_paths, _split)
WORDS = Kind("words as in a shell, or a list of them", _take_words)
NODE_URL = url(*_HTTP)
NODES = Kind("a list of URLs, http://... or https://..., and of names under `nodes`", _take_nodes, _split)
DATABASE_URL = url(*_SQL)
DATABASE = Kind("a path, or a URL of PostgreSQL", _take_database)
