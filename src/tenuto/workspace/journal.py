"""Journals as they are read: while they are written, rotated or archived, each event once.
Events are a convenience: nothing here is needed to know the truth about a job.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

from tenuto.errors import MalformedEvent, NotRegularFile
from tenuto.lifecycle.events import Event, from_record
from tenuto.workspace.event_writer import file_numbers
from tenuto.workspace.layout import JournalPlace
from tenuto.workspace.lines import last_line, read_lines
from tenuto.workspace.ports import Files

_LOOKS = 10


class JournalEntry(NamedTuple):
    """An event as read. (writer, sequence) is unique for ever: the key to tell a repetition."""

    writer: str
    sequence: int
    event: Event


class Position(NamedTuple):
    """How far one file was read: the byte after the last complete line, the last sequence number seen."""

    offset: int
    sequence: int


Cursor = dict[str, Position]
"""How far a reader got: file identity -> position. Another reader can continue from it."""


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

    def read(self, limit: int = 10_000) -> list[JournalEntry]:
        """The new entries since the last call, at most `limit` entries; of one writer in order."""
        entries: list[JournalEntry] = []
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

        Later lines are read, also the rest of a line that was unfinished.
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
            paths = [self._place.path(number) for number in file_numbers(self._files, self._place)]
            if self._archive is not None:
                paths += _paths_in(self._files, self._archive)
            try:
                return _in_order(self._files, paths)
            except FileNotFoundError:
                continue  # moved after the listings; without it a writer's later files would be read first
        return []

    def _read_file(self, file: _JournalFile, entries: list[JournalEntry], limit: int) -> None:
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
) -> Iterator[JournalEntry]:
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
    """The writer of each file of the journal, by number; of the readable ones."""
    found = {}
    for number in file_numbers(files, place):
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

    All of them, or those with given numbers. Only while no writer is there: at the start or the end of a
    run, under the experiment's lock.
    """
    files.make_directory(target)
    taken = set(files.list(target))
    moved = []
    for number in file_numbers(files, place) if numbers is None else numbers:
        free = number
        while place.file_name(free) in taken:
            free += 1
        taken.add(place.file_name(free))
        files.rename(place.path(number), f"{target}/{place.file_name(free)}")
        moved.append(f"{target}/{place.file_name(free)}")
    return moved


def discard(files: Files, place: JournalPlace) -> None:
    """Remove the journal's files, of a job's older attempts."""
    for number in reversed(file_numbers(files, place)):
        files.remove(place.path(number))


def replay(files: Files, directory: str) -> Iterator[JournalEntry]:
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


def _entry(content: dict[str, Any] | None) -> JournalEntry | None:
    if content is None:
        return None
    writer, sequence = content.get("w"), content.get("s")
    if type(writer) is not str or type(sequence) is not int:
        return None
    try:
        return JournalEntry(writer, sequence, from_record(content.get("e")))
    except MalformedEvent:
        return None


def _is_header(content: dict[str, Any] | None) -> bool:
    return content is not None and "v" in content


def _paths_in(files: Files, directory: str) -> list[str]:
    try:
        return [f"{directory}/{name}" for name in files.list(directory) if name.endswith(".jsonl")]
    except (FileNotFoundError, NotADirectoryError):
        return []
