"""Removing a directory: out of sight by one rename, then deleted at leisure.
Never follows a link, and never leaves a half-deleted directory where a whole one was.
"""

from __future__ import annotations

import contextlib

from tenuto.errors import WorkspaceError
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import FileKind, Files, Machine


def discard(machine: Machine, layout: Layout, path: str) -> str | None:
    """Move `path` into the trash of the workspace; where it went, None if there was nothing.

    A job's directory only under its lock: the lock file moves along, and a process that waits for it notices
    by its inode that the directory is gone.
    """
    target = f"{layout.trash}/{machine.randomness.nonce()}"
    machine.files.make_directory(layout.trash)
    try:
        machine.files.rename(path, target)
    except FileNotFoundError:
        return None
    return target


def empty(machine: Machine, layout: Layout) -> int:
    """Delete what the trash holds, also what a crash left there; returns how many entries went.

    One process at a time: what another is deleting is left to it. What cannot be deleted now stays for the
    next time; it is out of sight, and no reason to fail.
    """
    files = machine.files
    if files.stat(layout.trash) is None:
        return 0
    try:
        lock = machine.locks.try_lock(layout.trash_lock)
    except (OSError, WorkspaceError):
        return 0
    if lock is None:
        return 0
    with contextlib.closing(lock):
        paths = [f"{layout.trash}/{name}" for name in files.list(layout.trash)]
        return sum(_deleted(files, path) for path in paths if path != layout.trash_lock)


def _deleted(files: Files, path: str) -> bool:
    try:
        found = files.stat(path)
        if found is not None and found.kind is FileKind.DIRECTORY:
            files.remove_tree(path)
        else:
            files.remove(path)
    except OSError:
        return False
    return True
