"""What `execute()` returned, as JSON from which each value comes back as what it was.
Plain JSON stands for itself; all else is an object with one key that starts with ``$``, as in `tasks.values`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tenuto.errors import ClassNotFound, MalformedFile, NoResult, TenutoError
from tenuto.launchers.codecs import CODECS, PICKLE, Codec, codec_for
from tenuto.light import late, pathlib
from tenuto.tasks.location import find_class, locate
from tenuto.tasks.values import location_from
from tenuto.workspace.flags import RESULT_NOT_KEPT

if TYPE_CHECKING:
    import base64
    import datetime
    import decimal
    import enum

    from tenuto.workspace import attempt_files, layout, markers
    from tenuto.workspace.ports import Files
else:
    base64 = late("base64")
    datetime = late("datetime")
    decimal = late("decimal")
    enum = late("enum")
    attempt_files = late("tenuto.workspace.attempt_files")
    layout = late("tenuto.workspace.layout")
    markers = late("tenuto.workspace.markers")

_DEEPEST = 200


class Encoder:
    """Turns one result into JSON, and writes the files that belong to it."""

    def __init__(self, stem: str, *, pickles: bool = False) -> None:
        """`stem`: what the paths of files begin with. `pickles`: what nothing else keeps is pickled."""
        self._stem = stem
        self._pickles = pickles
        self._files = 0

    def encoded(self, value: Any) -> Any:
        """The JSON form of a value; `TypeError` for what cannot be kept."""
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, list):
            return [self.encoded(item) for item in value]
        if isinstance(value, Mapping):
            return self._mapping(value)
        found = self._special(value)
        if found is not None:
            return found
        codec = codec_for(value) or (PICKLE if self._pickles else None)
        if codec is None:
            raise TypeError(f"{type(value).__qualname__} is of no kind that is kept")
        return self._file(codec, value)

    def _mapping(self, value: Mapping[Any, Any]) -> Any:
        if all(type(key) is str and key[:1] != "$" for key in value):
            return {key: self.encoded(item) for key, item in value.items()}
        return {"$dict": [[self.encoded(key), self.encoded(item)] for key, item in value.items()]}

    def _special(self, value: Any) -> Any:
        """What Python has and JSON has not; None for what is of neither."""
        if isinstance(value, tuple):
            names = getattr(value, "_fields", None)
            if names is not None:
                return self._made(value, "$namedtuple", dict(zip(names, value, strict=True)))
            return {"$tuple": [self.encoded(item) for item in value]}
        if isinstance(value, set | frozenset):
            kind = "$set" if isinstance(value, set) else "$frozenset"
            return {kind: [self.encoded(item) for item in value]}
        if isinstance(value, bytes | bytearray):
            return {"$bytes": base64.b64encode(value).decode()}
        if isinstance(value, complex):
            return {"$complex": [value.real, value.imag]}
        if isinstance(value, os.PathLike):
            return {"$path": os.fspath(value)}
        fields = getattr(type(value), "__dataclass_fields__", None)
        if fields is not None:
            return self._made(value, "$dataclass", {name: getattr(value, name) for name in fields})
        if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
            return self.encoded(value.item())  # a number of numpy's own kind
        time = _time_form(value)
        if time is not None:
            return time
        if isinstance(value, enum.Enum) and not isinstance(value, int | float | str):
            return {"$enum": [*locate(_type(value)), value.name]}
        return _without_subclass(value)

    def _made(self, value: Any, kind: str, parts: dict[str, Any]) -> Any:
        """An object of a class of the user's; of one that no other process can find, its parts."""
        kept = self.encoded(parts)
        try:
            return {kind: [list(locate(_type(value))), kept]}
        except ClassNotFound:
            return kept

    def _file(self, codec: Codec, value: Any) -> Any:
        self._files += 1
        path = f"{self._stem}-{self._files}.{codec.suffix}"
        codec.write(path, value)
        name = f"{type(value).__name__}"
        shape = getattr(value, "shape", None)
        shown = f"{name} of {' x '.join(map(str, shape))}" if isinstance(shape, tuple) and shape else name
        return {"$file": {"codec": codec.name, "name": os.path.basename(path), "shown": shown}}


def _type(value: Any) -> Any:
    return type(value)


def _without_subclass(value: Any) -> Any:
    """A number or text without its subclass: an enum of whole numbers is a number; None for all else."""
    for base in (bool, int, float):
        if isinstance(value, base):
            return base(value)
    return str.__str__(value) if isinstance(value, str) else None


def _time_form(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return {"$datetime": value.isoformat()}
    if isinstance(value, datetime.date):
        return {"$date": value.isoformat()}
    if isinstance(value, datetime.time):
        return {"$time": value.isoformat()}
    if isinstance(value, datetime.timedelta):
        return {"$timedelta": [value.days, value.seconds, value.microseconds]}
    return {"$decimal": str(value)} if isinstance(value, decimal.Decimal) else None


# -- reading -----------------------------------------------------------------------------------------


class _Kind(NamedTuple):
    """One kind of special value."""

    back: Callable[[Any, Callable[[Any], Any], str], Any]
    """Makes the value of its content, which a function decodes further; files lie in a directory."""
    plain: Callable[[Any, Callable[[Any], Any]], Any]
    """Makes plain JSON of its content."""


def decoded(raw: Any, directory: str, depth: int = 0) -> Any:
    """The value that a JSON form stands for, as it was; files are read from `directory`.

    `ValueError` or `OSError` for what is no such form, or of a class or file that is gone.
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
    return cls(**inner(parts))


def _enum(content: Any, _: Callable[[Any], Any], __: str) -> Any:
    *place, name = content
    return _class(place)[name]


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
    "$dict": _Kind(
        lambda content, inner, _: {inner(key): inner(item) for key, item in content},
        lambda content, inner: {str(inner(key)): inner(item) for key, item in content},
    ),
    "$namedtuple": _parts(_namedtuple),
    "$dataclass": _parts(_dataclass),
    "$enum": _Kind(_enum, lambda content, _: content[-1]),
    "$path": _by(lambda content, *_: pathlib.Path(content)),
    "$bytes": _Kind(
        lambda content, _, __: base64.b64decode(content),
        lambda content, _: f"{len(content) * 3 // 4 - content.count('=')} bytes",
    ),
    "$complex": _Kind(lambda content, _, __: complex(*content), lambda content, _: str(complex(*content))),
    "$datetime": _by(lambda content, *_: datetime.datetime.fromisoformat(content)),
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
