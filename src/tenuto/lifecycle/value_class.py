"""Frozen, slotted, keyword-only value classes.
Stands in for `dataclasses`, whose import (it loads `inspect`) a job's process would pay for every time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, dataclass_transform

_REQUIRED: Any = object()


class _ValueType(type):
    """Turns the annotations of a class body into slots, and their values into defaults."""

    fields: dict[str, str]
    """name -> annotation, as written; inherited ones first."""
    defaults: dict[str, Any]
    slots: tuple[tuple[str, Any, Callable[[Any, Any], None]], ...]
    """(name, its default or `_REQUIRED`, what fills its slot), of every field."""

    def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> _ValueType:
        fields: dict[str, str] = {}
        defaults: dict[str, Any] = {}
        for base in bases:
            fields.update(getattr(base, "fields", {}))
            defaults.update(getattr(base, "defaults", {}))
        declared = {
            field: annotation
            for field, annotation in body.get("__annotations__", {}).items()
            if not annotation.startswith("ClassVar")
        }
        for field in declared:
            if field in body:
                defaults[field] = body.pop(field)
        fields.update(declared)
        body["__slots__"] = tuple(declared)
        made = super().__new__(mcs, name, bases, body)
        made.fields = fields
        made.defaults = defaults
        made.slots = tuple(
            (field, defaults.get(field, _REQUIRED), getattr(made, field).__set__) for field in fields
        )
        return made


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=True)
class Value(metaclass=_ValueType):
    """Base of a value class: annotate fields, give defaults, construct by keyword."""

    def __init__(self, **given: Any) -> None:
        for name, default, fill in type(self).slots:
            value = given.pop(name, default)
            if value is _REQUIRED:
                raise TypeError(f"{type(self).__name__} needs {name}=")
            fill(self, value)
        if given:
            raise TypeError(f"{type(self).__name__} has no {', '.join(given)}")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen; {name} cannot change")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen; {name} cannot go away")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), *(repr(value) for value in self._values())))

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self).fields)
        return f"{type(self).__name__}({inside})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), {name: getattr(self, name) for name in type(self).fields})

    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in type(self).fields)


def _rebuild(kind: type[Value], values: dict[str, Any]) -> Value:
    return kind(**values)
