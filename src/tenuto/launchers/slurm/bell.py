"""Bells: files into which runners write that they began and ended, so that the driver need not ask Slurm.
A ring is a reason to look, never a fact: a runner that cannot ring goes on, and a ring may be lost.
"""

from __future__ import annotations

from contextlib import suppress

from tenuto.workspace.inotify import DirectoryWatch, watch_directory
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import Files

_CHUNK = 1 << 20


def bell_path(layout: Layout, id_: str) -> str:
    return f"{layout.launchers}/bells/{id_}"


def hang_up(files: Files, path: str) -> None:
    """Makes the file of a bell; runners never do."""
    files.make_directory(path.rpartition("/")[0])
    with suppress(FileExistsError):
        files.create_exclusive(path)


class Bells:
    """The bells that one process listens to; used by one thread."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._read: dict[str, int] = {}
        """bell -> how far it was read."""
        self._unfinished: dict[str, bytes] = {}
        self._watches: dict[str, DirectoryWatch] = {}

    def listen(self, path: str) -> None:
        """Listens to a bell from its beginning."""
        if path in self._read:
            return
        self._read[path] = 0
        directory = path.rpartition("/")[0]
        if directory not in self._watches:
            with suppress(OSError):
                watch = watch_directory(directory)
                if watch is not None:
                    self._watches[directory] = watch

    def descriptors(self) -> list[int]:
        """What becomes readable when a bell on a disk of this host rings; of another host's the kernel
        says nothing."""
        return [watch.fileno() for watch in self._watches.values()]

    def rung(self) -> set[str]:
        """The attempts, by nonce, whose runners have rung since the last call."""
        for watch in self._watches.values():
            watch.drain()
        nonces: set[str] = set()
        for path in self._read:
            while data := self._next(path):
                *lines, rest = (self._unfinished.pop(path, b"") + data).split(b"\n")
                self._unfinished[path] = rest
                nonces.update(line[:-1].decode("ascii", "replace") for line in lines if line)
        return nonces

    def close(self) -> None:
        """Listens to none any more."""
        for watch in self._watches.values():
            watch.close()
        self._watches.clear()
        self._read.clear()

    def _next(self, path: str) -> bytes:
        try:
            data = self._files.read_range(path, self._read[path], _CHUNK)
        except OSError:
            return b""
        self._read[path] += len(data)
        return data
