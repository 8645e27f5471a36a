"""Event files: each belongs to one writer and only grows; readable while written, rotated or archived.
Events are a convenience: nothing here is needed to know the truth about a job.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tenuto.lifecycle.events import Event
from tenuto.workspace.layout import JournalPlace
from tenuto.workspace.ports import Files

JOURNAL_VERSION = 1
ROTATE_BYTES = 8 * 1024 * 1024


class Entry(NamedTuple):
    """An event as read. (writer, sequence) is unique for ever: the key to tell a repetition."""

    writer: str
    sequence: int
    event: Event


class Position(NamedTuple):
    """How far one file was read."""

    offset: int
    sequence: int


Cursor = dict[str, Position]
"""How far a reader got: file identity (`{writer}/{number}`) -> position. Another reader can go on from it."""


class EventWriter:
    """Appends events to files that nobody else writes."""

    def __init__(
        self,
        files: Files,
        place: JournalPlace,
        writer: str,
        *,
        rotate_bytes: int = ROTATE_BYTES,
        durable: bool = False,
    ) -> None:
        """`writer` is a nonce. `durable` syncs after each event that is not ephemeral. Creates nothing yet."""
        raise NotImplementedError

    def write(self, event: Event) -> int:
        """Append the event; returns its sequence number. The first write claims a file."""
        raise NotImplementedError

    def sync(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class EventReader:
    """Reads a journal again and again, each event once."""

    def __init__(
        self,
        files: Files,
        place: JournalPlace,
        *,
        archive: str | None = None,
        cursor: Cursor | None = None,
    ) -> None:
        """`archive`: the directory to which the files may be moved while this reader is at work."""
        raise NotImplementedError

    def read(self, limit: int = 10_000) -> list[Entry]:
        """What is new since the last call, at most about `limit` entries; of one writer in order."""
        raise NotImplementedError

    def cursor(self) -> Cursor:
        raise NotImplementedError

    @property
    def bad_lines(self) -> int:
        """Lines skipped since the reader was made: torn, garbled or not an event."""
        raise NotImplementedError


def archive(files: Files, place: JournalPlace, target: str) -> list[str]:
    """Move the journal's files into the directory `target` (a run's `events/`); returns their new paths."""
    raise NotImplementedError


def discard(files: Files, place: JournalPlace) -> None:
    """Remove the journal's files: those of a job's older attempts."""
    raise NotImplementedError


def replay(files: Files, directory: str) -> Iterator[Entry]:
    """All entries of an archive directory, writer by writer, in order."""
    raise NotImplementedError
