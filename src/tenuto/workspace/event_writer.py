"""The writer of a journal: event files that belong to one writer, and only grow.
Reads no event; events are a convenience, and nothing here is needed to know the truth about a job.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tenuto.errors import JournalError
from tenuto.lifecycle.events import EVENT_VERSION, Event, to_record
from tenuto.workspace.layout import JournalPlace
from tenuto.workspace.lines import seal
from tenuto.workspace.ports import Appender, Files

ROTATE_BYTES = 8 << 20
_LONGEST_GAP = 4


class EventWriter:
    """Appends events to files of its own, which no other writer touches; one thread calls it at a time."""

    def __init__(
        self,
        files: Files,
        place: JournalPlace,
        writer: str,
        *,
        rotate_bytes: int = ROTATE_BYTES,
        durable: bool = False,
    ) -> None:
        """`writer` is a nonce. `durable` syncs after each event that is not ephemeral. Creates nothing."""
        self._files = files
        self._place = place
        self._writer = writer
        self._rotate_bytes = rotate_bytes
        self._durable = durable
        self._sequence = 0
        self._pending: list[_Pending] = []
        self._file: Appender | None = None
        self._size = 0
        self._torn = False

    def write(self, event: Event) -> int:
        """Append the event, and the earlier ones; returns its sequence number.

        Claims a file first, if the last one is full. On `OSError` the event may or may not be found later,
        and the next write seals a torn line.
        """
        sequence = self.add(event)
        self.flush()
        return sequence

    def add(self, event: Event) -> int:
        """Have the event written by the next `flush`, `write` or `close`; returns its sequence number."""
        self._sequence += 1
        line = self._line(self._sequence, {"e": to_record(event)})
        self._pending.append(_Pending(self._sequence, line, event.ephemeral))
        return self._sequence

    def flush(self) -> None:
        """Append the added events: in one write, unless a file is full. On `OSError` as `write`."""
        pending, self._pending = self._pending, []
        lines: list[bytes] = []
        for sequence, line, _ in pending:
            if self._file is None or self._size + len(line) > self._rotate_bytes:
                self._append(lines)
                self._close_file()
                self._file = self._claim()
                lines = [self._line(sequence, {"v": EVENT_VERSION})]
                self._size = len(lines[0])
            lines.append(line)
            self._size += len(line)
        self._append(lines)
        if self._durable and not all(ephemeral for _, _, ephemeral in pending):
            self.sync()

    def sync(self) -> None:
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._close_file()

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _line(self, sequence: int, content: dict[str, Any]) -> bytes:
        try:
            return seal({"w": self._writer, "s": sequence, **content})
        except (TypeError, ValueError) as wrong:
            raise JournalError(f"an event cannot be written: {wrong}") from wrong

    def _claim(self) -> Appender:
        """Create the next free file: exclusive creation makes it ours."""
        self._files.make_directory(self._place.directory)
        number = max(file_numbers(self._files, self._place), default=-1) + 1
        while True:
            try:
                file = self._files.open_append(self._place.path(number), exclusive=True)
                break
            except FileExistsError:
                number += 1
        if self._durable:
            try:
                self._files.sync_directory(self._place.directory)
            except OSError:
                file.close()
                raise
        self._torn = False
        return file

    def _append(self, lines: list[bytes]) -> None:
        if self._file is not None and lines:
            together = b"".join([b"\n", *lines] if self._torn else lines)
            self._torn = True
            self._file.append(together)
            self._torn = False


class _Pending(NamedTuple):
    sequence: int
    line: bytes
    ephemeral: bool


def file_numbers(files: Files, place: JournalPlace) -> list[int]:
    """The numbers of the journal's files, in order."""
    if place.crowded:
        return _numbers_by_asking(files, place)
    try:
        names = files.list(place.directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(number for name in names if (number := place.number(name)) is not None)


def _numbers_by_asking(files: Files, place: JournalPlace) -> list[int]:
    """Ask for one number after the other; writers leave no gap, and a person's small one does no harm."""
    numbers: list[int] = []
    number = 0
    while number <= (numbers[-1] if numbers else -1) + _LONGEST_GAP:
        if files.stat(place.path(number)) is not None:
            numbers.append(number)
        number += 1
    return numbers
