"""What happened: every event, as a frozen value of ids and plain data.
Knows nothing of files; `to_record` and `from_record` are the wire format, for any carrier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from typing import Any, ClassVar, NamedTuple, dataclass_transform

from tenuto.errors import MalformedEvent
from tenuto.lifecycle.states import JobFailureStatus, JobState, TransientMode

# Frozen, slotted, keyword-only value classes.
# Stands in for `dataclasses`, whose import (it loads `inspect`) a job's process would pay for every time.


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


_NO_DEFAULT = object()

EVENT_VERSION = 1
"""Of the wire format. Adding a field with a default leaves it alone."""


class Event(Value):
    """Something that happened, at `timestamp`."""

    ephemeral: ClassVar[bool] = False
    """True if only the latest matters: may be throttled or dropped, is never synced to disk."""

    timestamp: datetime
    unknown: Mapping[str, object] = {}
    """Fields written by a newer version, kept as they came."""


class JobEvent(Event):
    """Something that happened to a job."""

    job_id: str
    task_id: str


class OwnerEvent(Event):
    """Something that happened to an owner of jobs, named as `lifecycle.owner_names` says."""

    owner: str


class JobSubmittedEvent(JobEvent):
    """An owner asked for a job."""

    owner: str
    tags: Mapping[str, Any] = {}
    """Texts, numbers, bools or None; a list of them where the job was asked for under several."""
    depends_on: tuple[str, ...] = ()
    transient: TransientMode = TransientMode.NONE


class JobStateChangedEvent(JobEvent):
    """A job moved to another state; every owner of the job has an event of its own."""

    owner: str
    state: JobState
    attempt: int = 0
    reason: JobFailureStatus | None = None
    message: str | None = None
    submittime: datetime | None = None
    starttime: datetime | None = None
    endtime: datetime | None = None
    exit_code: int | None = None
    retry_count: int = 0


class JobExplainedEvent(JobEvent):
    """A job stayed where it was, for another reason than before."""

    owner: str
    state: JobState
    attempt: int = 0
    message: str | None = None


class JobProgressEvent(JobEvent):
    """A job reported how far it is."""

    ephemeral: ClassVar[bool] = True

    attempt: int
    progress: float
    level: int = 0
    desc: str | None = None
    owner: str | None = None
    """The owner that asked for the job first, as its launch record says."""


class CarbonMetricsData(Value):
    """Energy and emissions, as far as they were measured."""

    co2_kg: float
    energy_kwh: float
    duration_s: float
    cpu_power_w: float = 0.0
    gpu_power_w: float = 0.0
    ram_power_w: float = 0.0
    region: str | None = None


class RunCompletedEvent(OwnerEvent):
    """A run of an experiment ended."""

    failed: bool
    done_jobs: int = 0
    failed_jobs: int = 0
    message: str | None = None
    carbon: CarbonMetricsData | None = None


class ServiceAddedEvent(OwnerEvent):
    """A service (a web page beside an experiment) was added to a run."""

    service_id: str
    state: str
    description: str = ""
    url: str | None = None


class ServiceStateChangedEvent(OwnerEvent):
    """A service of a run started, stopped or failed."""

    service_id: str
    state: str
    message: str | None = None
    url: str | None = None


class CarbonMetricsEvent(JobEvent):
    """A job's carbon tracker measured."""

    ephemeral: ClassVar[bool] = True

    attempt: int
    metrics: CarbonMetricsData
    final: bool = False
    owner: str | None = None
    """The owner that asked for the job first, as its launch record says."""


class ProcessStartedEvent(JobEvent):
    """A runner of a job started."""

    attempt: int
    launcher: str
    host: str
    pid: int
    owner: str | None = None
    """The owner that asked for the job first, as its launch record says."""


class ProcessStateEvent(JobEvent):
    """A runner or its payload changed state, as its launcher sees it."""

    attempt: int
    state: str
    exit_code: int | None = None
    signal: int | None = None
    owner: str | None = None
    """The owner that asked for the job first, as its launch record says."""


class UnknownEvent(Event):
    """An event of a type that this version does not know; its fields are in `unknown`."""

    type_name: str


EVENT_TYPES: Mapping[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        JobSubmittedEvent,
        JobStateChangedEvent,
        JobExplainedEvent,
        JobProgressEvent,
        RunCompletedEvent,
        ServiceAddedEvent,
        ServiceStateChangedEvent,
        CarbonMetricsEvent,
        ProcessStartedEvent,
        ProcessStateEvent,
    )
}


def to_record(event: Event) -> dict[str, Any]:
    """The event as plain JSON values; fields that equal their default are left out."""
    if isinstance(event, UnknownEvent):
        return {**event.unknown, "type": event.type_name, "timestamp": event.timestamp.isoformat()}
    return {**event.unknown, "type": type(event).__name__, **_encode_fields(event)}


def from_record(record: object) -> Event:
    """The event that a record describes; `MalformedEvent` if it describes none.

    An unknown type gives an `UnknownEvent`, and unknown fields are kept, so that an older version can read
    and rewrite what a newer one wrote.
    """
    if not isinstance(record, dict):
        raise MalformedEvent(f"an event is an object, not {type(record).__name__}")
    fields = dict(record)
    type_name = fields.pop("type", None)
    if not isinstance(type_name, str):
        raise MalformedEvent("an event has a type")
    kind = EVENT_TYPES.get(type_name)
    if kind is None:
        timestamp = _decode("timestamp", "datetime", fields.pop("timestamp", None))
        return UnknownEvent(timestamp=timestamp, type_name=type_name, unknown=fields)
    known = {name: fields.pop(name) for name in kind.fields if name in fields and name != "unknown"}
    return kind(**_decode_fields(kind, known), unknown=fields)


def _encode_fields(value: Value) -> dict[str, Any]:
    encoded = {}
    for name, default, encode in _encoding(type(value)):
        content = getattr(value, name)
        if content is not default and content != default:
            encoded[name] = None if content is None else encode(content)
    return encoded


@cache
def _encoding(kind: type[Value]) -> tuple[tuple[str, Any, Callable[[Any], Any]], ...]:
    """(name, its default, how it is encoded), of every field that is encoded."""
    return tuple(
        (name, kind.defaults.get(name, _NO_DEFAULT), _codec(annotation).encode)
        for name, annotation in kind.fields.items()
        if name != "unknown"
    )


def _decode_fields(kind: type[Value], given: Mapping[str, object]) -> dict[str, Any]:
    decoded = {name: _decode(name, kind.fields[name], content) for name, content in given.items()}
    for name in kind.fields:
        if name not in decoded and name not in kind.defaults:
            raise MalformedEvent(f"{kind.__name__} needs {name}")
    return decoded


def _decode(name: str, annotation: str, content: object) -> Any:
    if content is None and annotation.endswith("| None"):
        return None
    try:
        return _codec(annotation).decode(content)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as wrong:
        raise MalformedEvent(f"{name}: {content!r:.80} is not {annotation}") from wrong


class _Codec(NamedTuple):
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def _codec(annotation: str) -> _Codec:
    return _CODECS[annotation.removesuffix(" | None")]


def _same(content: Any) -> Any:
    return content


def _exactly(kind: type) -> _Codec:
    def check(content: Any) -> Any:
        if type(content) is not kind:
            raise TypeError(content)
        return content

    return _Codec(_same, check)


def _decode_float(content: Any) -> float:
    if type(content) not in (int, float):
        raise TypeError(content)
    return float(content)


def _decode_datetime(content: Any) -> datetime:
    instant = datetime.fromisoformat(content)
    if instant.tzinfo is None:
        raise ValueError(content)
    return instant


def _decode_strings(content: Any) -> tuple[str, ...]:
    if type(content) is not list or not all(type(item) is str for item in content):
        raise TypeError(content)
    return tuple(content)


def _decode_tags(content: Any) -> dict[str, Any]:
    if type(content) is not dict or not all(map(is_tag, content.values())):
        raise TypeError(content)
    return content


def is_tag(value: object) -> bool:
    """True for what a tag can be in a file: a text, number, bool or None, or a list of these."""
    several = value if type(value) is list else [value]
    return all(one is None or type(one) in (str, int, float, bool) for one in several)


_CODECS: Mapping[str, _Codec] = {
    "str": _exactly(str),
    "int": _exactly(int),
    "bool": _exactly(bool),
    "float": _Codec(_same, _decode_float),
    "datetime": _Codec(datetime.isoformat, _decode_datetime),
    "tuple[str, ...]": _Codec(list, _decode_strings),
    "Mapping[str, Any]": _Codec(dict, _decode_tags),
    "JobState": _Codec(lambda state: state.name, JobState.__getitem__),
    "JobFailureStatus": _Codec(lambda status: status.name, JobFailureStatus.__getitem__),
    "TransientMode": _Codec(lambda mode: mode.name, TransientMode.__getitem__),
    "CarbonMetricsData": _Codec(
        _encode_fields,
        lambda content: CarbonMetricsData(
            **_decode_fields(CarbonMetricsData, _known(CarbonMetricsData, content))
        ),
    ),
}


def _known(kind: type[Value], content: Mapping[str, object]) -> dict[str, object]:
    return {name: content[name] for name in content if name in kind.fields}
