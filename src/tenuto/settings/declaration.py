"""How a setting is declared: a field of a frozen class with its kind, its default and its meaning.
A kind describes its values, takes one, and reads a variable's text.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from tenuto.light import late, pattern, shlex
from tenuto.settings.urls import HiddenUrl, Url

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
    if isinstance(value, str) and "://" in value:  # an address must not become a file of that name
        raise Unfit
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


_DURATION = pattern(r"(\d+(?:\.\d+)?)\s*([smhd])", re.IGNORECASE)
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _take_duration(value: Any) -> float:
    if isinstance(value, str):
        parts = _DURATION.findall(value)
        if "".join(f"{number}{unit}" for number, unit in parts) != value.replace(" ", ""):
            raise Unfit
        value = sum(float(number) * _UNITS_S[unit.lower()] for number, unit in parts)
    return _take_positive(value)


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


def _take_table_of_words(value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise Unfit
    taken = {}
    for name, one in value.items():
        if type(one) not in (str, int):
            raise Unfit
        taken[_take_text(name)] = _take_text(str(one))
    return MappingProxyType(taken)


def _take_paths(value: Any) -> tuple[Path, ...]:
    if not isinstance(value, list | tuple):
        raise Unfit
    return tuple(map(_take_path, value))


_URL = pattern(r"([a-z][a-z0-9+.-]*)://[!-~]+", re.ASCII)
_NAME = pattern(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)
_HTTP = ("http", "https")
_HTTP_URL = pattern(
    r"https?://(?:[^/?#]*@)?(\[[0-9A-Fa-f:.]+(?:%[\w.~-]+)?\]|[^][/?#:@]+)(?::([0-9]{1,5}))?(?:[/?#].*)?"
)
_LARGEST_PORT = 65535
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


def _take_server(value: Any) -> Url:
    """The URL of a server, whose host and port can be asked: of any other only a later call would fail."""
    taken = _take_url(value, _HTTP)
    found = _HTTP_URL.fullmatch(taken.reveal())
    if found is None or int(found[2] or 0) > _LARGEST_PORT:
        raise Unfit
    return taken


def _take_node(value: Any) -> Url | str:
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    return Url(_take_server(value).reveal().rstrip("/"))


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


def some_of(*words: str) -> Kind[tuple[str, ...]]:
    """A list of some of these words."""

    def take(value: Any) -> tuple[str, ...]:
        found = _take_texts(value)
        if any(word not in words for word in found):
            raise Unfit
        return found

    return Kind(f"a list of {', '.join(words)}", take, _split)


def choice_or_plugin(group: str, *words: str) -> Kind[str]:
    """One of some words, or the name of an entry point of a group that some distribution here has."""

    def take(value: Any) -> str:
        if value in words:
            return str(value)
        if not isinstance(value, str) or not metadata.entry_points(group=group, name=value):
            raise Unfit
        return value

    told = " or ".join(f'"{word}"' for word in words)
    return Kind(f"{told}, or the name of a cluster or of a plug-in", take)


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
DURATION = Kind('seconds, or a time such as "2d" or "1h30m"', _take_duration, _number_or_text)
BYTES = Kind('bytes, such as 4096 or "4G"', _take_bytes, _number_or_text)
VARIABLES = Kind("a list of names; a last * stands for any ending", _take_variables, _split)
TEXTS = Kind("a list of texts", _take_texts, _split)
PATHS = Kind("a list of paths", _take_paths, _split)
TABLE_OF_WORDS = Kind("a table of texts", _take_table_of_words)
WORDS = Kind("words as in a shell, or a list of them", _take_words)
NODE_URL = Kind(url(*_HTTP).name, _take_server)
NODES = Kind("a list of URLs, http://... or https://..., and of names under `nodes`", _take_nodes, _split)
HIDDEN_URL = Kind(NODE_URL.name, lambda value: HiddenUrl(_take_url(value, _HTTP).reveal()))
DATABASE_URL = url(*_SQL)
DATABASE = Kind("a path, or a URL of PostgreSQL", _take_database)


PREFIX = "TENUTO_"


class Declared(NamedTuple):
    """One row of the table of settings."""

    key: str
    kind: Kind[Any]
    default: str
    meaning: str
    foreign: str = ""
    """A variable of another program that sets it too, where `load_settings` is asked for those."""

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return PREFIX + self.key.replace(".", "__").upper()


def setting(kind: Kind[T], default: T, meaning: str, *, foreign: str = "", default_text: str = "") -> T:
    """A setting with a default. ``default_text`` says it in words, where the value alone does not."""
    text = default_text or _default_text(kind, default)
    metadata = {"kind": kind, "meaning": meaning, "default_text": text, "foreign": foreign}
    return field(default=default, metadata=metadata)


def found_setting(kind: Kind[T], factory: Callable[[], T], default_text: str, meaning: str) -> T:
    """A setting whose default depends on the machine."""
    metadata = {"kind": kind, "meaning": meaning, "default_text": default_text}
    return field(default_factory=factory, metadata=metadata)


def required_setting(kind: Kind[T], meaning: str) -> T:
    """A setting of a named table that must be given."""
    declared: T = field(metadata={"kind": kind, "meaning": meaning, "default_text": ""})
    return declared


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def rows(cls: Any, prefix: str) -> Iterator[Declared]:
    """The settings that a class declares."""
    for one in fields(cls):
        said = one.metadata
        if "kind" in said:
            yield Declared(
                prefix + one.name,
                said["kind"],
                said["default_text"],
                said["meaning"],
                said.get("foreign", ""),
            )


def _default_text(kind: Kind[Any], default: Any) -> str:
    if default is None:
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    if kind is BYTES:
        return _size_text(default)
    return f"[{', '.join(map(str, default))}]" if isinstance(default, tuple) else str(default)


def _size_text(size: int) -> str:
    for shift, unit in ((40, "T"), (30, "G"), (20, "M"), (10, "K")):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)
