"""The small JSON files of a job directory: launch, pid, stop, locks, status.
Whatever lies on the disk, it answers `Corrupt` and never raises.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, TypeVar

from tenuto.errors import FileTooLarge, NotRegularFile
from tenuto.lifecycle.states import JobFailureStatus, JobState, StateRecord
from tenuto.light import NamedTuple
from tenuto.workspace.json_bytes import from_json, to_json
from tenuto.workspace.ports import Files, ProcessIdentity

RECORD_VERSION = 1
RECORD_LIMIT = 64 * 1024
"""No record is ever larger; a larger file was not written by Tenuto."""


class Corrupt(NamedTuple):
    """Something lies there, but it is not a record."""

    problem: str


R = TypeVar("R")


def read_record(files: Files, path: str, decode: Callable[[bytes], R | Corrupt]) -> R | Corrupt | None:
    """The record at `path`; None if there is no file. Other errors of the disk are raised."""
    try:
        data = files.read(path, RECORD_LIMIT)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (NotRegularFile, FileTooLarge) as wrong:
        return Corrupt(str(wrong))
    return decode(data)


class EarlierAttempt(NamedTuple):
    """An attempt that another one followed: how it ended, and its limits."""

    attempt: int
    reason: JobFailureStatus
    memory_bytes: int | None = None
    walltime_s: float | None = None


_IN_BOTH = "record"
"""What a result is made of: said by the instructions of its attempt, and then by its marker."""


class LaunchRecord(NamedTuple):
    """`launch.json`: the intent to start an attempt, written before anything is started."""

    attempt: int
    nonce: str
    launcher: str
    job_name: str
    host: str
    requested: datetime
    external: bool = False
    """Run by a cluster, which is asked when the directory does not tell."""
    retry_count: int = 0
    """Restarts after a timeout, so far."""
    lost_count: int = 0
    """Restarts after the runner was lost, so far, but for those below."""
    blameless_count: int = 0
    """Restarts after its cluster lost the runner, so far."""
    withdrawn: bool = False
    """Nothing was started: the machine was short of something."""
    memory_count: int = 0
    """Restarts after it ran out of memory, so far."""
    failed_count: int = 0
    """Restarts after it failed by itself, so far."""
    earlier: tuple[EarlierAttempt, ...] = ()
    """The attempts that this one follows, since the job was submitted; the last few of them."""
    begun: str | None = None
    """The nonce of the attempt that began in the empty directory; None: this one's."""
    aside: bool = False
    """What the job had before is kept in `.tenuto/aside` until it is done again."""
    owner: str | None = None
    """The name of the owner that asked first for the job, such as ``search/packing``."""
    instructions: Mapping[str, Any] = {}
    """What the launchers' room tells the runner; no other part reads it."""

    @property
    def life(self) -> str:
        """Names the life of the directory: attempts that continue where one stopped share it."""
        return self.begun or self.nonce

    def encode(self) -> bytes:
        return _record(self._plain())

    def _plain(self) -> dict[str, Any]:
        fields = {**self._asdict(), "requested": self.requested.isoformat(), "aside": self.aside or None}
        fields["earlier"] = [{**one._asdict(), "reason": one.reason.name} for one in self.earlier] or None
        return fields

    def in_marker(self) -> dict[str, Any]:
        """What the marker of this attempt does not say already."""
        told = {name: one for name, one in self.instructions.items() if name != _IN_BOTH}
        said = {**self._plain(), "instructions": told, "attempt": None, "nonce": None}
        return {name: one for name, one in said.items() if one}  # an empty field has its default

    @classmethod
    def of_marker(
        cls, attempt: int, nonce: str, told: Mapping[str, Any], record: Mapping[str, Any]
    ) -> "LaunchRecord | None":
        """The record that a marker has taken up; None if it has none."""
        if not told:
            return None
        try:
            found = cls._from(Fields({**told, "attempt": attempt, "nonce": nonce}))
        except ValueError:
            return None
        return found._replace(instructions={**found.instructions, _IN_BOTH: record}) if record else found

    @classmethod
    def decode(cls, data: bytes) -> "LaunchRecord | Corrupt":
        return _decoded(data, cls._from)

    @classmethod
    def _from(cls, fields: "Fields") -> "LaunchRecord":
        return cls(
            attempt=fields.integer("attempt", least=1),
            nonce=fields.text("nonce"),
            launcher=fields.text("launcher"),
            job_name=fields.text("job_name"),
            host=fields.text("host"),
            requested=fields.instant("requested"),
            external=fields.flag("external"),
            retry_count=fields.integer("retry_count", default=0),
            lost_count=fields.integer("lost_count", default=0),
            blameless_count=fields.integer("blameless_count", default=0),
            withdrawn=fields.flag("withdrawn"),
            memory_count=fields.integer("memory_count", default=0),
            failed_count=fields.integer("failed_count", default=0),
            earlier=tuple(
                EarlierAttempt(
                    one.integer("attempt", least=1),
                    one.failure("reason"),
                    one.optional_integer("memory_bytes"),
                    one.optional_number("walltime_s"),
                )
                for one in (fields.objects("earlier") if fields.value("earlier") is not None else ())
            ),
            begun=fields.optional_text("begun"),
            aside=fields.flag("aside"),
            owner=fields.optional_text("owner"),
            instructions=fields.mapping("instructions"),
        )


class PidRecord(NamedTuple):
    """`{scriptname}.pid`: which process is the runner of an attempt."""

    identity: ProcessIdentity
    attempt: int
    started: datetime

    def encode(self) -> bytes:
        return _record({**self._asdict(), "identity": None, **self.identity._asdict()})

    @classmethod
    def decode(cls, data: bytes) -> "PidRecord | Corrupt":
        return _decoded(data, cls._from)

    @classmethod
    def _from(cls, fields: "Fields") -> "PidRecord":
        identity = ProcessIdentity(
            host=fields.text("host"),
            boot_id=fields.text("boot_id"),
            pid_namespace=fields.text("pid_namespace"),
            pid=fields.integer("pid", least=1),
            start_time=fields.integer("start_time"),
        )
        return cls(identity, fields.integer("attempt", least=1), fields.instant("started"))


class StopRecord(NamedTuple):
    """`stop.json`: a person or a scheduler wants this attempt to end; written before the first signal."""

    attempt: int
    reason: JobFailureStatus
    requested: datetime
    message: str | None = None

    def encode(self) -> bytes:
        return _record(self._asdict())

    @classmethod
    def decode(cls, data: bytes) -> "StopRecord | Corrupt":
        return _decoded(data, cls._from)

    @classmethod
    def _from(cls, fields: "Fields") -> "StopRecord":
        return cls(
            attempt=fields.integer("attempt", least=1),
            reason=fields.failure("reason"),
            requested=fields.instant("requested"),
            message=fields.optional_text("message"),
        )


class TokenUnits(NamedTuple):
    """The units of one token that a job holds."""

    name: str
    units: tuple[int, ...]


class LocksRecord(NamedTuple):
    """`locks.json`: the tokens an attempt holds, so that a later scheduler can take them over."""

    attempt: int
    tokens: tuple[TokenUnits, ...] = ()
    directory: str | None = None
    """Where the tokens are counted."""

    def encode(self) -> bytes:
        return _record({**self._asdict(), "tokens": [token._asdict() for token in self.tokens]})

    @classmethod
    def decode(cls, data: bytes) -> "LocksRecord | Corrupt":
        return _decoded(data, cls._from)

    @classmethod
    def _from(cls, fields: "Fields") -> "LocksRecord":
        tokens = [
            TokenUnits(token.text("name"), token.integers("units")) for token in fields.objects("tokens")
        ]
        directory = fields.optional_text("directory")
        return cls(fields.integer("attempt", least=1), tuple(tokens), directory)


class StatusRecord(NamedTuple):
    """`status.json`: where a job stands, for readers that do not want to derive it. Never the truth."""

    job_id: str
    task_id: str
    state_record: StateRecord
    attempt: int = 0
    retry_count: int = 0
    exit_code: int | None = None

    def encode(self) -> bytes:
        return _record({**self._asdict(), "state_record": None, **self.state_record._asdict()})

    @classmethod
    def decode(cls, data: bytes) -> "StatusRecord | Corrupt":
        return _decoded(data, cls._from)

    @classmethod
    def _from(cls, fields: "Fields") -> "StatusRecord":
        state_record = StateRecord(
            state=fields.state("state"),
            reason=fields.optional_failure("reason"),
            message=fields.optional_text("message"),
            submittime=fields.optional_instant("submittime"),
            starttime=fields.optional_instant("starttime"),
            endtime=fields.optional_instant("endtime"),
        )
        return cls(
            job_id=fields.text("job_id"),
            task_id=fields.text("task_id"),
            state_record=state_record,
            attempt=fields.integer("attempt", default=0),
            retry_count=fields.integer("retry_count", default=0),
            exit_code=fields.optional_integer("exit_code"),
        )


class Fields:
    """A decoded JSON object whose values are checked one by one; a wrong one is a `ValueError`."""

    __slots__ = ("_values",)

    def __init__(self, values: object) -> None:
        if type(values) is not dict:
            raise ValueError(f"an object is expected, not {type(values).__name__}")
        self._values: dict[str, Any] = values

    def text(self, name: str) -> str:
        value = self._values.get(name)
        if type(value) is not str:
            raise ValueError(f"{name}: {value!r:.60} is not text")
        if not value.isascii():
            value.encode()  # a lone surrogate would raise much later, in a program that prints it
        return value

    def optional_text(self, name: str) -> str | None:
        return None if self._values.get(name) is None else self.text(name)

    def integer(self, name: str, *, least: int = 0, default: int | None = None) -> int:
        value = self._values.get(name, default)
        if type(value) is not int or not least <= value < 2**63:
            raise ValueError(f"{name}: {value!r:.60} is not an integer from {least} up")
        return value

    def optional_integer(self, name: str) -> int | None:
        return None if self._values.get(name) is None else self.integer(name, least=-(2**31))

    def integers(self, name: str) -> tuple[int, ...]:
        value = self._values.get(name)
        if type(value) is not list or not all(type(item) is int and 0 <= item < 2**63 for item in value):
            raise ValueError(f"{name}: {value!r:.60} is not a list of integers")
        return tuple(value)

    def number(self, name: str) -> float:
        value = self._values.get(name)
        if type(value) is int or type(value) is float:
            return float(value)
        raise ValueError(f"{name}: {value!r:.60} is not a number")

    def optional_number(self, name: str) -> float | None:
        return None if self._values.get(name) is None else self.number(name)

    def flag(self, name: str) -> bool:
        value = self._values.get(name, False)
        if type(value) is not bool:
            raise ValueError(f"{name}: {value!r:.60} is neither true nor false")
        return value

    def instant(self, name: str) -> datetime:
        instant = datetime.fromisoformat(self.text(name))
        if instant.tzinfo is None:
            raise ValueError(f"{name}: {instant} has no time zone")
        return instant

    def optional_instant(self, name: str) -> datetime | None:
        return None if self._values.get(name) is None else self.instant(name)

    def state(self, name: str) -> JobState:
        text = self.text(name)
        if text not in JobState.__members__:
            raise ValueError(f"{name}: {text!r:.60} is not a state")
        return JobState[text]

    def failure(self, name: str) -> JobFailureStatus:
        text = self.text(name)
        if text not in JobFailureStatus.__members__:
            raise ValueError(f"{name}: {text!r:.60} is not a failure status")
        return JobFailureStatus[text]

    def optional_failure(self, name: str) -> JobFailureStatus | None:
        return None if self._values.get(name) is None else self.failure(name)

    def numbers(self, name: str) -> dict[str, float]:
        values = self.mapping(name)
        for key, value in values.items():
            if type(value) is not float and type(value) is not int:
                raise ValueError(f"{key}: {value!r:.60} is not a number")
        return {key: float(value) for key, value in values.items()}

    def texts(self, name: str) -> dict[str, str]:
        values = self.mapping(name)
        for key, value in values.items():
            if type(value) is not str or not value.isascii():
                Fields(values).text(key)  # names the error, if there is one
        return values

    def words(self, name: str) -> tuple[str, ...]:
        value = self._values.get(name, [])
        if type(value) is not list or not all(type(item) is str for item in value):
            raise ValueError(f"{name}: {value!r:.60} is not a list of texts")
        return tuple(value)

    def objects(self, name: str) -> "list[Fields]":
        value = self._values.get(name)
        if type(value) is not list:
            raise ValueError(f"{name}: {value!r:.60} is not a list")
        return [Fields(item) for item in value]

    def mapping(self, name: str) -> dict[str, Any]:
        return Fields(self._values[name])._values if name in self._values else {}

    def value(self, name: str) -> Any:
        """Any JSON value; None if absent."""
        return self._values.get(name)


def decode_fields(data: bytes, build: Callable[[Fields], R]) -> R | Corrupt:
    """What `build` makes of a JSON object, or `Corrupt` with the first thing that is wrong with it."""
    try:
        return build(Fields(from_json(data)))
    except (ValueError, OverflowError) as wrong:
        return Corrupt(str(wrong)[:200])


def sound(text: Any) -> Any:
    """A text without lone surrogates, which `Fields.text` refuses; another value as it is."""
    if not isinstance(text, str) or text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _plain(value: Any) -> Any:
    """An instant as text, and a member of an enum as its name."""
    if isinstance(value, datetime):
        return value.isoformat()
    return value.name if isinstance(value, Enum) else value


def _record(fields: dict[str, Any]) -> bytes:
    known = {name: _plain(value) for name, value in fields.items() if value is not None}
    if "message" in known:
        known["message"] = sound(known["message"])
    return to_json({"version": RECORD_VERSION, **known}) + b"\n"


def _decoded(data: bytes, build: Callable[[Fields], R]) -> R | Corrupt:
    def build_if_known(fields: Fields) -> R:
        version = fields.integer("version", default=RECORD_VERSION)
        if version > RECORD_VERSION:
            raise ValueError(f"written by a newer version of Tenuto (format {version}); update to read it")
        return build(fields)

    return decode_fields(data, build_if_known)
