"""Values as JSON: every kept value has one JSON form, from which it comes back exactly.
Configs are referred to by number; `serialization` keeps the list of them.

Plain JSON stands for itself. What JSON cannot say is an object with one key that starts
with ``$``: ``$int $float $str $path $enum $tuple $set $dict $ref``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from tenuto.errors import MalformedFile
from tenuto.light import pathlib
from tenuto.tasks.base import ConfigBase, class_name, is_config, shown
from tenuto.tasks.location import Location, find_class, locate
from tenuto.tasks.types import MAX_DEPTH

_SAFE_INT = 2**63


def to_json(value: Any, reference: Callable[[ConfigBase], int]) -> Any:
    """The JSON form of a value."""
    if value is None or isinstance(value, bool):
        return value
    if type(value) is str:
        return value if _is_text(value) else {"$str": value.encode("utf-8", "surrogatepass").hex()}
    if type(value) is int:
        return value if -_SAFE_INT < value < _SAFE_INT else {"$int": hex(value)}
    if type(value) is float:
        return value if _is_finite(value) else {"$float": repr(value)}
    if isinstance(value, ConfigBase):
        if not is_config(value):
            raise TypeError(f"{class_name(value)} is a live object: store the configuration it was made from")
        return {"$ref": reference(value)}
    if isinstance(value, enum.Enum):
        return {"$enum": [*locate(type(value)), value.name]}
    if isinstance(value, list):
        return [to_json(item, reference) for item in value]
    if isinstance(value, tuple):
        return {"$tuple": [to_json(item, reference) for item in value]}
    if isinstance(value, set):
        return {"$set": [to_json(item, reference) for item in value]}
    if isinstance(value, dict):
        if all(type(key) is str and key[:1] != "$" and _is_text(key) for key in value):
            return {key: to_json(item, reference) for key, item in value.items()}
        return {"$dict": [[to_json(key, reference), to_json(item, reference)] for key, item in value.items()]}
    if isinstance(value, pathlib.PurePath):
        return {"$path": to_json(str(value), reference)}
    raise TypeError(f"{shown(value)} cannot be stored: use what a parameter can hold")


def _is_finite(value: float) -> bool:
    return value - value == 0  # `math` would be one more library to load, for this


def _is_text(value: str) -> bool:
    """Whether JSON keeps a string as it is: it would join two lone surrogates to one character."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def from_json(data: Any, referred: Callable[[int], Any], depth: int = 0) -> Any:
    """The value that a JSON form stands for; a form that Tenuto does not write is refused."""
    if data is None or isinstance(data, str | int):
        return data
    if isinstance(data, float) and _is_finite(data):
        return data
    if depth > 2 * MAX_DEPTH:
        raise MalformedFile(f"values are nested more than {2 * MAX_DEPTH} deep")

    def inner(item: Any) -> Any:
        return from_json(item, referred, depth + 1)

    if isinstance(data, list):
        return [inner(item) for item in data]
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise MalformedFile(f"{shown(data)} is not a stored value")
    if not any(key[:1] == "$" for key in data):
        return {key: inner(item) for key, item in data.items()}
    if len(data) != 1:
        raise MalformedFile(f"{shown(data)} mixes plain and special keys")
    ((kind, content),) = data.items()
    read = _SPECIAL.get(kind)
    if read is None:
        raise MalformedFile(f"{shown(kind)} is not a kind of value that this version knows")
    try:
        if kind == "$ref":
            if type(content) is not int:
                raise TypeError
            return referred(content)
        return read(content, inner)
    except (TypeError, ValueError, KeyError) as error:
        raise MalformedFile(f"{shown(content)} is not what {kind} stands for") from error


Inner = Callable[[Any], Any]


def _items(content: Any, inner: Inner) -> list[Any]:
    if not isinstance(content, list):
        raise TypeError
    return [inner(item) for item in content]


def _dict(content: Any, inner: Inner) -> dict[Any, Any]:
    if not isinstance(content, list):
        raise TypeError
    return {inner(key): inner(item) for key, item in content}


def _enum(content: Any, _: Inner) -> enum.Enum:
    module, qualname, file, name = content
    cls = find_class(location_from(module, qualname, file))
    if not isinstance(cls, type) or not issubclass(cls, enum.Enum):
        raise MalformedFile(f"{module}.{qualname} is not an Enum")
    if not isinstance(name, str) or name not in cls.__members__:
        raise MalformedFile(f"{qualname} has no member {shown(name)}")
    return cls.__members__[name]


def _text(content: Any) -> str:
    if not isinstance(content, str):
        raise TypeError
    return content


def _float(content: Any, _: Inner) -> float:
    if content not in ("nan", "inf", "-inf"):
        raise ValueError
    return float(content)


def _str(content: Any, _: Inner) -> str:
    return bytes.fromhex(_text(content)).decode("utf-8", "surrogatepass")


def location_from(module: Any, qualname: Any, file: Any) -> Location:
    """A location read from a file, checked."""
    for part in (module, qualname, file):
        if not isinstance(part, str) or "\0" in part:
            raise MalformedFile(f"{shown(part)} is not the name of a module, class or file")
    # A script may be called my-script.py, so a module's name need not be an identifier.
    parts = module.split(".")
    if not all(parts) or "/" in module or not all(part.isidentifier() for part in qualname.split(".")):
        raise MalformedFile(f"{shown(f'{module}.{qualname}')} is not the name of a class")
    return Location(module, qualname, file)


_SPECIAL: dict[str, Callable[[Any, Inner], Any]] = {
    "$int": lambda content, _: int(_text(content), 16),
    "$float": _float,
    "$str": _str,
    "$path": lambda content, inner: pathlib.Path(_text(inner(content))),
    "$enum": _enum,
    "$tuple": lambda content, inner: tuple(_items(content, inner)),
    "$set": lambda content, inner: set(_items(content, inner)),
    "$dict": _dict,
    "$ref": lambda content, _: content,
}
