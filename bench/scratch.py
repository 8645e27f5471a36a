"""Owns where measured systems write: a fresh tree on a real disk for each repetition; all go at the end.

Not before: where many files were deleted, ext4 looks for free inodes slowly, and what is measured next pays.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1] / ".bench"
"""Ignored by git: work trees and the environments of peers."""


_PREFIX = "tree-"


@contextmanager
def fresh(directory: Path) -> Iterator[Path]:
    """An empty directory. What it is left with stays until `clear`."""
    directory.mkdir(parents=True, exist_ok=True)
    yield Path(tempfile.mkdtemp(prefix=_PREFIX, dir=directory))


def clear(directory: Path) -> None:
    """Removes every tree that `fresh` made."""
    for place in directory.glob(f"{_PREFIX}*"):
        shutil.rmtree(place, ignore_errors=True)


def file_system(directory: Path, mounts: str | None = None) -> str:
    """The kind of file system that a directory lies on."""
    found = ("", "unknown")
    for line in (Path("/proc/mounts").read_text() if mounts is None else mounts).splitlines():
        _, mount, kind, *_ = line.split()
        inside = mount == "/" or str(directory).startswith(f"{mount}/") or str(directory) == mount
        if inside and len(mount) >= len(found[0]):
            found = (mount, kind)
    return found[1]


def last_changes(directory: Path) -> dict[str, int]:
    """When each file and directory below was last changed, content or not."""
    found = {}
    for place, directories, files in os.walk(directory):
        for name in (*directories, *files):
            path = os.path.join(place, name)
            found[path] = os.lstat(path).st_ctime_ns
    return found


def footprint(root: Path) -> tuple[int, int]:
    """The inodes below a directory, and the bytes of the disk that they take."""
    found = {(at := path.lstat()).st_ino: at.st_blocks * 512 for path in root.rglob("*")}
    return len(found), sum(found.values())
