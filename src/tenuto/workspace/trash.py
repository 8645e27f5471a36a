"""Removing a directory: out of sight by one rename, then deleted at leisure.
Never follows a link, and never leaves a half-deleted directory where a whole one was.
"""

from __future__ import annotations

from tenuto.clock import Randomness
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import FileKind, Files


def discard(files: Files, layout: Layout, path: str, randomness: Randomness) -> str | None:
    """Move `path` into the trash of the workspace; where it went, None if there was nothing.

    A job's directory only under its lock: the lock file moves along, and whoever waits for the lock notices
    by its inode that the directory is gone.
    """
    target = f"{layout.trash}/{randomness.nonce()}"
    files.make_directory(layout.trash)
    try:
        files.rename(path, target)
    except FileNotFoundError:
        return None
    return target


def empty(files: Files, layout: Layout) -> int:
    """Delete what the trash holds, also what a crash left there; returns how many entries went."""
    try:
        names = files.list(layout.trash)
    except FileNotFoundError:
        return 0
    for name in names:
        path = f"{layout.trash}/{name}"
        found = files.stat(path)
        if found is not None and found.kind is FileKind.DIRECTORY:
            files.remove_tree(path)
        else:
            files.remove(path)
    return len(names)
