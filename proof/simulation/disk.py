"""Owns the virtual disk: every step of every operation is a moment at which the world may interfere.
Decides nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable

from tenuto.testing.disk import Crash, FakeDisk, _below, _Node
from tenuto.workspace.ports import FileKind

_CHANGES = frozenset(("create", "rename", "remove", "make_directory", "write", "remove_directory"))


class DeadAlready(Crash):
    """The process at an operation was killed before: nothing of it happens any more."""


class SimulatedDisk(FakeDisk):
    """A `FakeDisk` on which the world has a say before each step."""

    def __init__(self) -> None:
        super().__init__()
        self.interferes: Callable[[str, str], None] = lambda operation, path: None
        """May let time pass, or raise what goes wrong."""
        self.changed: Callable[[str], None] = lambda directory: None

    def _step(self, operation: str, path: str) -> None:
        self.interferes(operation, path)
        if operation in _CHANGES:
            self.changed(path.rpartition("/")[0])

    def _grow(self, operation: str, path: str, node: _Node, data: bytes) -> None:
        try:
            super()._grow(operation, path, node, data)
        except DeadAlready:  # who is killed in the middle of it wrote half, but not after others went on
            node.data = node.data.removesuffix(data[: len(data) // 2])
            raise

    def fill(self, rest: int) -> None:
        """Leave room for this many bytes."""
        self.capacity = sum(node.size() for node in _below(self._root)) + rest

    def leave(self, path: str, data: bytes) -> None:
        """Write what a payload leaves: at once, and synced by nobody."""
        node = self._find(path)
        if node is None:
            parent, _, name = path.rpartition("/")
            if (directory := self._find(parent)) is None:
                above, _, called = parent.rpartition("/")
                directory = self._directory(above).entries[called] = self._new(FileKind.DIRECTORY)
            node = directory.entries[name] = self._new(FileKind.FILE)
        node.data = data

    # For the judge: nobody notices.

    def peek(self, path: str) -> bytes | None:
        node = self._find(path)
        return None if node is None or node.kind is not FileKind.FILE else node.data

    def below(self, directory: str) -> list[str]:
        """All files below a directory."""
        found = self._find(directory)
        pending = [] if found is None else [(directory, found)]
        files = []
        while pending:
            path, node = pending.pop()
            if node.kind is FileKind.FILE:
                files.append(path)
            pending.extend((f"{path}/{name}", child) for name, child in node.entries.items())
        return sorted(files)
