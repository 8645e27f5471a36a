"""The result of `execute()`, as JSON from which each value comes back with its type, or not at all.
Plain JSON stands for itself; all else is an object with one key that starts with ``$``, as in `tasks.values`.
Every form is of one exact class: a subclass has no form, since its value would come back as another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tenuto.errors import MalformedFile, NoResult, TenutoError
from tenuto.launchers.codecs import CODECS, codecs_for
from tenuto.light import late, pathlib
from tenuto.tasks.location import find_class, locate
from tenuto.tasks.values import location_from
from tenuto.workspace.flags import RESULT_NOT_KEPT

if TYPE_CHECKING:
    import base64
    import collections
    import datetime
    import decimal
    import enum
    import zoneinfo

    from tenuto.workspace import attempt_files, layout, markers
    from tenuto.workspace.ports import Files
else:
    base64 = late("base64")
    collections = late("collections")
    datetime = late("datetime")
    decimal = late("decimal")
    enum = late("enum")
    zoneinfo = late("zoneinfo")
    attempt_files = late("tenuto.workspace.attempt_files")
    layout = late("tenuto.workspace.layout")
    markers = late("tenuto.workspace.markers")
numpy: Any = late("numpy")
pandas: Any = late("pandas")

_DEEPEST = 200
_PLAIN = (bool, int, float)
_SEQUENCES = {tuple: "$tuple", set: "$set", frozenset: "$frozenset"}
_FACTORIES = {
    made.__name__: made for made in (bool, bytes, dict, float, frozenset, int, list, set, str, tuple)
}
"""What the missing keys of a defaultdict are made by, if it is kept."""


class Encoder:
    """Turns one result into JSON, and writes the files that belong to it."""

    def __init__(self, stem: str, *, pickles: bool = False) -> None:
        """`stem`: what the paths of files begin with. `pickles`: what nothing else keeps is pickled."""
        self._stem = stem
        self._pickles = pickles
        self._files: list[str] = []

    def encoded(self, value: Any, depth: int = 0) -> Any:
        """The JSON form of a value; `TypeError` or `ValueError` for what would not come back as it is."""
        kind = type(value)
        if value is None or kind in _PLAIN or (kind is str and is_text(value)):
            return value
        if depth > _DEEPEST:
            raise ValueError(f"it is nested more than {_DEEPEST} deep")

        def inner(item: Any) -> Any:
            return self.encoded(item, depth + 1)

        if kind is list:
            return [inner(item) for item in value]
        if kind is dict:
            return _mapping(value, inner)
        form = _container(value, inner) or _leaf(value)
        return self._in_file(value) if form is None else form

    def discard(self) -> None:
        """Removes the files of a result that cannot be kept."""
        for path in self._files:
            _remove(path)

    def _in_file(self, value: Any) -> Any:
        problem: Exception | None = None
        for codec in codecs_for(value, pickles=self._pickles):
            path = f"{self._stem}-{len(self._files) + 1}.{codec.suffix}"
            self._files.append(path)
            try:
                codec.write(path, value)
            except (TypeError, ValueError) as error:
                problem = problem or error
                _remove(self._files.pop())
                continue
            shape = getattr(value, "shape", None)
            shown = type(value).__name__
            if isinstance(shape, tuple) and shape:
                shown = f"{shown} of {' x '.join(map(str, shape))}"
            return {"$file": {"codec": codec.name, "name": os.path.basename(path), "shown": shown}}
        raise problem or TypeError(_refusal(value))


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)


def is_text(text: str) -> bool:
    """False for halves of characters, of which JSON makes whole ones."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _refusal(value: Any) -> str:
    kind = type(value)
    base = next((one for one in kind.__mro__[1:-1] if one.__module__ == "builtins"), None)
    if base is None:
        return f"{kind.__qualname__} is of no kind that is kept: return plain values, arrays or frames of it"
    return f"{kind.__qualname__} would come back as {base.__name__}: return one, as in {base.__name__}(...)"


def _mapping(value: Mapping[Any, Any], inner: Callable[[Any], Any]) -> Any:
    if all(type(key) is str and key[:1] != "$" and is_text(key) for key in value):
        return {key: inner(item) for key, item in value.items()}
    return {"$dict": _pairs(value, inner)}


def _pairs(value: Mapping[Any, Any], inner: Callable[[Any], Any]) -> list[Any]:
    return [[inner(key), inner(item)] for key, item in value.items()]


def _container(value: Any, inner: Callable[[Any], Any]) -> Any:
    """The form of what holds other values; None for what does not."""
    kind: Any = type(value)
    if kind in _SEQUENCES:
        return {_SEQUENCES[kind]: [inner(item) for item in value]}
    if kind.__module__ == "collections":
        if kind in (collections.OrderedDict, collections.Counter):
            return {f"${kind.__name__}": _pairs(value, inner)}
        if kind is collections.defaultdict:
            name: Any = getattr(value.default_factory, "__name__", None)
            if value.default_factory is not _FACTORIES.get(name):
                raise TypeError(
                    "a defaultdict is kept if its default_factory is int, list or the like: use dict"
                )
            return {"$defaultdict": [name, _pairs(value, inner)]}
    if isinstance(value, tuple) and hasattr(kind, "_fields") and not getattr(value, "__dict__", None):
        parts = dict(zip(kind._fields, value, strict=True))
        return {"$namedtuple": [_place(kind), inner(parts)]}
    if hasattr(kind, "__dataclass_fields__") and _is_made_of_attributes(kind):
        return {"$dataclass": [_place(kind), inner(_attributes(value))]}
    return None


def _place(cls: type) -> list[str]:
    """Where another process finds a class."""
    place = list(locate(cls))
    if _class(place) is not cls:
        raise TypeError(f"{cls.__qualname__} is not what {cls.__module__} has under that name")
    return place


def _is_made_of_attributes(cls: type) -> bool:
    """False for a dataclass that is also a dict, an exception or the like."""
    try:
        object.__new__(cls)
    except TypeError:
        return False
    return True


def _attributes(value: Any) -> dict[str, Any]:
    """The parts of an object of a dataclass: fields, and other attributes, but for cached properties."""
    kind = type(value)
    found = {}
    for name in (*_slots(kind), *getattr(value, "__dict__", ())):
        is_cached = type(getattr(kind, name, None)).__name__ == "cached_property"
        if hasattr(value, name) and not is_cached and name[:2] != "__":
            found[name] = getattr(value, name)
    return found


def _slots(kind: type) -> Iterable[str]:
    for one in reversed(kind.__mro__):
        slots = one.__dict__.get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots


def _leaf(value: Any) -> Any:
    """The form of a value that holds no other; None for a value without a form."""
    form = _leaf_form(value)
    if form is None:
        return None
    back = decoded(form, "")
    if type(back) is type(value) and _marks(back) == _marks(value):
        return form
    raise TypeError(f"{type(value).__qualname__} {value!r:.80} would come back as {back!r:.80}")


def _marks(value: Any) -> tuple[Any, ...]:
    """By which two values of one class are told apart: more than ``==`` does, and ``nan`` is itself."""
    zone = getattr(value, "tzinfo", None)
    return repr(value), type(zone), str(zone), getattr(value, "unit", None), getattr(value, "fold", None)


def _leaf_form(value: Any) -> Any:
    kind = type(value)
    if isinstance(value, enum.Flag):
        return {"$flag": [*_place(kind), value.value]}
    if isinstance(value, enum.Enum):
        return {"$enum": [*_place(kind), value.name]}
    library = kind.__module__.partition(".")[0]
    if library == "numpy":
        return _numpy_form(value)
    if library == "pandas":
        return _pandas_form(value)
    of_kind = _LEAVES.get(f"{library}.{kind.__name__}")
    return None if of_kind is None else of_kind(value)


def _datetime_form(value: Any) -> Any:
    if type(value.tzinfo).__module__.partition(".")[0] == "zoneinfo":
        return {"$zoned": [value.replace(tzinfo=None, fold=0).isoformat(), value.tzinfo.key, value.fold]}
    return {"$datetime": value.isoformat()}


def _numpy_form(value: Any) -> Any:
    """The form of a number of numpy's, as its library calls its kind; None for records and true arrays."""
    if type(value) is numpy.ndarray and value.ndim == 0 and value.dtype.kind in "biufcmM":
        form = _numpy_form(value[()]) if value.dtype.isnative else None
        return None if form is None else {"$array": form}  # a number, whose place is no file
    if not isinstance(value, numpy.generic):
        return None
    code = value.dtype.kind
    if code in "mM":
        return {"$numpy": [value.dtype.str, int(value.view("i8")), str(value)]}
    if code == "U":
        return {"$numpy": ["U", str(value)]}
    if code == "c" and value.dtype.itemsize <= 16:
        return {"$numpy": [value.dtype.str, [value.real.item(), value.imag.item()], str(value)]}
    return (
        {"$numpy": [value.dtype.str, value.item()]} if code in "biuf" and value.dtype.itemsize <= 8 else None
    )


def _pandas_form(value: Any) -> Any:
    kind = type(value).__name__
    if kind in ("NaTType", "NAType"):
        return {"$pandas": [kind.removesuffix("Type"), None]}
    if kind not in ("Timestamp", "Timedelta"):
        return None
    zone = getattr(value, "tz", None)
    number = value.asm8.view("i8").item()
    return {"$pandas": [kind, number, value.unit, None if zone is None else str(zone), str(value)]}


_LEAVES: dict[str, Callable[[Any], Any]] = {
    "builtins.str": lambda value: {"$halves": [ord(character) for character in value]},
    "builtins.bytes": lambda value: {"$bytes": base64.b64encode(value).decode()},
    "builtins.bytearray": lambda value: {"$bytearray": base64.b64encode(value).decode()},
    "builtins.complex": lambda value: {"$complex": [value.real, value.imag]},
    "pathlib.PosixPath": lambda value: {"$path": str(value)},
    "pathlib.PurePosixPath": lambda value: {"$purepath": ["PurePosixPath", str(value)]},
    "pathlib.PureWindowsPath": lambda value: {"$purepath": ["PureWindowsPath", str(value)]},
    "datetime.datetime": _datetime_form,
    "datetime.date": lambda value: {"$date": value.isoformat()},
    "datetime.time": lambda value: {"$time": value.isoformat()},
    "datetime.timedelta": lambda value: {"$timedelta": [value.days, value.seconds, value.microseconds]},
    "decimal.Decimal": lambda value: {"$decimal": str(value)},
}
"""By library and name of the class, so that nothing is loaded for a value that is not there."""


# -- reading -----------------------------------------------------------------------------------------


class _Kind(NamedTuple):
    """One kind of special value."""

    back: Callable[[Any, Callable[[Any], Any], str], Any]
    """Makes the value of its content, which a function decodes further; files lie in a directory."""
    plain: Callable[[Any, Callable[[Any], Any]], Any]
    """Makes plain JSON of its content."""


def decoded(raw: Any, directory: str, depth: int = 0) -> Any:
    """The value that a JSON form stands for, as it was; files are read from `directory`.

    `ValueError` or `OSError` for a document of another form, or of a class or file that is gone.
    """
    if depth > _DEEPEST:
        raise ValueError(f"a result is nested more than {_DEEPEST} deep")

    def inner(item: Any) -> Any:
        return decoded(item, directory, depth + 1)

    if isinstance(raw, list):
        return [inner(item) for item in raw]
    if not isinstance(raw, dict):
        return raw
    kind = _kind_of(raw)
    if kind is None:
        return {key: inner(item) for key, item in raw.items()}
    try:
        return kind.back(next(iter(raw.values())), inner, directory)
    except (TypeError, KeyError, AttributeError, TenutoError, ImportError) as error:
        raise ValueError(f"it holds what cannot be made again: {error}") from error


def readable(raw: Any, depth: int = 0) -> Any:
    """The form of a result as plain JSON, for people and tables; it loads nothing and reads no file."""
    if depth > _DEEPEST:
        return "…"

    def inner(item: Any) -> Any:
        return readable(item, depth + 1)

    if isinstance(raw, list):
        return [inner(item) for item in raw]
    if not isinstance(raw, dict):
        return raw
    kind = _kind_of(raw)
    if kind is None:
        return {key: inner(item) for key, item in raw.items()}
    try:
        return kind.plain(next(iter(raw.values())), inner)
    except (TypeError, ValueError, KeyError, IndexError):
        return raw


def opened(raw: Any) -> Any:
    """The outermost level of a form as plain JSON; the values in it still have their forms."""
    kind = _kind_of(raw) if isinstance(raw, dict) else None
    return raw if kind is None else kind.plain(next(iter(raw.values())), lambda item: item)


def _kind_of(raw: dict[Any, Any]) -> _Kind | None:
    return _KINDS.get(next(iter(raw))) if len(raw) == 1 else None


def _class(place: Any) -> Any:
    return find_class(location_from(*place))


def _dataclass(content: Any, inner: Callable[[Any], Any], _: str) -> Any:
    place, parts = content
    cls = _class(place)
    if not isinstance(cls, type) or not hasattr(cls, "__dataclass_fields__"):
        raise MalformedFile(f"{place[1]} is no dataclass any more")
    made: Any = object.__new__(cls)
    for name, part in inner(parts).items():
        object.__setattr__(made, name, part)
    return made


def _namedtuple(content: Any, inner: Callable[[Any], Any], _: str) -> Any:
    place, parts = content
    cls = _class(place)
    if not isinstance(cls, type) or not issubclass(cls, tuple) or not hasattr(cls, "_fields"):
        raise MalformedFile(f"{place[1]} is no NamedTuple any more")
    return tuple.__new__(cls, inner(parts).values())


def _enum(content: Any, _: Callable[[Any], Any], __: str) -> Any:
    *place, name = content
    return _class(place)[name]


def _flag(content: Any, _: Callable[[Any], Any], __: str) -> Any:
    *place, value = content
    return _class(place)(value)


def _zoned(content: Any, _: Callable[[Any], Any], __: str) -> Any:
    text, key, fold = content
    return datetime.datetime.fromisoformat(text).replace(tzinfo=zoneinfo.ZoneInfo(key), fold=fold)


def _of_numpy(content: Any, _: Callable[[Any], Any], __: str) -> Any:
    kind, value = content[:2]
    if kind == "U":
        return numpy.str_(value)
    if kind[1:2] in ("m", "M"):
        return numpy.array(value, "i8").view(kind)[()]
    return numpy.array(complex(*value) if isinstance(value, list) else value, kind)[()]


def _of_pandas(content: Any, _: Callable[[Any], Any], __: str) -> Any:
    kind, value = content[:2]
    if kind in ("NaT", "NA"):
        return getattr(pandas, kind)
    unit, zone = content[2:4]
    if kind == "Timedelta":
        return pandas.Timedelta(numpy.timedelta64(value, unit))
    made = pandas.Timestamp(numpy.datetime64(value, unit))
    return made if zone is None else made.tz_localize("UTC").tz_convert(zone)


def _defaultdict(content: Any, inner: Callable[[Any], Any], _: str) -> Any:
    name, pairs = content
    return collections.defaultdict(None if name is None else _FACTORIES[name], _unpaired(pairs, inner))


def _unpaired(pairs: Any, inner: Callable[[Any], Any]) -> dict[Any, Any]:
    return {inner(key): inner(item) for key, item in pairs}


def _shown_pairs(pairs: Any, inner: Callable[[Any], Any]) -> dict[str, Any]:
    return {str(inner(key)): inner(item) for key, item in pairs}


def _from_base64(make: Callable[[bytes], Any]) -> _Kind:
    return _Kind(
        lambda content, _, __: make(base64.b64decode(content)),
        lambda content, _: f"{len(content) * 3 // 4 - content.count('=')} bytes",
    )


def _file(content: Any, _: Callable[[Any], Any], directory: str) -> Any:
    name = content["name"]
    if os.path.basename(name) != name or name in ("", ".", ".."):
        raise MalformedFile(f"{name!r} is no file of a job")
    return CODECS[content["codec"]].read(f"{directory}/{name}")


def _by(make: Callable[..., Any]) -> _Kind:
    """A kind whose content is text, or a few numbers, and is shown as it is."""
    return _Kind(make, lambda content, _: content)


def _sequence(kind: Callable[[Any], Any]) -> _Kind:
    return _Kind(lambda content, inner, _: kind([inner(item) for item in content]), lambda c, inner: inner(c))


def _parts(back: Callable[[Any, Callable[[Any], Any], str], Any]) -> _Kind:
    return _Kind(back, lambda content, inner: inner(content[1]))


_KINDS: dict[Any, _Kind] = {
    "$tuple": _sequence(tuple),
    "$set": _sequence(set),
    "$frozenset": _sequence(frozenset),
    "$dict": _Kind(lambda content, inner, _: _unpaired(content, inner), _shown_pairs),
    "$OrderedDict": _Kind(
        lambda content, inner, _: collections.OrderedDict(_unpaired(content, inner)), _shown_pairs
    ),
    "$Counter": _Kind(lambda content, inner, _: collections.Counter(_unpaired(content, inner)), _shown_pairs),
    "$defaultdict": _Kind(_defaultdict, lambda content, inner: _shown_pairs(content[1], inner)),
    "$namedtuple": _parts(_namedtuple),
    "$dataclass": _parts(_dataclass),
    "$enum": _Kind(_enum, lambda content, _: content[-1]),
    "$flag": _Kind(_flag, lambda content, _: content[-1]),
    "$halves": _Kind(
        lambda content, _, __: "".join(map(chr, content)), lambda content, _: "".join(map(chr, content))
    ),
    "$path": _by(lambda content, *_: pathlib.Path(content)),
    "$purepath": _Kind(
        lambda content, _, __: {
            "PurePosixPath": pathlib.PurePosixPath,
            "PureWindowsPath": pathlib.PureWindowsPath,
        }[content[0]](content[1]),
        lambda content, _: content[1],
    ),
    "$bytes": _from_base64(bytes),
    "$bytearray": _from_base64(bytearray),
    "$complex": _Kind(lambda content, _, __: complex(*content), lambda content, _: str(complex(*content))),
    "$datetime": _by(lambda content, *_: datetime.datetime.fromisoformat(content)),
    "$zoned": _Kind(_zoned, lambda content, _: f"{content[0]} {content[1]}"),
    "$numpy": _Kind(_of_numpy, lambda content, _: content[-1]),
    "$array": _Kind(lambda content, inner, _: numpy.asarray(inner(content)), lambda c, inner: inner(c)),
    "$pandas": _Kind(_of_pandas, lambda content, _: content[-1]),
    "$date": _by(lambda content, *_: datetime.date.fromisoformat(content)),
    "$time": _by(lambda content, *_: datetime.time.fromisoformat(content)),
    "$timedelta": _Kind(
        lambda content, _, __: datetime.timedelta(*content),
        lambda content, _: content[0] * 86400 + content[1] + content[2] / 1e6,
    ),
    "$decimal": _by(lambda content, *_: decimal.Decimal(content)),
    "$file": _Kind(_file, lambda content, _: f"{content['shown']}, in {content['name']}"),
}


def read_upstream_result(files: Files, directory: str) -> Any:
    """What the task of the job in `directory`, which the running job depends on, returned.

    Only reads: the scheduler started the running job after the other one was done. `NoResult` says why there
    is nothing.
    """
    parent, job_id = os.path.split(directory)
    task_id = layout.name_of_directory(os.path.basename(parent)) or os.path.basename(parent)
    paths = layout.JobPaths(directory, layout.script_name(task_id))
    name = f"{task_id} {job_id[:12]}"
    try:
        done, failed = markers.read_markers(files, paths)
        has_failed = isinstance(failed, markers.Marker) and not (
            isinstance(done, markers.Marker) and done.attempt > failed.attempt
        )
        if has_failed or not isinstance(done, markers.Marker):
            raise NoResult(
                f"{name} has no result: it {'failed' if has_failed else 'is not done'} ({directory})"
            )
        if RESULT_NOT_KEPT in done.flags:
            raise NoResult(f"{name} is done, but has no result: {done.message}")
        return decoded(attempt_files.read_result(files, paths, done), directory)
    except (OSError, ValueError) as error:
        raise NoResult(f"the result of {name} cannot be read: {error}") from None
