"""How a setting is declared: a field of a frozen class with its kind, its default and what it means.
Knows no setting by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import field, fields
from typing import Any, NamedTuple, TypeVar

from tenuto.settings.kinds import BYTES, Kind

PREFIX = "TENUTO_"

T = TypeVar("T")


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
