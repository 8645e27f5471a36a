"""The real disk, by plain system calls; the missing files of a job may be in a pack.
Knows nothing else of jobs; its caller knows what a file means.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

from tenuto.errors import FileTooLarge, NotRegularFile
from tenuto.light import ctypes, late
from tenuto.workspace.layout import pack_places
from tenuto.workspace.modes import directory_mode, file_mode
from tenuto.workspace.ports import FileKind, FileStat, FreeSpace, temporary_name

if TYPE_CHECKING:
    from tenuto.workspace import packs, tree_removal
    from tenuto.workspace.packs import PackedJob
else:
    packs = late("tenuto.workspace.packs")  # nor are there packs in most workspaces
    tree_removal = late("tenuto.workspace.tree_removal")  # no job removes a tree

_CHUNK = 1 << 20
# O_NOFOLLOW and O_NONBLOCK: a link must not lead out of the workspace, a pipe must not hang its reader.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ENTER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_MOST_SYNCED = 4
"""Above so many files and directories the whole file system is synced at once: each sync of a file waits for
a commit of the file system's journal, and one commit takes all."""
_TRIES = 10
"""How often a directory is tried again whose parent is missing."""

_temporary_numbers = count()
_MISSING = (FileNotFoundError, NotADirectoryError)


class DiskFiles:
    """`Files` on the disk of this machine."""

    def read(self, path: str, limit: int) -> bytes:
        # Every job that is found done is read so, twice: plain calls, and as few of them as can be.
        try:
            fd = _open(path)
        except _MISSING:
            if (packed := self._packed(path)) is None:
                raise
            return packed[0].read(path, packed[1], limit)
        try:
            size = _regular_size(fd, path)
            if size > limit:
                raise FileTooLarge(f"{path} has {size} bytes, at most {limit} are expected there")
            data = os.read(fd, size + 1)
            if len(data) != size:  # it is being written
                data += _read_up_to(fd, limit + 1 - len(data))
        finally:
            os.close(fd)
        if len(data) > limit:
            raise FileTooLarge(f"{path} grew beyond {limit} bytes while it was read")
        return data

    def read_range(self, path: str, offset: int, limit: int) -> bytes:
        try:
            opened = _open(path)
        except _MISSING:
            if (packed := self._packed(path)) is None:
                raise
            return packed[0].read(path, packed[1])[offset : offset + limit]
        with _closing(opened) as fd:
            _regular_size(fd, path)
            os.lseek(fd, offset, os.SEEK_SET)
            return _read_up_to(fd, limit)

    def write(self, path: str, data: bytes) -> None:
        _fill(os.open(path, _WRITE | os.O_CREAT | os.O_TRUNC, file_mode(path)), data)

    def replace(self, path: str, data: bytes, *, durable: bool, reserve: str | None = None) -> None:
        fd, temporary = _open_temporary(path, reserve)
        try:
            _fill(fd, data, cut=temporary == reserve, durable=durable)
            os.rename(temporary, path)
        except OSError:
            self.remove(temporary)
            raise
        if durable:
            self.sync_directory(path.rpartition("/")[0] or "/")

    def create_exclusive(self, path: str, data: bytes = b"") -> None:
        _fill(os.open(path, _WRITE | os.O_CREAT | os.O_EXCL, file_mode(path)), data)

    def open_append(self, path: str, *, exclusive: bool = False) -> DiskAppender:
        flags = _WRITE | os.O_APPEND | os.O_CREAT | (os.O_EXCL if exclusive else 0)
        return DiskAppender(path, os.open(path, flags, file_mode(path)))

    def preallocate(self, path: str, size: int) -> None:
        with _closing(os.open(path, _WRITE | os.O_CREAT, file_mode(path))) as fd:
            try:
                os.posix_fallocate(fd, 0, size)
            except OSError:
                self.remove(path)
                raise

    def make_directory(self, path: str) -> None:
        for _ in range(_TRIES):
            try:
                return _make_directory(path)
            except FileNotFoundError:
                # Another process may make the one above too, or remove it again: the next try tells.
                self.make_directory(os.path.dirname(path))
        return _make_directory(path)  # which raises below /proc, where nothing can be made

    def remove(self, path: str) -> bool:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        return True

    def remove_directory(self, path: str) -> bool:
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        return True

    def remove_tree(self, path: str) -> None:
        tree_removal.remove_tree(path)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def symlink(self, target: str, path: str) -> None:
        try:
            os.symlink(target, path)
        except FileExistsError:
            if not os.path.islink(path):
                raise
            temporary = _temporary_name(path)
            os.symlink(target, temporary)
            try:
                os.rename(temporary, path)
            except OSError:
                self.remove(temporary)
                raise

    def link(self, source: str, path: str) -> None:
        os.link(source, path, follow_symlinks=False)

    def read_link(self, path: str) -> str:
        try:
            return os.readlink(path)
        except _MISSING:
            packed = self._packed(path)
            entry = packed and packed[0].entries.get(packed[1])
            if not entry or entry.kind != "l":
                raise
            return entry.target

    def stat(self, path: str) -> FileStat | None:
        try:
            found = os.lstat(path)
        except _MISSING:
            packed = self._packed(path)
            return packed and packed[0].stat(packed[1])
        return _as_stat(found)

    def stat_file(self, path: str) -> FileStat | None:
        found = _look_inside(path)
        if found is not None:
            return _as_stat(found)
        entry = self._packed_file(path)
        return entry and entry[0].stat(entry[1])

    def _packed(self, path: str) -> tuple[PackedJob, str] | None:
        """The packed job that a path leads into, and its name there; of a path that the disk lacks."""
        return packs.find(self, path) if _may_be_packed(path) else None

    def _packed_file(self, path: str) -> tuple[PackedJob, str] | None:
        found = self._packed(path)
        return (
            found
            if found is not None and (one := found[0].entries.get(found[1])) and one.kind == "f"
            else None
        )

    def dress(self, path: str, mode: int, modified: int | None) -> None:
        os.chmod(path, mode)
        if modified is not None:
            os.utime(path, ns=(modified, modified))

    def touch(self, path: str) -> None:
        os.utime(path, follow_symlinks=False)

    def modified(self, path: str) -> int | None:
        found = _look_inside(path)
        if found is not None:
            return found.st_mtime_ns
        entry = self._packed_file(path)
        return entry and entry[0].entries[entry[1]].modified

    def list(self, path: str) -> list[str]:
        if not _may_be_packed(path):
            return sorted(os.listdir(path))
        try:
            return sorted({*os.listdir(path), *packs.names(self, path)})
        except _MISSING:
            if (found := packs.names(self, path)) or self.stat(path) is not None:
                return sorted(found)
            raise

    def sync_directory(self, path: str) -> None:
        with _closing(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as fd:
            os.fsync(fd)

    def sync_tree(self, path: str, skip: Callable[[str], bool]) -> None:
        try:
            found = _found_below(path, skip)
            if len(found) > _MOST_SYNCED:
                _sync_file_system(path)
            elif found:
                for each in found:
                    _sync(each)
                self.sync_directory(path)
        except PermissionError:  # a task of another user left it
            _sync_file_system(path)

    def free_space(self, path: str) -> FreeSpace:
        found = os.statvfs(path)
        return FreeSpace(found.f_bavail * found.f_frsize, found.f_favail)


class DiskAppender:
    """An `Appender` on a real file."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def append(self, data: bytes) -> None:
        _write_all(self._fd, data)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _closing:  # no generator: it would cost each job seven calls more, at every file
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _open(path: str) -> int:
    try:
        return os.open(path, _READ)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise NotRegularFile(f"{path} is a link or a socket, not a file") from error
        raise


def _may_be_packed(path: str) -> bool:
    """Whether the task of a path has a pack: one look, for files that are missing."""
    if "/jobs" in path:
        for place, _, _ in pack_places(path):
            try:
                os.lstat(place)
            except OSError:
                continue
            return True
    return False


def _look_inside(path: str) -> os.stat_result | None:
    """The kind of a path, by opening it; None for a path that is no file."""
    try:
        fd = _open(path)
    except (FileNotFoundError, NotADirectoryError, NotRegularFile):
        return None
    with _closing(fd):
        return os.fstat(fd)


def _as_stat(found: os.stat_result) -> FileStat:
    mode = found.st_mode
    kind = _kind(mode)
    names = found.st_nlink if kind is FileKind.FILE else 1
    return FileStat(kind, found.st_size, found.st_ino, stat.S_IMODE(mode), found.st_ctime_ns, names)


def _regular_size(fd: int, path: str) -> int:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise NotRegularFile(f"{path} is a {_kind(found.st_mode).value}, not a file")
    return found.st_size


def _read_up_to(fd: int, limit: int) -> bytes:
    data = os.read(fd, min(limit, _CHUNK))
    if not data or len(data) == limit:
        return data
    chunks = [data]
    missing = limit - len(data)
    while missing and (chunk := os.read(fd, min(missing, _CHUNK))):
        chunks.append(chunk)
        missing -= len(chunk)
    return b"".join(chunks)


def _make_directory(path: str) -> None:
    try:
        os.mkdir(path, directory_mode(path))
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def _fill(fd: int, data: bytes, *, cut: bool = False, durable: bool = False) -> None:
    """Write a file from its beginning and close it; `cut`: what lay behind that goes."""
    try:
        _write_all(fd, data)
        if cut:
            os.ftruncate(fd, len(data))
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, data[written:])


def _found_below(top: str, skip: Callable[[str], bool]) -> list[str]:
    """Files and directories below a directory, the deepest last; no more than are synced one by one, and one.

    Links and the like have no content: the directory that lists them is enough.
    """
    with os.scandir(top) as entries:
        pending = [entry for entry in entries if not skip(entry.name)]
    found: list[str] = []
    while pending and len(found) <= _MOST_SYNCED:
        entry = pending.pop()
        if entry.is_dir(follow_symlinks=False):
            found.append(entry.path)
            with os.scandir(entry.path) as entries:
                pending.extend(entries)
        elif entry.is_file(follow_symlinks=False):
            found.append(entry.path)
    return found


def _sync(path: str) -> None:
    try:
        fd = os.open(path, _READ)
    except FileNotFoundError:
        return  # a file gone meanwhile needs no disk
    with _closing(fd):
        os.fsync(fd)


def _sync_file_system(path: str) -> None:
    with _closing(os.open(path, _ENTER)) as fd:
        if ctypes.CDLL(None, use_errno=True).syncfs(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), path)


def _open_temporary(path: str, reserve: str | None) -> tuple[int, str]:
    if reserve is not None:
        try:
            return os.open(reserve, _WRITE), reserve
        except FileNotFoundError:
            pass  # a person removed it; without it only a full disk is worse
    while True:
        temporary = _temporary_name(path)
        try:
            return os.open(temporary, _WRITE | os.O_CREAT | os.O_EXCL, file_mode(path)), temporary
        except FileExistsError:
            continue  # left by a dead process that had our pid


def _temporary_name(path: str) -> str:
    return temporary_name(path, f"{os.getpid()}-{next(_temporary_numbers)}")


_KINDS = {stat.S_IFREG: FileKind.FILE, stat.S_IFDIR: FileKind.DIRECTORY, stat.S_IFLNK: FileKind.LINK}


def _kind(mode: int) -> FileKind:
    return _KINDS.get(stat.S_IFMT(mode), FileKind.OTHER)
