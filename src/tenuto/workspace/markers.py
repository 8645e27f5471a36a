"""The final word on an attempt: `.done` or `.failed`, how it is written and how it is read.
Written only by whoever holds the job's lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import Enum, unique
from typing import Any, NamedTuple

from tenuto.lifecycle.states import JobFailureStatus
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.ports import Files
from tenuto.workspace.records import Corrupt

MARKER_LIMIT = 4096
"""A marker fits the block set aside for it, so that a full disk can still be reported."""
RESULT_LIMIT = 2048
"""A larger result goes to `result.json`."""


@unique
class Durability(Enum):
    MARKER = "marker"
    NONE = "none"


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
    """The result was too large and lies in `result.json`."""
    provenance: Mapping[str, str] = {}
    """git commit, digest of the task's file."""
    flags: tuple[str, ...] = ()
    """`truncated` logs, `leftovers`, ..."""

    def encode(self) -> bytes:
        """At most `MARKER_LIMIT` bytes; an over-long message is cut in the middle."""
        raise NotImplementedError

    @classmethod
    def decode(cls, data: bytes) -> Marker | Corrupt:
        raise NotImplementedError


class MarkersFound(NamedTuple):
    """What lies at the two marker paths."""

    done: Marker | Corrupt | None = None
    failed: Marker | Corrupt | None = None


def reserve_marker(files: Files, paths: JobPaths) -> None:
    """Set disk aside for the marker, at the start of an attempt."""
    raise NotImplementedError


def write_marker(
    files: Files, paths: JobPaths, marker: Marker, durability: Durability = Durability.MARKER
) -> None:
    """Write `.done`, or `.failed` if the marker has a reason; returns once it is as durable as asked for."""
    raise NotImplementedError


def read_markers(files: Files, paths: JobPaths) -> MarkersFound:
    """Read both markers; changes nothing."""
    raise NotImplementedError


def set_aside(files: Files, path: str) -> str:
    """Rename an unreadable marker to the first free `.corrupt-n`, and say where it went."""
    raise NotImplementedError
