"""Options of a script: values that `tenuto run -c name=value` changes, declared by `options()`.
Reads what the command line imposed; a script that is run by itself, and every job, has the defaults.
"""

from __future__ import annotations

import difflib
import pathlib
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from enum import Enum
from typing import Any, Generic, TypeVar

from tenuto.errors import InvalidOption, ParameterError, UnknownParameter
from tenuto.tasks.arguments import refused
from tenuto.tasks.base import caller

T = TypeVar("T")
_BOOLS = {"true": True, "false": False}


class Sweep(list[T], Generic[T]):
    """The default of an option that has several values."""


def sweep(*values: T) -> list[T]:
    """Declares an option with several values: ``options(lr=sweep(0.1))`` takes ``-c lr=0.1,0.01``.

    `values`: its defaults, all of one type, one at least.
    """
    if not values:
        raise ParameterError(f"sweep() needs a value at least, at {caller()}: as in sweep(0.1)")
    kinds = {type(value) for value in values}
    if kinds == {int, float}:
        return Sweep(map(float, values))  # type: ignore[arg-type]
    if len(kinds) > 1:
        raise refused("sweep()", "values of one type", values)
    return Sweep(values)


class Options:
    """The options of a script, each an attribute; they cannot be changed."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UnknownParameter(f"there is no option {name!r}; {_known(name, self.__dict__)}, at {caller()}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise ParameterError(f"the option {name} cannot be set, at {caller()}: give it by -c {name}=...")

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self.__dict__.items())

    def __repr__(self) -> str:
        return f"Options({', '.join(f'{name}={value!r}' for name, value in self)})"


class GivenOptions:
    """What the command line says: texts by name, and which names the script has declared so far."""

    def __init__(self, given: Iterable[str]) -> None:
        """`given`: each ``name=value``; `InvalidOption` for a text of another form."""
        self._texts: dict[str, str] = {}
        self._declared: set[str] = set()
        for one in given:
            name, sign, text = one.partition("=")
            name = name.strip()
            if not sign or not name:
                raise InvalidOption(f"-c {one}: write it as name=value, such as -c lr=0.1")
            if name in self._texts:
                raise InvalidOption(f"-c {name} is given twice: give it once, a sweep as -c {name}=1,2")
            self._texts[name] = text

    def value(self, name: str, default: Any) -> Any:
        """The value of a declared option; `InvalidOption` for a text that is none of its type."""
        self._declared.add(name)
        if name not in self._texts:
            return list(default) if isinstance(default, Sweep) else default
        text = self._texts[name]
        read = _reader(name, default[0] if isinstance(default, Sweep) else default)
        if not isinstance(default, Sweep):
            return read(text)
        return [read(part.strip()) for part in text.split(",")]

    def check(self) -> None:
        """Refuses names that the script has not declared."""
        for name in self._texts.keys() - self._declared:
            raise InvalidOption(
                f"-c {name}: the script declares no option {name!r}: {_known(name, self._declared)}. "
                f"It declares options before its experiment, as in `options({name}=0.1)`"
            )


given_options: ContextVar[GivenOptions | None] = ContextVar("tenuto_options", default=None)
"""Set by `tenuto run` and `tenuto plan`."""


def options(**defaults: Any) -> Options:
    """Declares values that the command line can change: ``options(lr=0.1).lr`` is 0.1, or what ``-c`` says.

    `defaults`: name -> default, whose type the value has: bool, int, float, str, Path or an enum; or
    ``sweep(...)``, for a list. Call it in the main part of a script, before the experiment is opened.
    """
    given = given_options.get() or GivenOptions(())
    for name, default in defaults.items():
        _reader(name, default[0] if isinstance(default, Sweep) else default)
    return Options({name: given.value(name, default) for name, default in defaults.items()})


def _reader(name: str, default: Any) -> Callable[[str], Any]:
    """Reads the text of an option by the type of its default; `ParameterError` for a type that has none."""
    kind: Any = type(default)
    is_path = isinstance(default, pathlib.PurePath)
    if kind not in (bool, int, float, str) and not is_path and not isinstance(default, Enum):
        more = "; for several values write sweep(...)" if isinstance(default, list | tuple | set) else ""
        raise refused(
            f"options({name}=)", f"a bool, int, float, str, Path or member of an enum{more}", default
        )

    def read(text: str) -> Any:
        try:
            if kind is bool:
                return _BOOLS[text.strip().lower()]
            if isinstance(default, Enum):
                return kind[text] if text in kind.__members__ else {str(one.value): one for one in kind}[text]
            if kind is str or is_path:
                if not text:
                    raise ValueError("empty")
                return text if kind is str else kind(text)
            return kind(text)
        except (ValueError, KeyError):
            expected = {bool: "true or false", int: "a whole number", float: "a number"}.get(kind)
            if isinstance(default, Enum):
                expected = f"one of {', '.join(kind.__members__)}"
            several = " (one value: the script declares no sweep)" if "," in text else ""
            raise InvalidOption(
                f"-c {name}={text}: {name} expects {expected or 'a text'}, not {text!r}{several}"
            ) from None

    return read


def _known(name: str, names: Iterable[str]) -> str:
    known = sorted(names)
    near = difflib.get_close_matches(name, known, 1)
    if near:
        return f"did you mean {near[0]}?"
    return f"there are {', '.join(known)}" if known else "it declares none"
