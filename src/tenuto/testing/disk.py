"""A disk in memory that knows its synced content, and can fail, fill up, or lose power.
Follows no links on the way to a file; Tenuto never needs that.
"""

from __future__ import annotations

import errno
import os
from binascii import crc32
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import count

from tenuto.errors import FileTooLarge, NotRegularFile
from tenuto.workspace.ports import FileKind, FileStat, FreeSpace, temporary_name


class Crash(BaseException):
    """The process that used the disk died in the middle of an operation."""


class _Node:
    """A file, link or directory: as it is, and as it would be after a power loss."""

    def __init__(self, number: int, kind: FileKind) -> None:
        self.number = number
        self.kind = kind
        self.mode = 0o700 if kind is FileKind.DIRECTORY else 0o600
        self.data = b""
        self.durable_data = b""
        self.reserved = 0
        self.touched = 0
        """How often a process touched it."""
        self.entries: dict[str, _Node] = {}
        self.durable_entries: dict[str, _Node] = {}

    def size(self) -> int:
        return max(len(self.data), self.reserved)

    def changed(self) -> int:
        """Differs where content, entries or touches do."""
        entries = ",".join(f"{name}={node.number}" for name, node in sorted(self.entries.items()))
        return crc32(b"%d %b %b" % (self.touched, self.data, entries.encode()))


class FakeDisk:
    """`Files` in memory.

    Syncing a file makes its content durable; syncing a directory, its entries and the way to it. Everything
    else is lost by `power_loss`, unless that is told to let some of it survive.
    """

    def __init__(self) -> None:
        self._numbers = count(1)
        self._root = self._new(FileKind.DIRECTORY)
        self._steps = 0
        self._faults: dict[int, int] = {}
        self._crashes: set[int] = set()
        self._surprises: dict[int, Callable[[], None]] = {}
        self.operations: list[tuple[str, str]] = []
        """(operation, path) of each step so far. One call can be several: `replace` is five."""
        self.capacity: int | None = None
        """Bytes that fit; None for no limit."""

    # What a test or a simulator does to it.

    def fail_after(self, steps: int, code: int) -> None:
        """Let the step after the next `steps` ones fail with this `errno`, half done if it writes."""
        self._faults[self._steps + steps + 1] = code

    def crash_after(self, steps: int) -> None:
        """Let the process die (`Crash`) in the step after the next `steps` ones, half done if it writes."""
        self._crashes.add(self._steps + steps + 1)

    def before_step(self, steps: int, happens: Callable[[], None]) -> None:
        """Let something else happen on the machine right before the step after the next `steps` ones."""
        self._surprises[self._steps + steps + 1] = happens

    def heal(self) -> None:
        """Forget whatever was planned."""
        self._faults.clear()
        self._crashes.clear()
        self._surprises.clear()

    def power_loss(self, survives: Callable[[str], bool] = lambda path: False) -> None:
        """Drop all that was not synced, except where `survives(path)`: asked once per file and per directory.

        The changes of one directory survive together or not at all, since a rename is atomic on any disk.
        """
        self._lose(self._root, "", survives, set())

    def _lose(self, node: _Node, path: str, survives: Callable[[str], bool], seen: set[int]) -> None:
        if node.number in seen:
            return
        seen.add(node.number)
        if node.data != node.durable_data and not survives(path):
            node.data = node.durable_data
            node.reserved = 0
        if node.entries != node.durable_entries and not survives(path):
            node.entries = dict(node.durable_entries)
        node.durable_data = node.data
        node.durable_entries = dict(node.entries)
        for name, child in node.entries.items():
            self._lose(child, f"{path}/{name}", survives, seen)

    # `Files`.

    def read(self, path: str, limit: int) -> bytes:
        node = self._regular("read", path)
        if len(node.data) > limit:
            raise FileTooLarge(f"{path} has {len(node.data)} bytes, at most {limit} are expected there")
        return node.data

    def read_range(self, path: str, offset: int, limit: int) -> bytes:
        return self._regular("read", path).data[offset : offset + limit]

    def write(self, path: str, data: bytes) -> None:
        node = self._create("write", path)
        node.data = b""
        self._grow("write", path, node, data)

    def replace(self, path: str, data: bytes, *, durable: bool, reserve: str | None = None) -> None:
        temporary = temporary_name(path, f"{next(self._numbers)}")
        if reserve is not None and self._find(reserve) is not None:
            temporary = reserve
        try:
            node = self._create("create", temporary)
            node.data = b""
            self._grow("write", temporary, node, data)
            node.reserved = 0
            if durable:
                self._step("sync", temporary)
                node.durable_data = node.data
            self.rename(temporary, path)
        except OSError:
            self._forget(temporary)
            raise
        if durable:
            self.sync_directory(_parent(path))

    def create_exclusive(self, path: str, data: bytes = b"") -> None:
        node = self._create("create", path, exclusive=True)
        self._grow("write", path, node, data)

    def open_append(self, path: str, *, exclusive: bool = False) -> FakeAppender:
        return FakeAppender(self, path, self._create("create", path, exclusive=exclusive))

    def preallocate(self, path: str, size: int) -> None:
        node = self._create("preallocate", path)
        if size > node.size() and size - node.size() > self._room():
            self._forget(path)
            raise _error(errno.ENOSPC, path)
        node.reserved = max(node.reserved, size)
        node.data = node.data.ljust(size, b"\0")

    def make_directory(self, path: str) -> None:
        found = self._find(path)
        if found is None:
            if self._find(_parent(path)) is None:
                self.make_directory(_parent(path))
            self._step("make_directory", path)
            # In that step another process may have made it.
            entries = self._directory(_parent(path)).entries
            if _name(path) not in entries:
                entries[_name(path)] = self._new(FileKind.DIRECTORY)
        elif found.kind is not FileKind.DIRECTORY:
            raise _error(errno.EEXIST, path)

    def remove(self, path: str) -> bool:
        self._step("remove", path)
        found = self._find(path)
        if found is None:
            return False
        if found.kind is FileKind.DIRECTORY:
            raise _error(errno.EISDIR, path)
        self._forget(path)
        return True

    def remove_directory(self, path: str) -> bool:
        self._step("remove_directory", path)
        found = self._find(path)
        if found is None or self._directory(path).entries:
            return False
        self._forget(path)
        return True

    def remove_tree(self, path: str) -> None:
        found = self._find(path)
        if found is None:
            return
        if found.kind is not FileKind.DIRECTORY:
            raise _error(errno.ENOTDIR, path)
        for name in list(found.entries):
            child = f"{path}/{name}"
            if found.entries[name].kind is FileKind.DIRECTORY:
                self.remove_tree(child)
            else:
                self.remove(child)
        self._step("remove_directory", path)
        self._forget(path)

    def rename(self, source: str, target: str) -> None:
        self._step("rename", target)
        moved = self._find(source)
        if moved is None:
            raise _error(errno.ENOENT, source)
        replaced = self._find(target)
        if replaced is not None and replaced.kind is FileKind.DIRECTORY:
            if moved.kind is not FileKind.DIRECTORY:
                raise _error(errno.EISDIR, target)
            if replaced.entries:
                raise _error(errno.ENOTEMPTY, target)
        elif replaced is not None and moved.kind is FileKind.DIRECTORY:
            raise _error(errno.ENOTDIR, target)
        self._directory(_parent(target)).entries[_name(target)] = moved
        self._forget(source)

    def symlink(self, target: str, path: str) -> None:
        self._step("symlink", path)
        found = self._find(path)
        if found is not None and found.kind is not FileKind.LINK:
            raise _error(errno.EEXIST, path)
        link = self._new(FileKind.LINK)
        link.data = link.durable_data = os.fsencode(target)
        self._directory(_parent(path)).entries[_name(path)] = link

    def link(self, source: str, path: str) -> None:
        self._step("link", path)
        found = self._find(source)
        if found is None:
            raise _error(errno.ENOENT, source)
        if found.kind is FileKind.DIRECTORY:
            raise _error(errno.EPERM, source)
        if self._find(path) is not None:
            raise _error(errno.EEXIST, path)
        self._directory(_parent(path)).entries[_name(path)] = found

    def read_link(self, path: str) -> str:
        self._step("read", path)
        found = self._find(path)
        if found is None:
            raise _error(errno.ENOENT, path)
        if found.kind is not FileKind.LINK:
            raise _error(errno.EINVAL, path)
        return os.fsdecode(found.data)

    def stat(self, path: str) -> FileStat | None:
        self._step("stat", path)
        found = self._find(path)
        if found is None:
            return None
        return FileStat(found.kind, len(found.data), found.number, found.mode, found.changed())

    def stat_file(self, path: str) -> FileStat | None:
        found = self.stat(path)
        return found if found is not None and found.kind is FileKind.FILE else None

    def touch(self, path: str) -> None:
        self._step("touch", path)
        found = self._find(path)
        if found is None:
            raise _error(errno.ENOENT, path)
        found.touched = next(self._numbers)

    def dress(self, path: str, mode: int, modified: int | None) -> None:
        self._step("dress", path)
        found = self._find(path)
        if found is None:
            raise _error(errno.ENOENT, path)
        found.mode = mode

    def modified(self, path: str) -> int | None:
        self._step("read", path)
        found = self._find(path)
        if found is None or found.kind is not FileKind.FILE:
            return None
        return hash((found.number, found.touched, found.data))

    def list(self, path: str) -> list[str]:
        self._step("list", path)
        return sorted(self._directory(path).entries)

    def sync_directory(self, path: str) -> None:
        self._step("sync_directory", path)
        node = self._root
        for name in _parts(path):
            child = node.entries.get(name)
            if child is None:
                raise _error(errno.ENOENT, path)
            node.durable_entries[name] = child
            node = child
        node.durable_entries = dict(node.entries)

    def sync_tree(self, path: str, skip: Callable[[str], bool]) -> None:
        self._step("list", path)
        found = [name for name in sorted(self._directory(path).entries) if not skip(name)]
        for name in found:
            self._sync_node(f"{path}/{name}")
        if found:
            self.sync_directory(path)

    def _sync_node(self, path: str) -> None:
        node = self._find(path)
        if node is not None and node.kind is FileKind.FILE:
            self._step("sync", path)
            node.durable_data = node.data
        elif node is not None and node.kind is FileKind.DIRECTORY:
            self.sync_tree(path, lambda name: False)

    def free_space(self, path: str) -> FreeSpace:
        self._step("free_space", path)
        return FreeSpace(self._room(), 1 << 20)

    # Inside.

    def _step(self, operation: str, path: str) -> None:
        self._steps += 1
        if (happens := self._surprises.pop(self._steps, None)) is not None:
            happens()
        self.operations.append((operation, path))
        if self._steps in self._crashes:
            raise Crash(f"died in {operation} {path}")
        if self._steps in self._faults:
            raise _error(self._faults.pop(self._steps), path)

    def _grow(self, operation: str, path: str, node: _Node, data: bytes) -> None:
        """Append; what fits of it if the disk is full, half of it if the step fails."""
        try:
            self._step(operation, path)
        except BaseException:
            node.data += data[: len(data) // 2]
            raise
        fits = max(node.reserved - len(node.data), 0) + self._room()
        node.data += data[:fits]
        if fits < len(data):
            raise _error(errno.ENOSPC, path)

    def _room(self) -> int:
        if self.capacity is None:
            return 1 << 40
        return max(self.capacity - sum(node.size() for node in _below(self._root)), 0)

    def _create(self, operation: str, path: str, *, exclusive: bool = False) -> _Node:
        self._step(operation, path)
        found = self._find(path)
        if found is None:
            found = self._new(FileKind.FILE)
            self._directory(_parent(path)).entries[_name(path)] = found
        elif exclusive:
            raise _error(errno.EEXIST, path)
        elif found.kind is not FileKind.FILE:
            raise _error(errno.EISDIR if found.kind is FileKind.DIRECTORY else errno.ELOOP, path)
        return found

    def _forget(self, path: str) -> None:
        parent = self._find(_parent(path))
        if parent is not None:
            parent.entries.pop(_name(path), None)

    def _new(self, kind: FileKind) -> _Node:
        return _Node(next(self._numbers), kind)

    def _find(self, path: str) -> _Node | None:
        node = self._root
        for name in _parts(path):
            child = node.entries.get(name)
            if child is None:
                return None
            node = child
        return node

    def _directory(self, path: str) -> _Node:
        found = self._find(path)
        if found is None:
            raise _error(errno.ENOENT, path)
        if found.kind is not FileKind.DIRECTORY:
            raise _error(errno.ENOTDIR, path)
        return found

    def _regular(self, operation: str, path: str) -> _Node:
        self._step(operation, path)
        found = self._find(path)
        if found is None:
            raise _error(errno.ENOENT, path)
        if found.kind is not FileKind.FILE:
            raise NotRegularFile(f"{path} is a {found.kind.value}, not a file")
        return found


class FakeAppender:
    """An `Appender` on a `FakeDisk`."""

    def __init__(self, disk: FakeDisk, path: str, node: _Node) -> None:
        self.path = path
        self._disk = disk
        self._node = node

    def append(self, data: bytes) -> None:
        self._disk._grow("append", self.path, self._node, data)

    def sync(self) -> None:
        self._disk._step("sync", self.path)
        self._node.durable_data = self._node.data

    def size(self) -> int:
        return len(self._node.data)

    def close(self) -> None:
        pass


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


@lru_cache(maxsize=8192)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _below(node: _Node) -> Iterator[_Node]:
    yield node
    for child in node.entries.values():
        yield from _below(child)
