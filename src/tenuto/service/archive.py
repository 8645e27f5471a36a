"""A directory as a ZIP, written to a file or handed out while it is made; memory does not grow with files.
Only regular files are packed: links, pipes, sockets and devices are named as skipped, and never opened.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import stat
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import islice
from typing import IO, Any, NamedTuple

from tenuto.launchers.payload.limits import LOG_NOTICE, log_gap
from tenuto.service.names import OWN_DIRECTORY, is_packable

CHUNK = 1 << 18
SAMPLE = 1 << 16
"""Of a file, to see whether compressing it is worth the while."""
WORTH = 0.95
DEEPEST = 32
MOST_BYTES = 16 << 30
MOST_FILES = 100_000
MOST_SKIPPED = 1000
"""Files that a result names as skipped; of more it says how many there are."""
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class ResultBounds(NamedTuple):
    """How large a result may be; sizes are those that files claim, holes included."""

    bytes: int = MOST_BYTES
    files: int = MOST_FILES


class ResultTooLarge(Exception):
    """A directory holds more than a result may; the text says what."""


class PackingStopped(Exception):
    """The packing of a result was ended from outside."""


class ArchiveSource(NamedTuple):
    """What to pack."""

    directory: str
    """Its regular files are at the root of the ZIP."""
    logs: Mapping[str, str]
    """name under `.tenuto/` -> file with the output; one that is missing is left out."""
    facts: Mapping[str, Any]
    """The content of `.tenuto/job.json` besides the skipped files."""
    moment: float = 0.0
    """When `.tenuto/job.json` was made, in seconds since 1970."""
    owners: frozenset[int] | None = None
    """The uids that a file with several links must belong to; None: any. So a payload cannot have a file of
    another user packed by linking to it."""
    log_bytes: int | None = None
    """Of a log that is longer its head, a notice and its tail are packed."""
    bounds: ResultBounds = ResultBounds()
    with_files: bool = True
    """False: the logs and the facts alone."""
    expected: tuple[str, ...] = ()
    """Logs that are read of every result: one that is missing is an empty entry, since a job that is done
    loses empty folders."""


class Packed(NamedTuple):
    """A ZIP that was written."""

    bytes: int
    sha256: str


class _Seen(NamedTuple):
    """A regular file below a directory, not yet opened."""

    path: str
    name: str
    directory: int
    status: os.stat_result


class _Found(NamedTuple):
    name: str
    descriptor: int
    status: os.stat_result
    gap: tuple[int, int] | None = None
    """The range that is not packed: a notice stands in its place."""


class _Skipped:
    """Names the files that were not packed, and counts those beyond the room."""

    def __init__(self) -> None:
        self._named: list[dict[str, str]] = []
        self._more = 0
        self.is_cut = False
        """A directory has more entries than files are packed: not all were looked at."""

    def add(self, name: str, why: str) -> None:
        if len(self._named) < MOST_SKIPPED:
            self._named.append({"name": _shown(name), "why": why})
        else:
            self._more += 1

    def facts(self) -> dict[str, Any]:
        """As `.tenuto/job.json` says it."""
        more = {"skipped_more": self._more} if self._more else {}
        return {"skipped": self._named, **more}


class _Sink(io.RawIOBase):
    """Takes what `zipfile` writes, cannot seek, and keeps it until it is taken away."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def taken(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def zip_stream(source: ArchiveSource) -> Iterator[bytes]:
    """The ZIP, piece by piece. A file that changes meanwhile is packed as it is read; the ZIP is valid.

    A file that would go beyond the bounds is skipped: `measured` refuses such a directory as a whole.
    """
    sink = _Sink()
    skipped = _Skipped()
    dropped: dict[str, Any] = {}
    lacking = dict.fromkeys(f"{OWN_DIRECTORY}/{name}" for name in source.expected)
    with zipfile.ZipFile(sink, "w", allowZip64=True) as archive:
        for found in _all_found(source, skipped):
            lacking.pop(found.name, None)
            if found.gap is not None:
                dropped[os.path.basename(found.name)] = {"bytes": found.status.st_size, "dropped": found.gap}
            try:
                for _ in _add(archive, found):
                    if piece := sink.taken():
                        yield piece
            finally:
                os.close(found.descriptor)
        for name in lacking:
            archive.writestr(_made(name, 0o600, source.moment), b"")
        facts = {**source.facts, **skipped.facts(), **({"logs": dropped} if dropped else {})}
        info = _made(f"{OWN_DIRECTORY}/job.json", 0o644, source.moment)
        archive.writestr(info, json.dumps(facts, indent=1) + "\n", zipfile.ZIP_DEFLATED)
    yield sink.taken()


def _made(name: str, mode: int, moment: float) -> zipfile.ZipInfo:
    """The entry of a file that was not read from the disk."""
    info = zipfile.ZipInfo(name, _zip_time(moment))
    info.external_attr = (0o100000 | mode) << 16
    return info


def _all_found(source: ArchiveSource, skipped: _Skipped) -> Iterator[_Found]:
    """Everything that is packed, opened: files within the bounds, then logs."""
    left = source.bounds
    for seen in _walk(source, skipped) if source.with_files else ():
        if left.files < 1 or seen.status.st_size > left.bytes:
            skipped.add(seen.path, "the result would be too large")
        elif (found := _opened(seen, skipped)) is not None:
            left = ResultBounds(left.bytes - found.status.st_size, left.files - 1)
            yield found
    for name, path in source.logs.items():
        found_log = _open_log(f"{OWN_DIRECTORY}/{name}", path, source.log_bytes)
        if found_log is not None:
            yield found_log


def write_zip(
    source: ArchiveSource, target: IO[bytes], is_stopped: Callable[[], bool] = lambda: False
) -> Packed:
    """Writes the ZIP to a file, which the caller syncs; raises `OSError` if there is no room.

    ``is_stopped`` is asked after every piece: `PackingStopped` once it is true.
    """
    digest = hashlib.sha256()
    size = 0
    for piece in zip_stream(source):
        if is_stopped():
            raise PackingStopped
        target.write(piece)
        digest.update(piece)
        size += len(piece)
    return Packed(size, digest.hexdigest())


def measured(source: ArchiveSource, is_stopped: Callable[[], bool] = lambda: False) -> int:
    """The bytes that the files of a result claim; `ResultTooLarge` as soon as they are beyond the bounds."""
    size = files = 0
    skipped = _Skipped()
    for seen in _walk(source, skipped) if source.with_files else ():
        size, files = size + seen.status.st_size, files + 1
        if size > source.bounds.bytes:
            raise ResultTooLarge(f"its files are larger than {source.bounds.bytes} bytes (max_result_bytes)")
        if files > source.bounds.files or skipped.is_cut:
            break
        if is_stopped():
            raise PackingStopped
    if files > source.bounds.files or skipped.is_cut:
        raise ResultTooLarge(f"there are more than {source.bounds.files} files")
    return size


def tree_bytes(directory: str, most: int) -> int:
    """What the files below a directory take on the disk; counting ends once it is more than ``most``."""
    size = 0
    for _, directories, files, at in os.fwalk(directory, follow_symlinks=False, onerror=None):
        for name in (*directories, *files):
            try:
                size += os.stat(name, dir_fd=at, follow_symlinks=False).st_blocks * 512
            except OSError:
                continue  # it vanished meanwhile
        if size > most:
            return size
    return size


def _walk(source: ArchiveSource, skipped: _Skipped) -> Iterator[_Seen]:
    """The regular files below a directory; the rest is noted as skipped."""
    try:
        root = os.open(source.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        skipped.add(".", error.strerror or "cannot be read")
        return
    try:
        yield from _files_of("", root, source, skipped)
    finally:
        os.close(root)


def _files_of(prefix: str, directory: int, source: ArchiveSource, skipped: _Skipped) -> Iterator[_Seen]:
    below: list[str] = []
    for name in _names(directory, source.bounds.files, prefix, skipped):
        path = prefix + name
        if path == OWN_DIRECTORY and _holds_logs_alone(directory, source):
            continue
        if not is_packable(name) or path == OWN_DIRECTORY:
            skipped.add(path, "its name could harm a program that unpacks it")
            continue
        try:
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except OSError:
            skipped.add(path, "vanished")
            continue
        if stat.S_ISDIR(status.st_mode):
            below.append(name)
        elif why := _objection(status, source.owners):
            skipped.add(path, why)
        else:
            yield _Seen(path, name, directory, status)
    if below and prefix.count("/") >= DEEPEST:
        for name in below:
            skipped.add(prefix + name, f"deeper than {DEEPEST} directories")
        return
    # By descriptors, one for each level: a directory that is moved meanwhile cannot lead elsewhere.
    for name in below:
        try:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            child = os.open(name, flags, dir_fd=directory)
        except OSError as error:
            skipped.add(prefix + name, error.strerror or "cannot be read")
            continue
        try:
            yield from _files_of(f"{prefix}{name}/", child, source, skipped)
        finally:
            os.close(child)


def _holds_logs_alone(directory: int, source: ArchiveSource) -> bool:
    """True if the payload left in its `.tenuto` only files packed as logs, such as its metrics."""
    try:
        own = os.open(OWN_DIRECTORY, _OPEN | os.O_DIRECTORY, dir_fd=directory)
    except OSError:  # a link, or a file
        return False
    try:
        return source.logs.keys() >= set(os.listdir(own))
    finally:
        os.close(own)


def _names(directory: int, most_files: int, prefix: str, skipped: _Skipped) -> list[str]:
    """The names in a directory, sorted; of too many to be packed only so many are kept in memory."""
    with os.scandir(directory) as entries:
        names = sorted(entry.name for entry in islice(entries, most_files + 1))
        if next(entries, None) is not None:
            skipped.is_cut = True
            skipped.add(prefix or ".", f"it has more than {most_files} entries")
    return names


def _opened(seen: _Seen, skipped: _Skipped) -> _Found | None:
    try:
        descriptor = os.open(seen.name, _OPEN, dir_fd=seen.directory)
    except OSError as error:
        skipped.add(seen.path, error.strerror or "cannot be read")
        return None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):  # replaced between the look and the opening
        os.close(descriptor)
        skipped.add(seen.path, "not a regular file")
        return None
    return _Found(seen.path, descriptor, status)


def _objection(status: os.stat_result, owners: frozenset[int] | None) -> str | None:
    """Why a file is not packed; None if it is."""
    if not stat.S_ISREG(status.st_mode):
        return _KINDS.get(stat.S_IFMT(status.st_mode), "not a regular file")
    if status.st_nlink > 1 and owners is not None and status.st_uid not in owners:
        return "a link to a file of another user"
    return None


_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def _zip_time(moment: float) -> tuple[int, int, int, int, int, int]:
    """An instant as a ZIP has it: from 1980 to 2107."""
    within = min(max(moment, 315532800.0), 4354819198.0)
    return time.gmtime(within)[:6]


def _shown(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode()


def _open_log(name: str, path: str, log_bytes: int | None) -> _Found | None:
    try:
        descriptor = _opened_log(path)
    except OSError:
        return None
    status = os.fstat(descriptor)
    gap = None if log_bytes is None else log_gap(status.st_size, log_bytes)
    return _Found(name, descriptor, status, gap)


def _opened_log(path: str) -> int:
    """Opens a log. A payload may have put a link or a pipe in its place, or in that of its directory: that
    raises `FileNotFoundError`, as if there was none.
    """
    above, name = os.path.split(path)
    missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    try:
        directory = os.open(above, _OPEN | os.O_DIRECTORY)
    except OSError:
        raise missing from None
    try:
        descriptor = os.open(name, _OPEN, dir_fd=directory)
    except OSError:
        raise missing from None
    finally:
        os.close(directory)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise missing
    return descriptor


def _add(archive: zipfile.ZipFile, found: _Found) -> Iterator[None]:
    """Adds one opened file, and returns after each piece of it."""
    sample = os.pread(found.descriptor, SAMPLE, 0)
    info = zipfile.ZipInfo(found.name, _zip_time(found.status.st_mtime))
    info.external_attr = (0o100000 | (found.status.st_mode & 0o777)) << 16
    shrinks = len(zlib.compress(sample, 1)) <= len(sample) * WORTH
    info.compress_type = zipfile.ZIP_DEFLATED if shrinks else zipfile.ZIP_STORED
    info._compresslevel = 1  # type: ignore[attr-defined]  # `ZipFile.open` has no parameter for it
    with archive.open(info, "w", force_zip64=found.status.st_size >= 1 << 30) as entry:
        # At most its size when it was opened: a log that grows as fast as it is read would never end.
        size, gap = found.status.st_size, found.gap
        for start, end in ((0, size),) if gap is None else ((0, gap[0]), (gap[1], size)):
            if start:
                entry.write(LOG_NOTICE)
            at = start
            while at < end:
                piece = os.pread(found.descriptor, min(CHUNK, end - at), at)
                if not piece:
                    break
                entry.write(piece)
                at += len(piece)
                yield
    yield


# The output of a job, in pieces. Offsets count its bytes, dropped or not, on a node and in a result.


class LogPiece(NamedTuple):
    """A piece of a log, and where the next one begins."""

    data: bytes
    next_offset: int


def read_log(path: str, offset: int, limit: int, log_bytes: int) -> LogPiece:
    """A piece of a log on the disk; in place of dropped text stands a notice.

    Raises `FileNotFoundError`.
    """
    descriptor = _opened_log(path)
    try:
        gap = log_gap(os.fstat(descriptor).st_size, log_bytes)
        return _piece(lambda at, most: os.pread(descriptor, most, at), gap, offset, limit, 0)
    finally:
        os.close(descriptor)


def read_archived_log(
    result: str, stream: str, offset: int, limit: int, *, as_packed: bool = False
) -> LogPiece | None:
    """A piece of what an ended job printed, from its result; None if the result is not there.

    Unpacks no more than is asked for, and nothing to the disk. ``as_packed``: the offset counts what the
    result holds, and not the output.
    """
    try:
        with zipfile.ZipFile(result) as archive, archive.open(f"{OWN_DIRECTORY}/{stream}") as log:

            def read(at: int, most: int) -> bytes:
                _skip(log, at)
                return log.read(most)

            gap = None if as_packed else _archived_gap(archive, stream)
            return _piece(read, gap, offset, limit, 0 if gap is None else gap[1] - gap[0] - len(LOG_NOTICE))
    except FileNotFoundError:
        return None
    except KeyError:  # it printed nothing, and has no such log
        return LogPiece(b"", offset)


def _skip(log: IO[bytes], count: int) -> None:
    """Reads the text before a piece: `seek` of Python 3.12.3 leaves an entry that is stored as it is."""
    while count > 0 and (passed := log.read(min(count, CHUNK))):
        count -= len(passed)


def _piece(
    read: Callable[[int, int], bytes], gap: tuple[int, int] | None, offset: int, limit: int, moved: int
) -> LogPiece:
    """``moved``: by how much what follows the gap lies further ahead than its offset says."""
    if gap is None or offset < gap[0]:
        data = read(offset, limit if gap is None else min(limit, gap[0] - offset))
        return LogPiece(data, offset + len(data))
    notice = LOG_NOTICE if offset < gap[1] else b""
    start = max(offset, gap[1])
    data = read(start - moved, max(limit - len(notice), 0))
    return LogPiece(notice + data, start + len(data))


def _archived_gap(archive: zipfile.ZipFile, stream: str) -> tuple[int, int] | None:
    """The range of a log that its result does not hold."""
    try:
        facts = json.loads(archive.read(f"{OWN_DIRECTORY}/job.json"))
        start, end = facts["logs"][stream]["dropped"]
        return int(start), int(end)
    except (KeyError, TypeError, ValueError):
        return None


# A result, read again: the names of its files, or one of them; unpacked in memory only.


def listed_files(descriptor: int) -> list[tuple[str, int]]:
    """Name and size of each file of a result; closes the descriptor."""
    with os.fdopen(descriptor, "rb") as file, zipfile.ZipFile(file) as archive:
        return [(entry.filename, entry.file_size) for entry in archive.infolist() if not entry.is_dir()]


class ArchivedFile(NamedTuple):
    """One file of a result that is being read; `close` must be called."""

    size: int
    read: Callable[[int], bytes]
    close: Callable[[], None]


def open_file(descriptor: int, name: str) -> ArchivedFile | None:
    """A file of a result; None if there is none of that name. The descriptor is closed with it."""
    with ExitStack() as opened:
        file = opened.enter_context(os.fdopen(descriptor, "rb"))
        archive = opened.enter_context(zipfile.ZipFile(file))
        try:
            stream = opened.enter_context(archive.open(name))
        except KeyError:
            return None
        return ArchivedFile(archive.getinfo(name).file_size, stream.read, opened.pop_all().close)
