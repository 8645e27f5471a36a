"""Parts of the standard library in a form that costs nothing to load.
For what every job imports; what only some programs load may use the plain modules.
"""

import gc
import re
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any


def import_module(name: str) -> ModuleType:
    """The module of that name, as `importlib` has it, which would have to be loaded itself."""
    __import__(name)
    return sys.modules[name]


def late(name: str) -> Any:
    """Stands for a module, which is loaded when something of it is first asked for.

    Beside it, under `TYPE_CHECKING`, stands the plain import of the same module under the same name: the type
    checker and the test of imports read that one. A library that may be missing is `Any` instead.
    """
    return _Late(name)


def on_demand(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package whose names are imported when they are first asked for.

    `modules`: the module of each name. Beside them, under `TYPE_CHECKING`, stand the plain imports.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        # All that is made stays: to look for garbage meanwhile takes a tenth of the time.
        is_enabled = gc.isenabled()
        gc.disable()
        try:
            value = getattr(import_module(modules[name]), name)
        finally:
            if is_enabled:
                gc.enable()
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *modules})


class _Late:
    __slots__ = ("_module", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: ModuleType | None = None

    def __getattr__(self, attribute: str) -> Any:
        if self._module is None:
            self._module = import_module(self._name)
        return getattr(self._module, attribute)


if TYPE_CHECKING:
    import ctypes
    import difflib
    import fcntl
    import fractions
    import hashlib
    import importlib.util as importlib_util
    import pathlib
    import shlex
    import shutil
    import signal
    import struct
    import tomllib
    from hashlib import sha256
else:
    # `signal` makes enums of all its numbers first, which takes 1 ms, and then of every mask that it returns,
    # which in a process just forked is dozens of pages to copy.
    import _signal as signal

    ctypes = late("ctypes")
    difflib = late("difflib")
    fcntl = late("fcntl")
    fractions = late("fractions")
    hashlib = late("hashlib")  # for files: it is faster where there is much to digest
    importlib_util = late("importlib.util")
    pathlib = late("pathlib")
    shlex = late("shlex")
    shutil = late("shutil")
    struct = late("struct")
    tomllib = late("tomllib")

    # `hashlib` loads OpenSSL first, which takes 3 ms. The interpreter has its own code for the same digest.
    try:
        sha256 = import_module("_sha2" if sys.version_info >= (3, 12) else "_sha256").sha256
    except ImportError:
        sha256 = hashlib.sha256


def pattern(text: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """A pattern that is compiled when it is first used: to compile one takes as long as to load a module."""
    return _Pattern(text, flags)  # type: ignore[return-value]


class _Pattern:
    def __init__(self, text: str, flags: re.RegexFlag) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, attribute: str) -> Any:
        found = self.__dict__[attribute] = getattr(re.compile(self._text, self._flags), attribute)
        return found


if TYPE_CHECKING or sys.version_info >= (3, 14):  # there the body of a class no longer has its annotations
    from typing import NamedTuple
else:
    from _collections import _tuplegetter

    class _Maker(type):
        def __new__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, space)
            fields = tuple(space.get("__annotations__", ()))
            defaults = {field: space.pop(field) for field in fields if field in space}
            if tuple(defaults) != fields[len(fields) - len(defaults) :]:
                raise TypeError(f"in {name} a field without a default follows one that has a default")
            for index, field in enumerate(fields):
                space[field] = _tuplegetter(index, "")
            fixed = {
                "__slots__": (),
                "_fields": fields,
                "__match_args__": fields,
                "_field_defaults": defaults,
            }
            return type(name, (tuple,), {**_METHODS, **space, **fixed})

    class NamedTuple(metaclass=_Maker):
        """The `NamedTuple` of `typing`, whose constructors are compiled when they are first called.

        `typing` compiles each, and every annotation that is a text: 0.1 ms a class. A job loads fifty.
        """

    def _construct(cls: Any, /, *values: Any, **named: Any) -> Any:
        """The constructor of a class until its first call, which puts the compiled one in its place."""
        own = next(one for one in cls.__mro__ if "_fields" in vars(one))
        fields = "".join(f"{field}, " for field in own._fields)
        made = eval(f"lambda _cls, {fields}: _new(_cls, ({fields}))", {"_new": tuple.__new__})
        made.__defaults__ = tuple(own._field_defaults.values()) or None
        made.__name__, made.__qualname__ = "__new__", f"{own.__qualname__}.__new__"
        own.__new__ = staticmethod(made)
        return made(cls, *values, **named)

    def _replace(self: Any, /, **named: Any) -> Any:
        replaced = tuple.__new__(type(self), map(named.pop, self._fields, self))
        if named:
            raise ValueError(f"Got unexpected field names: {list(named)!r}")
        return replaced

    def _repr(self: Any) -> str:
        fields = ", ".join(f"{field}={value!r}" for field, value in self._asdict().items())
        return f"{type(self).__name__}({fields})"

    _METHODS: dict[str, Any] = {
        "__new__": _construct,
        "__repr__": _repr,
        "__getnewargs__": lambda self: (*self,),
        "_asdict": lambda self: dict(zip(self._fields, self, strict=True)),
        "_make": classmethod(lambda cls, values: cls(*values)),
        "_replace": _replace,
        "__replace__": _replace,
    }


_SAMPLE = {"text": "\u00e9", "numbers": [1, 1.5], "none": None}


def json_encoder(item: str, key: str, *, allow_nan: bool = True) -> Callable[[object], str]:
    """What `json.JSONEncoder.encode` does, with these separators, by a C encoder that is made once.

    `json` makes one for each value, which takes longer than to use it.
    """
    json: Any = import_module("json.encoder")
    plain = json.JSONEncoder(separators=(item, key), allow_nan=allow_nan)
    encode: Callable[[object], str] = plain.encode
    escaped = json.encode_basestring_ascii
    try:
        made = json.c_make_encoder(None, plain.default, escaped, None, key, item, False, False, allow_nan)
        if "".join(made(_SAMPLE, 0)) != encode(_SAMPLE):
            return encode
    except TypeError:  # this Python has none, or makes it in another way
        return encode

    def encoded(value: object) -> str:
        try:
            return "".join(made(value, 0))
        except RecursionError:
            return encode(value)  # which says whether it is a circle

    return encoded


__all__ = [
    "NamedTuple",
    "ctypes",
    "difflib",
    "fcntl",
    "fractions",
    "hashlib",
    "import_module",
    "importlib_util",
    "json_encoder",
    "late",
    "on_demand",
    "pathlib",
    "pattern",
    "sha256",
    "shlex",
    "shutil",
    "signal",
    "struct",
    "tomllib",
]
