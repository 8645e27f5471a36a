"""The types a parameter may have: how a value is checked and brought to its kept form.
It checks values; it does not know which parameter they are for.
"""

from __future__ import annotations

import enum
import operator
import sys
import types
import typing
from collections.abc import Callable
from typing import Any, Literal, NoReturn, TypeVar, Union

from tenuto.errors import DeclarationError
from tenuto.light import NamedTuple, pathlib
from tenuto.tasks.arguments import Mismatch
from tenuto.tasks.base import ConfigBase, is_config, key_text

# Read-only lists, dicts and sets: how a config keeps its containers.
# They hold values only; nothing here knows what a config is.
#
# A config's identity is remembered once computed. That is only safe when a list inside it
# cannot change behind its back, so a config keeps a read-only copy of every container.


def _refuse(self: object, *_args: object, **_kwargs: object) -> NoReturn:
    kind = type(self).__mro__[1].__name__
    raise TypeError(
        f"a {kind} inside a config cannot be changed in place: assign a new {kind} to the parameter"
    )


class FrozenList(list[Any]):
    """A list that refuses to change."""

    __slots__ = ()

    append = extend = insert = remove = pop = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse


class FrozenDict(dict[Any, Any]):
    """A dict that refuses to change."""

    __slots__ = ()

    clear = pop = popitem = setdefault = update = _refuse
    __setitem__ = __delitem__ = __ior__ = _refuse


class FrozenSet(set[Any]):
    """A set that refuses to change, yet is a ``set`` for `isinstance`."""

    __slots__ = ()

    add = clear = discard = pop = remove = update = _refuse
    difference_update = intersection_update = symmetric_difference_update = _refuse
    __iand__ = __ior__ = __isub__ = __ixor__ = _refuse

    def __repr__(self) -> str:
        return repr(set(self))


MAX_DEPTH = 64
"""How deep containers may be nested in one value (configs may be nested without limit)."""
Convert = Callable[[Any], Any]


class ValueType(NamedTuple):
    """A declared type: its name, how it takes a value, and whether configs may hide in it."""

    name: str
    convert: Convert
    holds_configs: bool = False


Resolve = Callable[[Any], Any]
"""Turns a forward reference or a type variable into its meaning."""
Conforms = Callable[[Any, Any], object]
"""Checks a config against a generic type such as ``Box[int]``; raises `Mismatch`."""


def _int(value: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise Mismatch("int", value)
    return operator.index(value)


def _float(value: Any) -> float:
    if type(value) is float:
        return value
    if isinstance(value, float):
        return float(value)
    try:
        return float(_int(value))
    except (Mismatch, OverflowError):
        raise Mismatch("float", value) from None


def _str(value: Any) -> str:
    if type(value) is str:
        return value
    if isinstance(value, enum.Enum) or not isinstance(value, str):
        raise Mismatch("str", value)
    return str(value)


def _bool(value: Any) -> bool:
    kind = type(value)
    if kind is bool or (kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_")):
        return bool(value)
    raise Mismatch("bool", value)


def _none(value: Any) -> None:
    if value is not None:
        raise Mismatch("None", value)


def _path(value: Any) -> pathlib.Path:
    if type(value) is str or isinstance(value, pathlib.PurePath):
        if "\0" in str(value):
            raise Mismatch("Path", value, hint="a path cannot contain a NUL character")
        return pathlib.Path(value)
    raise Mismatch("Path", value)


def _anything(value: Any, depth: int = 0) -> Any:
    """Any value that a config can keep: what an unbound type variable accepts."""
    if value is None or type(value) in (int, str, float, bool) or is_config(value):
        return value
    if depth > MAX_DEPTH:
        raise Mismatch(f"containers nested at most {MAX_DEPTH} deep", value)
    deeper = depth + 1
    if isinstance(value, enum.Enum):
        return _member(value)
    if isinstance(value, list):
        return FrozenList([_anything(item, deeper) for item in value])
    if isinstance(value, tuple):
        return tuple([_anything(item, deeper) for item in value])
    if isinstance(value, set | frozenset):
        return FrozenSet([_hashable(_anything(item, deeper)) for item in value])
    if isinstance(value, dict):
        return FrozenDict({_key(_anything(k, deeper)): _anything(v, deeper) for k, v in value.items()})
    if isinstance(value, pathlib.PurePath):
        return _path(value)
    for convert in (_int, _float, _str):
        try:
            return convert(value)
        except Mismatch:
            continue
    hint = ""
    if isinstance(value, ConfigBase):
        hint = f"this is a live object: pass a configuration, made by {type(value).__name__}.C(...)"
    raise Mismatch("a value that can be stored", value, hint=hint)


def _key(value: Any) -> Any:
    if is_config(value):
        raise Mismatch("a key that is not a config", value)
    return _hashable(value)


def _hashable(value: Any) -> Any:
    """A frozenset is kept as a set, which Python cannot look up: refused inside sets and keys."""
    try:
        hash(value)
    except TypeError:
        raise Mismatch("a key or element that is not a set", value, hint="use a sorted tuple") from None
    return value


def _member(value: enum.Enum) -> enum.Enum:
    if value.name not in type(value).__members__:
        hint = "combined flags have no name of their own: use set[...] of the members"
        raise Mismatch(f"a member of {type(value).__name__}", value, hint=hint)
    return value


SCALARS: dict[Any, ValueType] = {
    int: ValueType("int", _int),
    float: ValueType("float", _float),
    str: ValueType("str", _str),
    bool: ValueType("bool", _bool),
    None: ValueType("None", _none),
    type(None): ValueType("None", _none),
    Any: ValueType("any value", _anything, True),
    object: ValueType("any value", _anything, True),
}
_PATH = ValueType("Path", _path)


def _is_path(annotation: Any) -> bool:
    """A program that names the type has loaded its module, which most tasks do without."""
    loaded = sys.modules.get("pathlib")
    return loaded is not None and annotation is loaded.Path


def value_type(annotation: Any, resolve: Resolve, conforms: Conforms) -> ValueType:
    """Reads a type annotation; refuses a type that a config cannot keep."""

    def read(inner: Any) -> ValueType:
        return value_type(inner, resolve, conforms)

    annotation = resolve(annotation)
    try:
        known = SCALARS.get(annotation)
    except TypeError:
        known = None
    if known is not None:
        return known
    if _is_path(annotation):
        return _PATH
    if isinstance(annotation, TypeVar):
        if annotation.__constraints__:
            return _union([read(option) for option in annotation.__constraints__])
        return read(annotation.__bound__ or Any)
    if hasattr(annotation, "__supertype__"):
        return read(annotation.__supertype__)
    if hasattr(annotation, "__value__"):
        return read(annotation.__value__)

    origin = typing.get_origin(annotation) or annotation
    arguments = typing.get_args(annotation)
    if origin is typing.Annotated:
        return read(arguments[0])
    if origin is Literal:
        return _literal(arguments)
    if origin is Union or origin is types.UnionType:
        return _union([read(option) for option in arguments])
    if isinstance(origin, type):
        if origin is tuple and annotation == tuple[()]:
            return _tuple(((),), read)
        if origin in _CONTAINERS:
            return _CONTAINERS[origin](arguments, read)
        if issubclass(origin, enum.Enum):
            return _enum(origin)
        if issubclass(origin, ConfigBase):
            return _config(origin, arguments, annotation, conforms)
    raise DeclarationError(
        f"{annotation!r} cannot be the type of a parameter: use int, str, float, bool, Path, an Enum, "
        f"list, set, dict, tuple, Optional, Union, Literal, or a Config class"
    )


def _list(arguments: tuple[Any, ...], read: Callable[[Any], ValueType]) -> ValueType:
    item = read(arguments[0] if arguments else Any)

    def convert(value: Any) -> FrozenList:
        if not isinstance(value, list):
            raise Mismatch(name, value)
        return FrozenList(_each(item.convert, value))

    name = f"list[{item.name}]"
    return ValueType(name, convert, item.holds_configs)


def _set(arguments: tuple[Any, ...], read: Callable[[Any], ValueType]) -> ValueType:
    item = read(arguments[0] if arguments else Any)

    def convert(value: Any) -> FrozenSet:
        if not isinstance(value, set | frozenset):
            raise Mismatch(name, value)
        return FrozenSet(_each(lambda given: _hashable(item.convert(given)), value))

    name = f"set[{item.name}]"
    return ValueType(name, convert, item.holds_configs)


def _dict(arguments: tuple[Any, ...], read: Callable[[Any], ValueType]) -> ValueType:
    key, value_of = (read(argument) for argument in arguments or (Any, Any))

    def convert(value: Any) -> FrozenDict:
        if not isinstance(value, dict):
            raise Mismatch(name, value)
        kept = {}
        for given_key, item in value.items():
            try:
                kept_key = _key(key.convert(given_key))
                if kept_key in kept:
                    raise Mismatch("keys that differ once converted", given_key)
                kept[kept_key] = value_of.convert(item)
            except Mismatch as mismatch:
                raise mismatch.inside(f"[{key_text(given_key)}]") from None
        return FrozenDict(kept)

    name = f"dict[{key.name}, {value_of.name}]"
    return ValueType(name, convert, value_of.holds_configs)


def _tuple(arguments: tuple[Any, ...], read: Callable[[Any], ValueType]) -> ValueType:
    if not arguments or arguments[-1] is Ellipsis:
        item = read(arguments[0] if arguments else Any)

        def convert_any(value: Any) -> tuple[Any, ...]:
            if not isinstance(value, tuple):
                raise Mismatch(f"tuple[{item.name}, ...]", value)
            return tuple(_each(item.convert, value))

        return ValueType(f"tuple[{item.name}, ...]", convert_any, item.holds_configs)

    items = [] if arguments == ((),) else [read(argument) for argument in arguments]
    name = f"tuple[{', '.join(item.name for item in items)}]"

    def convert(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, tuple) or len(value) != len(items):
            raise Mismatch(name, value)
        kept = []
        for position, (item, given) in enumerate(zip(items, value, strict=True)):
            try:
                kept.append(item.convert(given))
            except Mismatch as mismatch:
                raise mismatch.inside(f"[{position}]") from None
        return tuple(kept)

    return ValueType(name, convert, any(item.holds_configs for item in items))


_CONTAINERS: dict[type, Callable[[tuple[Any, ...], Callable[[Any], ValueType]], ValueType]] = {
    list: _list,
    set: _set,
    dict: _dict,
    tuple: _tuple,
}


def _each(convert: Convert, values: Any) -> list[Any]:
    kept = []
    for position, value in enumerate(values):
        try:
            kept.append(convert(value))
        except Mismatch as mismatch:
            raise mismatch.inside(f"[{position}]") from None
    return kept


def _union(options: list[ValueType]) -> ValueType:
    name = " | ".join(dict.fromkeys(option.name for option in options))

    def convert(value: Any) -> Any:
        """The first option that keeps the value's type, else the first that takes it."""
        taken: list[Any] = []
        for option in options:
            try:
                kept = option.convert(value)
            except Mismatch:
                continue
            if type(kept) is type(value):
                return kept
            taken.append(kept)
        if not taken:
            raise Mismatch(name, value)
        return taken[0]

    return ValueType(name, convert, any(option.holds_configs for option in options))


def _literal(choices: tuple[Any, ...]) -> ValueType:
    name = f"Literal[{', '.join(map(repr, choices))}]"

    def convert(value: Any) -> Any:
        for choice in choices:
            if type(choice) is type(value) and choice == value:
                return choice
        raise Mismatch(name, value)

    return ValueType(name, convert)


def _enum(cls: type[enum.Enum]) -> ValueType:
    def convert(value: Any) -> enum.Enum:
        if not isinstance(value, cls):
            raise Mismatch(cls.__name__, value, hint=f"give a member such as {next(iter(cls))}")
        return _member(value)

    return ValueType(cls.__name__, convert)


def _config(
    cls: type[ConfigBase], arguments: tuple[Any, ...], annotation: Any, conforms: Conforms
) -> ValueType:
    name = cls.__name__

    def convert(value: Any) -> ConfigBase:
        if not isinstance(value, cls):
            raise Mismatch(name, value)
        if not type(value).__is_config__:
            hint = f"this is a live object: pass a configuration, made by {type(value).__name__}.C(...)"
            raise Mismatch(name, value, hint=hint)
        if arguments:
            conforms(value, annotation)
        return value

    return ValueType(name, convert, True)
