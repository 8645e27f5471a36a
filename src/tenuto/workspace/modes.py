"""The modes of new files and directories: for their owner, and in a shared workspace for its group, too.
Changes nothing that exists.

A directory is shared if its group may write there and is handed down (set-group-id): `drwxrws---`. A new
file or directory follows the one that it lies in, so the root decides for a workspace, in every process.
"""

from __future__ import annotations

import os
import stat

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
SHARED = stat.S_ISGID | stat.S_IRWXG
"""The bits of a directory by which it is shared."""
_GROUP_READS_AND_WRITES = 0o060


class _Umask:
    """What the process takes from the modes of new files."""

    leaves_groups = False


def is_shared(directory: str) -> bool:
    """True if a new file in a directory is for its group, too."""
    try:
        mode = os.stat(directory or ".").st_mode
    except OSError:
        return False  # the caller's own attempt tells more
    return mode & SHARED == SHARED


def file_mode(path: str) -> int:
    """The mode of a new file."""
    if not is_shared(path.rpartition("/")[0]):
        return FILE_MODE
    _leave_groups()
    return FILE_MODE | _GROUP_READS_AND_WRITES


def directory_mode(path: str) -> int:
    """The mode of a new directory; the kernel adds set-group-id, as the one above has it."""
    if not is_shared(path.rpartition("/")[0]):
        return DIRECTORY_MODE
    _leave_groups()
    return DIRECTORY_MODE | stat.S_IRWXG


def _leave_groups() -> None:
    """Have the umask take nothing from the group.

    The usual one takes the right to write. To set the mode of a file after it was made would be too late for
    another member's process, which is refused meanwhile.
    """
    if not _Umask.leaves_groups:
        os.umask(os.umask(0o007) & ~stat.S_IRWXG)
        _Umask.leaves_groups = True
