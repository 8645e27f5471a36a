"""Removes a directory and all below it, however deep, by descriptors: no link leads out of it meanwhile.
Decides nothing; the trash and the cleaners of jobs know the files that may go.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import count

from tenuto.workspace.modes import DIRECTORY_MODE

_ENTER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str) -> None:
    """Remove the directory, if there is one."""
    try:
        top = os.open(path, _ENTER)
    except FileNotFoundError:
        return
    try:
        with suppress(PermissionError):  # of another member of the group, who may remove its files
            os.fchmod(top, DIRECTORY_MODE)
        _remove_content(top)
    finally:
        os.close(top)
    os.rmdir(path)


def _remove_content(top: int) -> None:
    """Empty a directory with two descriptors, however deep it is.

    Sub-directories of sub-directories are moved up to the top instead of being descended into. All names are
    resolved against open descriptors, so a directory swapped for a link meanwhile leads nowhere.
    """
    moved = count()
    while entries := _entries(top):
        for entry in entries:
            child = _enter_or_unlink(entry, top)
            if child is None:
                continue
            try:
                for grandchild in _entries(child):
                    if (inner := _enter_or_unlink(grandchild, child)) is None:
                        continue
                    os.close(inner)
                    _move_up(grandchild.name, child, top, moved)
            finally:
                os.close(child)
            os.rmdir(entry.name, dir_fd=top)


def _entries(directory: int) -> list[os.DirEntry[str]]:
    """All of them at once, since they are about to go; each knows by itself whether it is a directory."""
    with os.scandir(directory) as found:
        return list(found)


def _enter_or_unlink(entry: os.DirEntry[str], parent: int) -> int | None:
    """Open a sub-directory; remove anything else."""
    if not entry.is_dir(follow_symlinks=False):
        os.unlink(entry.name, dir_fd=parent)
        return None
    with suppress(PermissionError):
        os.chmod(entry.name, DIRECTORY_MODE, dir_fd=parent)
    return os.open(entry.name, _ENTER, dir_fd=parent)


def _move_up(name: str, parent: int, top: int, numbers: Iterator[int]) -> None:
    while True:
        try:
            os.rename(name, f"{next(numbers)}", src_dir_fd=parent, dst_dir_fd=top)
            return
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise  # else: an entry of the top has that number; take the next
