"""Values of a task as JSON: what `execute()` returned, and the arguments of an output that it registers.
Most are plain already: `launchers.results`, which knows all else, is loaded for other results only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tenuto.light import late

if TYPE_CHECKING:
    from tenuto.launchers import results
else:
    results = late("tenuto.launchers.results")


def kept(value: Any, stem: str, *, pickles: bool = False) -> Any:
    """The JSON form of a result; `TypeError` or `ValueError` with the reason for what cannot be kept.

    `stem`: what the paths of its files begin with. `pickles`: the task asked for pickle, where nothing else
    keeps a value.
    """
    if _is_plain(value, 0):
        return value
    return results.Encoder(stem, pickles=pickles).encoded(value)


def _is_plain(value: Any, depth: int) -> bool:
    """True for what JSON says, and gives back, as it is."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return True
    if depth > 50:
        return False
    if kind is list:
        return all(_is_plain(item, depth + 1) for item in value)
    if kind is not dict:
        return False
    return all(
        type(key) is str and key[:1] != "$" and _is_plain(item, depth + 1) for key, item in value.items()
    )


def plain(value: Any) -> Any:
    """Plain values, lists, mappings, dataclasses and NamedTuples as JSON data; `TypeError` otherwise.

    Nothing is pickled: any program can read the arguments of an output, and reading them runs nothing.
    """
    if value is None or isinstance(value, bool | str | int | float):
        return _base(value)
    if isinstance(value, Mapping):
        return {_key(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        names = getattr(value, "_fields", None)
        if names is not None:  # a NamedTuple: its names are what its reader knows it by
            return {name: plain(item) for name, item in zip(names, value, strict=True)}
        return [plain(item) for item in value]
    fields = getattr(type(value), "__dataclass_fields__", None)
    if fields is not None:
        return {name: plain(getattr(value, name)) for name in fields}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if type(value).__module__ == "numpy" and hasattr(value, "item"):  # a number of numpy's own kind
        return plain(value.tolist())
    raise TypeError(f"{type(value).__qualname__} is neither a plain value nor a dataclass")


def _base(value: Any) -> Any:
    """Without the subclass: an enum or a numpy float is a number to JSON."""
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value) if kind is not str else str.__str__(value)
    return None


def _key(key: object) -> str:
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, bool | int | float):
        return str(key)
    raise TypeError(f"a key that is a {type(key).__qualname__} cannot be kept")
