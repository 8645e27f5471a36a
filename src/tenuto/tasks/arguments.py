"""Arguments of public functions, checked at the call: natural spellings are understood, all else is refused.
It knows no function: the caller says which argument it checks.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

from tenuto.errors import ParameterError
from tenuto.tasks.base import caller, shown

E = TypeVar("E", bound=Enum)


def member(kind: type[E], given: Any, what: str) -> E:
    """A member of an enum, also by its name or its value as text; `ParameterError` for anything else."""
    if isinstance(given, kind):
        return given
    if isinstance(given, str):
        wanted = given.strip().replace("-", "_").replace(" ", "_").casefold()
        for one in kind:
            if wanted == one.name.casefold() or given == one.value:
                return one
    names = ", ".join(repr(one.name.lower()) for one in kind)
    raise refused(what, f"one of {names}, or a member of {kind.__name__}", given)


def whole_number(given: Any, what: str, *, least: int = 0) -> int:
    """A whole number that is large enough; `ParameterError` for anything else, also for its text."""
    if type(given) is not int or given < least:
        raise refused(what, f"a whole number of at least {least}", given)
    return given


def seconds(given: Any, what: str) -> float:
    """A duration that is not negative; `ParameterError` for anything else."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0:
        raise refused(what, "seconds, as a number of at least 0", given)
    return float(given)


def flag(given: Any, what: str) -> bool:
    """True or False; `ParameterError` for anything else."""
    if not isinstance(given, bool):
        raise refused(what, "True or False", given)
    return given


def text(given: Any, what: str) -> str:
    """Text that is not empty; `ParameterError` for anything else."""
    if not isinstance(given, str) or not given.strip():
        raise refused(what, "text that is not empty", given)
    return given


def function(given: Any, what: str) -> Callable[..., Any]:
    """Something that can be called; `ParameterError` for anything else."""
    if not callable(given):
        raise refused(what, "a function", given)
    called: Callable[..., Any] = given
    return called


def refused(what: str, expected: str, given: Any) -> ParameterError:
    """The error for an argument that cannot be used."""
    return ParameterError(f"{what} expects {expected}, but got {shown(given)}, at {caller()}")


def check_variable(name: object, value: object) -> None:
    """Raise `ValueError` for what no process can have in its environment."""
    if not isinstance(name, str) or not isinstance(value, str):
        raise ValueError(f"a variable and its value are text, not {name!r:.60} and {value!r:.60}: use str()")
    if not name or "=" in name or "\0" in name:
        raise ValueError(f"{name!r:.60} cannot name a variable: it is empty, or has a = or a NUL in it")
    if "\0" in value:
        raise ValueError(f"the value of {name} has a NUL in it, which no variable can have")
    try:
        os.fsencode(name), os.fsencode(value)
    except UnicodeEncodeError as error:
        raise ValueError(f"{name!r:.60} cannot be a variable of a process: {error.reason}") from None


class Mismatch(Exception):
    """A value that does not fit: what was expected, what came, and where inside the value."""

    def __init__(self, expected: str, given: object, where: str = "", hint: str = "") -> None:
        super().__init__(expected)
        self.expected = expected
        self.given = given
        self.where = where
        self.hint = hint

    def inside(self, where: str) -> Mismatch:
        """The same mismatch, seen from the container."""
        return Mismatch(self.expected, self.given, where + self.where, self.hint)


def describe(mismatch: Mismatch) -> str:
    """``expects int, but got 'x' (str)``, with the place inside the value and the hint."""
    place = f" at {mismatch.where}" if mismatch.where else ""
    hint = f"; {mismatch.hint}" if mismatch.hint else ""
    return f"expects {mismatch.expected}{place}, but got {shown(mismatch.given)}{hint}"
