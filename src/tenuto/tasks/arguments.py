"""Arguments of public functions, checked at the call: natural spellings are understood, all else is refused.
It knows no function: `guarded` reads what a function declares, and a caller may say which argument it checks.
"""

from __future__ import annotations

import builtins
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import wraps
from typing import Any, TypeVar

from tenuto.errors import InvalidValue, ParameterError
from tenuto.tasks.base import caller, shown

E = TypeVar("E", bound=Enum)
F = TypeVar("F", bound=Callable[..., Any])


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
    if not is_whole(given) or given < least:
        raise refused(what, f"a whole number of at least {least}", given)
    return int(given)


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
    """A value that does not fit: the expected type, the given value, and where inside the value."""

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


# What a function declares: read from its annotations at its first call, asked at each.

Fits = Callable[[Any], bool]
_LARGEST_BITS = 1023
"""Of a whole number that a float can hold."""
_MORE, _MORE_NAMED = 0x04, 0x08
"""Flags of a function's code that has ``*args`` or ``**named``, as `inspect` names them."""


def guarded(target: F, error: type[Exception] = InvalidValue) -> F:
    """Has a function check its arguments at the call; of a class the constructor and the public methods.

    `error` names the parameter, its annotation and the given value, before a line has run. What an
    annotation cannot say is the function's own to check; `Any` is not looked at.
    """
    if not isinstance(target, type):
        wrapped: F = _guarded(target, error)
        return wrapped
    for name, made in list(vars(target).items()):
        if name.startswith("_") and name not in ("__init__", "__call__"):
            continue
        if isinstance(made, staticmethod | classmethod):
            setattr(target, name, type(made)(_guarded(made.__func__, error)))
        elif isinstance(made, types.FunctionType) and not hasattr(made, "__wrapped__"):
            setattr(target, name, _guarded(made, error))
    return target


def guarded_by(error: type[Exception]) -> Callable[[F], F]:
    """As `guarded`, where wrong arguments have an error of their own."""
    return lambda target: guarded(target, error)


def _guarded(function: Any, error: type[Exception]) -> Any:
    checks: tuple[list[Any], dict[str, Any], Any, Any] | None = None

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        nonlocal checks
        if checks is None:
            checks = _checks(function)
        positional, by_name, further, other = checks
        for check, value in zip(positional, given, strict=False):
            if check is not None and not check[1](value):
                raise error(_unfit(function, check, value, given))
        for name, value in named.items():
            check = by_name.get(name, other)
            if check is not None and not check[1](value):
                raise error(_unfit(function, (check[0], check[1], name), value, given))
        if further is not None:
            for value in given[len(positional) :]:
                if not further[1](value):
                    raise error(_unfit(function, further, value, given))
        return function(*given, **named)

    return call


def _unfit(function: Any, check: Any, wrong: Any, given: Sequence[Any]) -> str:
    expected, _, name = check
    where = function.__qualname__
    if function.__name__ == "__init__" and given:
        where = type(given[0]).__qualname__  # as the caller wrote it, also if the constructor is inherited
    return f"{where}({name}=) expects {expected}, but got {shown(wrong)}, at {caller()}"


def _checks(function: Any) -> tuple[list[Any], dict[str, Any], Any, Any]:
    """The checks of a function: by position, by name, of ``*args`` and of ``**named``; None for no check."""
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    names, space = code.co_varnames, _Names(function.__globals__)
    declared: dict[str, Any] = {}
    for name, annotation in function.__annotations__.items():
        if name not in ("self", "return"):
            read = eval(annotation, {}, space) if isinstance(annotation, str) else annotation
            fit = _fit(read)
            declared[name] = None if fit is None else (*fit, name)
    has_more = bool(code.co_flags & _MORE)
    return (
        [declared.get(name) for name in names[: code.co_argcount]],
        {name: declared.get(name) for name in names[:count]},
        declared.get(names[count]) if has_more else None,
        declared.get(names[count + has_more]) if code.co_flags & _MORE_NAMED else None,
    )


class _Unread:
    """Classes that only type checkers import, by their names, and what an annotation has beside them."""

    def __init__(self, *options: Any) -> None:
        self.options = options

    def __getitem__(self, _arguments: Any) -> _Unread:
        return self

    def __getattr__(self, name: str) -> _Unread:
        return _Unread(name)

    def __or__(self, other: Any) -> _Unread:
        return _Unread(*self.options, *(other.options if isinstance(other, _Unread) else (other,)))

    __ror__ = __or__


class _Names(dict[str, Any]):
    """The names of a module, and a stand-in for each that it does not have while it runs."""

    def __missing__(self, name: str) -> Any:
        if name in ("Path", "Self"):
            return os.PathLike if name == "Path" else Any
        return getattr(builtins, name, None) or _Unread(name)


def _fit(annotation: Any) -> tuple[str, Fits] | None:
    """What an annotation expects, in words, and whether a value is that; None where everything is."""
    if annotation is None or annotation is type(None):
        return "None", lambda value: value is None
    if annotation in (Any, object):
        return None
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if isinstance(annotation, str):
        return annotation, lambda value: any(one.__name__ == annotation for one in type(value).__mro__)
    if isinstance(annotation, TypeVar):
        return _any_of(annotation.__constraints__ or (annotation.__bound__ or Any,))
    if isinstance(annotation, _Unread):
        return _any_of(annotation.options)
    origin, inner = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if origin is typing.Union or origin is types.UnionType:
        return _any_of(inner)
    if origin is typing.Literal:
        return f"one of {', '.join(map(repr, inner))}", lambda value: value in inner
    if origin is Callable:
        return "a function", callable
    if origin is type:
        return _class_of(inner[0])
    if not isinstance(origin, type):
        return None
    if hasattr(origin, "__fspath__"):
        return "a path", lambda value: hasattr(value, "__fspath__")
    if issubclass(origin, Mapping):
        return _mapping_of(inner)
    if issubclass(origin, Iterable) and inner:
        return _items_of(origin, inner)
    if getattr(origin, "_is_protocol", False):
        return _protocol(origin)
    return _a(origin.__name__), lambda value: isinstance(value, origin)


def _any_of(options: Sequence[Any]) -> tuple[str, Fits] | None:
    read = [_fit(option) for option in options]
    fits = [one for one in read if one is not None]
    if len(fits) < len(read):
        return None
    words = list(dict.fromkeys(words for words, _ in fits))
    expected = " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
    return expected, lambda value: any(accepts(value) for _, accepts in fits)


def _class_of(base: Any) -> tuple[str, Fits]:
    base = typing.get_origin(base) or base
    base = getattr(base, "__bound__", base) or object
    if not isinstance(base, type):
        return "a class", lambda value: isinstance(value, type)
    return f"a class of {base.__name__}", lambda value: isinstance(value, type) and issubclass(value, base)


def _mapping_of(inner: Sequence[Any]) -> tuple[str, Fits]:
    key, item = (_fit(one) for one in inner or (Any, Any))
    words = " to ".join(one[0] if one else "anything" for one in (key, item))
    return (
        f"a mapping of {words}",
        lambda value: (
            isinstance(value, Mapping)
            and (key is None or all(map(key[1], value)))
            and (item is None or all(map(item[1], value.values())))
        ),
    )


def _items_of(origin: type, inner: Sequence[Any]) -> tuple[str, Fits]:
    """Several values; a generator, which gives them once, is not looked at."""
    if origin is tuple and inner[-1] is not Ellipsis:
        parts = [_fit(one) for one in inner]
        return (
            f"{len(parts)} values in a tuple",
            lambda value: (
                isinstance(value, tuple | list)
                and len(value) == len(parts)
                and all(part is None or part[1](one) for part, one in zip(parts, value, strict=True))
            ),
        )
    item = _fit(inner[0])
    one_fits: Fits = item[1] if item else bool
    kind = "a tuple" if origin is tuple else "a list"

    def fits(value: Any) -> bool:
        if isinstance(value, str | bytes | (Mapping if origin is not Iterable else bytes)):
            return False
        is_array = origin is Sequence and hasattr(value, "__getitem__") and hasattr(value, "__len__")
        is_looked_at = item is not None and isinstance(value, list | tuple | set | frozenset | Mapping)
        return (is_array or isinstance(value, origin)) and (not is_looked_at or all(map(one_fits, value)))

    return (f"{kind} of {item[0]}" if item else kind), fits


def _protocol(origin: type) -> tuple[str, Fits]:
    """An object with the methods of a protocol."""
    bases = [one for one in origin.__mro__ if getattr(one, "_is_protocol", False)]
    names = {name for one in bases for name in (*vars(one), *vars(one).get("__annotations__", ()))}
    needed = [name for name in names if name == "__call__" or not name.startswith("_")]
    return _a(
        origin.__name__
    ), lambda value: not isinstance(value, type) and all(hasattr(value, name) for name in needed)


def _a(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def _is_number(value: Any) -> bool:
    """Whether a value is a number that a float can hold."""
    if isinstance(value, int) and value.bit_length() > _LARGEST_BITS:
        return False
    return (hasattr(type(value), "__float__") and not isinstance(value, bool)) or is_whole(value)


def is_whole(value: Any) -> bool:
    """True for a whole number, also one of NumPy."""
    return hasattr(type(value), "__index__") and not isinstance(value, bool)


_PLAIN: dict[Any, tuple[str, Fits]] = {
    str: ("text", lambda value: isinstance(value, str)),
    bytes: ("bytes", lambda value: isinstance(value, bytes | bytearray)),
    bool: ("True or False", lambda value: type(value).__name__ in ("bool", "bool_")),
    int: ("a whole number", is_whole),
    float: ("a number", _is_number),
}
