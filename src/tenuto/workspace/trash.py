"""Removing a directory: out of sight by one rename, then deleted at leisure.
Never follows a link, and never leaves a half-deleted directory where a whole one was.
"""

from __future__ import annotations

import contextlib

from tenuto.errors import WorkspaceError
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import FileKind, Files, Machine, writer_of

# Temporary files that a killed writer left beside the files it was about to replace.
# Leaves alone what a process may still be writing.


def clear_forsaken(machine: Machine, directory: str) -> int:
    """Remove the temporary files in a directory whose writer is no process of this machine; how many."""
    try:
        names = machine.files.list(directory)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    pids = {name: pid for name in names if (pid := writer_of(name)) is not None}
    forsaken = [name for name, pid in pids.items() if machine.processes.identify(pid) is None]
    return sum(machine.files.remove(f"{directory}/{name}") for name in forsaken)


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

    One process at a time: what another is deleting is left to it. So the process that deletes looks again
    when it is through: later entries were left to it. An entry that cannot be deleted now stays for the next
    time; it is out of sight, and no reason to fail.
    """
    deleted = 0
    tried: set[str] = set()
    while left := _entries(machine, layout) - tried:
        try:
            lock = machine.locks.try_lock(layout.trash_lock)
        except (OSError, WorkspaceError):
            break
        if lock is None:
            break
        with contextlib.closing(lock):
            deleted += sum(_deleted(machine.files, path) for path in sorted(left))
        tried |= left
    return deleted


def _entries(machine: Machine, layout: Layout) -> set[str]:
    try:
        names = machine.files.list(layout.trash)
    except OSError:
        return set()
    return {path for name in names if (path := f"{layout.trash}/{name}") != layout.trash_lock}


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
