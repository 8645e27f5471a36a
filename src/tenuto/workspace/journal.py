"""Event files: each belongs to one writer and only grows; readable while written, rotated or archived.
Events are a convenience: nothing here is needed to know the truth about a job.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

from tenuto.errors import JournalError, MalformedEvent, NotRegularFile
from tenuto.lifecycle.events import EVENT_VERSION, Event, from_record, to_record
from tenuto.workspace.layout import JournalPlace
from tenuto.workspace.lines import last_line, read_lines, seal
from tenuto.workspace.ports import Appender, Files

ROTATE_BYTES = 8 << 20
_LONGEST_GAP = 4
_LOOKS = 10


class Entry(NamedTuple):
    """An event as read. (writer, sequence) is unique for ever: the key to tell a repetition."""

    writer: str
    sequence: int
    event: Event


class Position(NamedTuple):
    """How far one file was read: the byte after the last complete line, the last sequence number seen."""

    offset: int
    sequence: int


Cursor = dict[str, Position]
"""How far a reader got: file identity -> position. Another reader can go on from it."""


class EventWriter:
    """Appends events to files that nobody else writes. Not for several threads at once."""

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
        """Append the event, and what was added before it; returns its sequence number.

        Claims a file first, if the last one is full. On `OSError` the event may or may not be found later,
        and the next write seals what is torn.
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
        """Append what was added: in one write, unless a file is full. On `OSError` as `write`."""
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
        """Create the next free file: exclusive creation is what makes it ours."""
        self._files.make_directory(self._place.directory)
        number = max(_numbers(self._files, self._place), default=-1) + 1
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


class EventReader:
    """Reads a journal again and again, each event once.

    A file is known by its first readable line (writer and sequence number): not by its path, which changes
    when it is archived, nor by its inode, which passes to another file when it is deleted.
    """

    def __init__(
        self,
        files: Files,
        place: JournalPlace,
        *,
        archive: str | None = None,
        cursor: Cursor | None = None,
        accept: Callable[[str], bool] | None = None,
    ) -> None:
        """`archive`: the directory to which the files may be moved while this reader is at work.

        `accept`: which writers are read; by default all.
        """
        self._files = files
        self._place = place
        self._archive = archive
        self._accept = accept
        self._cursor: Cursor = dict(cursor or {})
        self.bad_lines = 0
        """Lines skipped since the reader was made: torn, garbled or not an event."""

    def cursor(self) -> Cursor:
        return dict(self._cursor)

    def read(self, limit: int = 10_000) -> list[Entry]:
        """What is new since the last call, at most `limit` entries; of one writer in order."""
        entries: list[Entry] = []
        vanished: set[str] = set()
        for file in self._found():
            if len(entries) >= limit:
                break
            if self._accept is not None and not self._accept(file.writer):
                continue
            if file.writer in vanished:
                continue  # its earlier file is being moved; the next call finds both, in order
            try:
                self._read_file(file, entries, limit)
            except FileNotFoundError:
                vanished.add(file.writer)
        return entries

    def skip(self) -> None:
        """Go to the end of the journal, of each file reading only its last lines.

        What is written from now on is read, also the rest of a line that was unfinished.
        """
        for _ in range(_LOOKS):
            try:
                for file in self._found():
                    if self._accept is None or self._accept(file.writer):
                        self._cursor[file.identity] = _end(self._files, file.path)
                return
            except FileNotFoundError:
                continue  # moved meanwhile: the next look finds it in the archive

    def _found(self) -> list[_JournalFile]:
        for _ in range(_LOOKS):
            # Live before archive: a file moved between the two listings is seen twice, never not at all.
            paths = [self._place.path(number) for number in _numbers(self._files, self._place)]
            if self._archive is not None:
                paths += _paths_in(self._files, self._archive)
            try:
                return _in_order(self._files, paths)
            except FileNotFoundError:
                continue  # moved after the listings; without it a writer's later files would be read first
        return []

    def _read_file(self, file: _JournalFile, entries: list[Entry], limit: int) -> None:
        start = self._cursor.get(file.identity, Position(0, 0))
        for line in read_lines(self._files, file.path, start.offset):
            entry = _entry(line.content)
            if entry is None:
                self.bad_lines += not _is_header(line.content)
            elif entry.sequence > start.sequence:
                entries.append(entry)
                start = start._replace(sequence=entry.sequence)
            start = start._replace(offset=line.end)
            self._cursor[file.identity] = start
            if len(entries) >= limit:
                return


def naming(
    files: Files, place: JournalPlace, words: Collection[bytes], *, archive: str | None = None
) -> Iterator[Entry]:
    """The events whose lines hold one of these words, of all writers; no other line is decoded.

    A file that is moved meanwhile is passed over.
    """
    for file in EventReader(files, place, archive=archive)._found():
        try:
            for line in read_lines(files, file.path, naming=words):
                entry = _entry(line.content)
                if entry is not None:
                    yield entry
        except (FileNotFoundError, NotRegularFile):
            continue


def writers(files: Files, place: JournalPlace) -> dict[int, str]:
    """The writer of each file of the journal, by number; of those that can be read."""
    found = {}
    for number in _numbers(files, place):
        try:
            file = _identified(files, place.path(number))
        except FileNotFoundError:
            continue
        if file is not None:
            found[number] = file.writer
    return found


def archive(
    files: Files, place: JournalPlace, target: str, numbers: Iterable[int] | None = None
) -> list[str]:
    """Move the journal's files into the directory `target` (a run's `events/`); returns their new paths.

    All of them, or those of the given numbers. Only while nobody writes there: at the start or the end of a
    run, under the experiment's lock.
    """
    files.make_directory(target)
    taken = set(files.list(target))
    moved = []
    for number in _numbers(files, place) if numbers is None else numbers:
        free = number
        while place.file_name(free) in taken:
            free += 1
        taken.add(place.file_name(free))
        files.rename(place.path(number), f"{target}/{place.file_name(free)}")
        moved.append(f"{target}/{place.file_name(free)}")
    return moved


def discard(files: Files, place: JournalPlace) -> None:
    """Remove the journal's files: those of a job's older attempts."""
    for number in reversed(_numbers(files, place)):
        files.remove(place.path(number))


def replay(files: Files, directory: str) -> Iterator[Entry]:
    """All entries of an archive directory, writer by writer, in order.

    Raises `FileNotFoundError` if the run is being removed meanwhile.
    """
    for file in _in_order(files, _paths_in(files, directory)):
        for line in read_lines(files, file.path):
            if (entry := _entry(line.content)) is not None:
                yield entry


class _JournalFile(NamedTuple):
    writer: str
    first: int
    path: str

    @property
    def identity(self) -> str:
        return f"{self.writer}/{self.first}"


def _in_order(files: Files, paths: Iterable[str]) -> list[_JournalFile]:
    """The readable ones, each once, a writer's earlier files first. `FileNotFoundError` if one is gone."""
    known: dict[str, _JournalFile] = {}
    for path in paths:
        file = _identified(files, path)
        if file is not None:
            known[file.identity] = file
    return sorted(known.values())


def _identified(files: Files, path: str) -> _JournalFile | None:
    try:
        for line in read_lines(files, path):
            content = line.content
            if content is not None and type(content.get("w")) is str and type(content.get("s")) is int:
                return _JournalFile(content["w"], content["s"], path)
    except NotRegularFile:
        pass  # not ours
    return None


def _end(files: Files, path: str) -> Position:
    """The position after the last complete line."""
    content, end = last_line(files, path)
    sequence = content.get("s") if content is not None else None
    return Position(end, sequence if type(sequence) is int else 0)


def _entry(content: dict[str, Any] | None) -> Entry | None:
    if content is None:
        return None
    writer, sequence = content.get("w"), content.get("s")
    if type(writer) is not str or type(sequence) is not int:
        return None
    try:
        return Entry(writer, sequence, from_record(content.get("e")))
    except MalformedEvent:
        return None


def _is_header(content: dict[str, Any] | None) -> bool:
    return content is not None and "v" in content


def _numbers(files: Files, place: JournalPlace) -> list[int]:
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


def _paths_in(files: Files, directory: str) -> list[str]:
    try:
        return [f"{directory}/{name}" for name in files.list(directory) if name.endswith(".jsonl")]
    except (FileNotFoundError, NotADirectoryError):
        return []
