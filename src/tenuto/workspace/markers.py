"""The final word on an attempt: `.done` or `.failed`, how it is written and how it is read.
Written only by the holder of the job's lock.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import Enum, unique
from functools import lru_cache
from typing import Any

from tenuto.lifecycle.states import JobFailureStatus
from tenuto.light import NamedTuple
from tenuto.workspace.json_bytes import to_json
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.ports import Files
from tenuto.workspace.records import Corrupt, Fields, LaunchRecord, decode_fields, read_record, sound

MARKER_LIMIT = 4096
"""A marker fits the block set aside for it, so that a full disk can still be reported."""
RESULT_LIMIT = 2048
"""A larger result goes to `.tenuto/result.json`."""
_SHORTEST_MESSAGE = 256


@unique
class Durability(Enum):
    MARKER = "marker"
    NONE = "none"


_JUDGED = ("begun", "result", "outputs", "dropped")
"""What a scheduler asks of the record of a job that it knows."""


class Marker(NamedTuple):
    """How an attempt ended. `reason` is None in `.done`, and set in `.failed`."""

    attempt: int
    nonce: str
    reason: JobFailureStatus | None = None
    message: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    starttime: datetime | None = None
    endtime: datetime | None = None
    usage: Mapping[str, float] = {}
    """cpu_s, max_rss_bytes, ..."""
    result: Any = None
    result_stored: bool = False
    """The result was too large and lies in `.tenuto/result.json`."""
    provenance: Mapping[str, str] = {}
    """How its process came to be, and the seed of its random numbers."""
    record: Mapping[str, Any] = {}
    """What the result was made of: code, defaults, the jobs and files it came from, where and when. All of it
    is in `.tenuto/record.json` where `stored` says so."""
    flags: tuple[str, ...] = ()
    """`truncated` logs, `leftovers`, ..."""
    launch: Mapping[str, Any] = {}
    """The launch record of an attempt that ended well, in place of `launch.json`."""
    params_bytes: int | None = None
    """The size of `params.json`, by which a job that is found done is seen to have lost it with the power."""

    def encode(self) -> bytes:
        """At most `MARKER_LIMIT` bytes: an over-long message is cut, and if need be the details go."""
        if self.result is not None and len(to_json(self.result)) > RESULT_LIMIT:
            raise ValueError("the result is too large for a marker; `job_directory.keep_result` stores it")
        data = to_json(self._plain())
        if len(data) <= MARKER_LIMIT:
            return data
        details = self._replace(message=None)
        bare = details._replace(usage={}, provenance={}, flags=(), record=brief_record(self.record))
        kept = details if details._room_for_message() > _SHORTEST_MESSAGE else bare
        return to_json(kept._replace(message=_cut(self.message or "", kept._room_for_message()))._plain())

    def with_launch(self, launch: LaunchRecord) -> "Marker":
        """With the record of its attempt, if there is room for that."""
        whole = self._replace(launch=launch.in_marker())
        return whole if len(to_json(whole._plain())) <= MARKER_LIMIT else self

    @property
    def launched(self) -> LaunchRecord | None:
        """The record that it has taken up."""
        return LaunchRecord.of_marker(self.attempt, self.nonce, self.launch, self.record)

    def gist(self) -> "Marker":
        """Without what only a view of one job asks for: a scheduler keeps this of all that it knows."""
        own = {name: self.record[name] for name in _JUDGED if name in self.record}
        shared = _shared(self.record.get("code"), self.record.get("defaults"))
        return Marker(
            *self[:8],
            _NO_USAGE,
            self.result,
            self.result_stored,
            _NO_PROVENANCE,
            {**shared, **own} if own else shared,
            self.flags,
            _NO_PROVENANCE,
            self.params_bytes,
        )

    @classmethod
    def decode(cls, data: bytes) -> "Marker | Corrupt":
        return decode_fields(data, cls._from) if data else Corrupt("empty")

    @classmethod
    def _from(cls, fields: Fields) -> "Marker":
        return cls(
            attempt=fields.integer("attempt", least=1),
            nonce=fields.text("nonce"),
            reason=fields.optional_failure("reason"),
            message=fields.optional_text("message"),
            exit_code=fields.optional_integer("exit_code"),
            signal=fields.optional_integer("signal"),
            starttime=fields.optional_instant("starttime"),
            endtime=fields.optional_instant("endtime"),
            usage=fields.numbers("usage"),
            result=fields.value("result"),
            result_stored=fields.flag("result_stored"),
            provenance=fields.texts("provenance"),
            record=fields.mapping("record"),
            flags=fields.words("flags"),
            launch=fields.mapping("launch"),
            params_bytes=fields.optional_integer("params_bytes"),
        )

    def _room_for_message(self) -> int:
        return MARKER_LIMIT - len(to_json(self._plain())) - len(',"message":')

    def _plain(self) -> dict[str, Any]:
        fields = {
            **self._asdict(),
            "message": sound(self.message),
            "reason": self.reason.name if self.reason else None,
            "starttime": self.starttime.isoformat() if self.starttime else None,
            "endtime": self.endtime.isoformat() if self.endtime else None,
            "usage": dict(self.usage) or None,
            "provenance": dict(self.provenance) or None,
            "record": dict(self.record) or None,
            "launch": dict(self.launch) or None,
            "flags": list(self.flags) or None,
            "result_stored": self.result_stored or None,
        }
        return {name: value for name, value in fields.items() if value is not None}


_NO_USAGE: Mapping[str, float] = {}
_NO_PROVENANCE: Mapping[str, str] = {}


_BRIEF = ("code", "defaults", "begun", "result", "stored")


def brief_record(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a check asks for first."""
    return {name: record[name] for name in _BRIEF if name in record}


@lru_cache(maxsize=4096)
def _shared(code: str | None, defaults: str | None) -> Mapping[str, Any]:
    """What the jobs of a task have in common."""
    return {name: one for name, one in (("code", code), ("defaults", defaults)) if one is not None}


class MarkersFound(NamedTuple):
    """The files at the two marker paths."""

    done: Marker | Corrupt | None = None
    failed: Marker | Corrupt | None = None

    @property
    def launched(self) -> LaunchRecord | None:
        """The launch record that the marker of an attempt that ended well has taken up."""
        return self.done.launched if isinstance(self.done, Marker) and self.done.launch else None


def reserve_marker(files: Files, paths: JobPaths) -> None:
    """Set disk aside for the marker, at the start of an attempt."""
    files.preallocate(paths.reserve, MARKER_LIMIT)


def write_marker(
    files: Files, paths: JobPaths, marker: Marker, durability: Durability = Durability.MARKER
) -> None:
    """Write `.done`, or `.failed` if the marker has a reason; returns once it is as durable as asked for."""
    files.replace(
        paths.done if marker.reason is None else paths.failed,
        marker.encode(),
        durable=durability is Durability.MARKER,
        reserve=paths.reserve,
    )


def read_markers(files: Files, paths: JobPaths) -> MarkersFound:
    """Read both markers; changes nothing."""
    done = _read(files, paths.done, failed=False)
    # A finished job has one of them, nearly always: to ask for the other costs less than to fail to open it.
    if isinstance(done, Marker) and files.stat(paths.failed) is None:
        return MarkersFound(done)
    return MarkersFound(done, _read(files, paths.failed, failed=True))


def has_marker(files: Files, paths: JobPaths, nonce: str) -> bool:
    """Whether an attempt has left its marker."""
    return any(isinstance(found, Marker) and found.nonce == nonce for found in read_markers(files, paths))


def set_aside(files: Files, path: str) -> str:
    """Rename an unreadable marker to the first free `.corrupt-n`, and say where it went."""
    number = 1
    while files.stat(f"{path}.corrupt-{number}") is not None:
        number += 1
    target = f"{path}.corrupt-{number}"
    files.rename(path, target)
    return target


def _read(files: Files, path: str, *, failed: bool) -> Marker | Corrupt | None:
    marker = read_record(files, path, Marker.decode)
    if isinstance(marker, Marker) and failed != (marker.reason is not None):
        return Corrupt("its reason does not fit its name")
    return marker


def _cut(message: str, room: int) -> str:
    """As much of the head and the tail of the message as fits `room` bytes of JSON."""
    keep = min(len(message), room) // 2
    while len(to_json(cut := f"{message[:keep]} [...] {message[len(message) - keep :]}")) > room:
        keep = keep * 3 // 4
    return cut
