"""A directory as a ZIP, written to a file or handed out while it is made; memory does not grow with files.
Only regular files are packed: links, pipes, sockets and devices are named as skipped, and never opened.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import IO, Any, NamedTuple

from tenuto.service.names import OWN_DIRECTORY, is_packable

CHUNK = 1 << 18
SAMPLE = 1 << 16
"""Of a file, to see whether compressing it is worth the while."""
WORTH = 0.95
DEEPEST = 32
MOST_HOLE_BYTES = 16 << 30
"""A file that claims this much more than it takes on the disk is not packed: reading it would never end."""
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Source(NamedTuple):
    """What to pack."""

    directory: str
    """Its regular files are at the root of the ZIP."""
    extra: Mapping[str, str]
    """name under `.tenuto/` -> file with its content; one that is missing is left out."""
    facts: Mapping[str, Any]
    """What `.tenuto/job.json` says besides what was skipped."""
    moment: float = 0.0
    """When `.tenuto/job.json` was made, in seconds since 1970."""
    owners: frozenset[int] | None = None
    """The uids that a file with several links must belong to; None: any. So a payload cannot have a file of
    another user packed by linking to it."""


class Packed(NamedTuple):
    """A ZIP that was written."""

    bytes: int
    sha256: str


class _Found(NamedTuple):
    name: str
    descriptor: int
    status: os.stat_result


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


def zip_stream(source: Source) -> Iterator[bytes]:
    """The ZIP, piece by piece. What changes meanwhile is packed as it is read; the ZIP is valid."""
    sink = _Sink()
    skipped: list[dict[str, str]] = []
    with zipfile.ZipFile(sink, "w", allowZip64=True) as archive:
        for found in _walk(source, skipped):
            try:
                for _ in _add(archive, found):
                    if piece := sink.taken():
                        yield piece
            finally:
                os.close(found.descriptor)
        for name, path in source.extra.items():
            found_extra = _open_extra(f"{OWN_DIRECTORY}/{name}", path)
            if found_extra is None:
                continue
            try:
                for _ in _add(archive, found_extra):
                    if piece := sink.taken():
                        yield piece
            finally:
                os.close(found_extra.descriptor)
        facts = {**source.facts, "skipped": skipped}
        info = zipfile.ZipInfo(f"{OWN_DIRECTORY}/job.json", _zip_time(source.moment))
        info.external_attr = 0o100644 << 16
        archive.writestr(info, json.dumps(facts, indent=1) + "\n", zipfile.ZIP_DEFLATED)
    yield sink.taken()


def write_zip(source: Source, target: IO[bytes]) -> Packed:
    """Writes the ZIP to a file, which the caller syncs; raises `OSError` if there is no room."""
    digest = hashlib.sha256()
    size = 0
    for piece in zip_stream(source):
        target.write(piece)
        digest.update(piece)
        size += len(piece)
    return Packed(size, digest.hexdigest())


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


def _walk(source: Source, skipped: list[dict[str, str]]) -> Iterator[_Found]:
    """The regular files below a directory, opened; the rest is noted as skipped."""
    try:
        root = os.open(source.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        skipped.append({"name": ".", "why": error.strerror or "cannot be read"})
        return
    stack: list[tuple[str, int]] = [("", root)]
    try:
        while stack:
            prefix, directory = stack.pop()
            try:
                yield from _files_of(prefix, directory, source, skipped, stack)
            finally:
                os.close(directory)
    finally:
        for _, directory in stack:
            os.close(directory)


def _files_of(
    prefix: str, directory: int, source: Source, skipped: list[dict[str, str]], stack: list[tuple[str, int]]
) -> Iterator[_Found]:
    below: list[str] = []
    for name in sorted(os.listdir(directory)):
        path = prefix + name
        if not is_packable(name) or (not prefix and name == OWN_DIRECTORY):
            skipped.append({"name": _shown(path), "why": "its name could harm a program that unpacks it"})
            continue
        try:
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except OSError:
            skipped.append({"name": path, "why": "vanished"})
            continue
        if stat.S_ISDIR(status.st_mode):
            below.append(name)
        elif why := _objection(status, source.owners):
            skipped.append({"name": path, "why": why})
        else:
            found = _opened(path, name, directory, skipped)
            if found is not None:
                yield found
    if below and prefix.count("/") >= DEEPEST:
        skipped.extend({"name": prefix + name, "why": f"deeper than {DEEPEST} directories"} for name in below)
        return
    # Opened last first, one by one as they are needed, would take a path of names; a directory that is moved
    # meanwhile could then lead elsewhere. Descriptors cannot.
    for name in reversed(below):
        try:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            stack.append((f"{prefix}{name}/", os.open(name, flags, dir_fd=directory)))
        except OSError as error:
            skipped.append({"name": prefix + name, "why": error.strerror or "cannot be read"})


def _opened(path: str, name: str, directory: int, skipped: list[dict[str, str]]) -> _Found | None:
    try:
        descriptor = os.open(name, _OPEN, dir_fd=directory)
    except OSError as error:
        skipped.append({"name": path, "why": error.strerror or "cannot be read"})
        return None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):  # replaced between the look and the opening
        os.close(descriptor)
        skipped.append({"name": path, "why": "not a regular file"})
        return None
    return _Found(path, descriptor, status)


def _objection(status: os.stat_result, owners: frozenset[int] | None) -> str | None:
    """Why a file is not packed; None if it is."""
    if not stat.S_ISREG(status.st_mode):
        return _KINDS.get(stat.S_IFMT(status.st_mode), "not a regular file")
    if status.st_nlink > 1 and owners is not None and status.st_uid not in owners:
        return "a link to a file of another user"
    if status.st_size - status.st_blocks * 512 > MOST_HOLE_BYTES:
        return "a sparse file, too large to read"
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


def _open_extra(name: str, path: str) -> _Found | None:
    try:
        descriptor = os.open(path, _OPEN)
    except OSError:
        return None
    return _Found(name, descriptor, os.fstat(descriptor))


def _add(archive: zipfile.ZipFile, found: _Found) -> Iterator[None]:
    """Adds one opened file, and returns after each piece of it."""
    sample = os.pread(found.descriptor, SAMPLE, 0)
    info = zipfile.ZipInfo(found.name, _zip_time(found.status.st_mtime))
    info.external_attr = (0o100000 | (found.status.st_mode & 0o777)) << 16
    shrinks = len(zlib.compress(sample, 1)) <= len(sample) * WORTH
    info.compress_type = zipfile.ZIP_DEFLATED if shrinks else zipfile.ZIP_STORED
    info._compresslevel = 1  # type: ignore[attr-defined]  # `ZipFile.open` has no parameter for it
    with archive.open(info, "w", force_zip64=found.status.st_size >= 1 << 30) as entry:
        at = 0
        # At most what it held when it was opened: a log that grows as fast as it is read would never end.
        while at < found.status.st_size:
            piece = os.pread(found.descriptor, min(CHUNK, found.status.st_size - at), at)
            if not piece:
                break
            entry.write(piece)
            at += len(piece)
            yield
    yield
