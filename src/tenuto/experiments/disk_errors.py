"""Errors of a disk in words: what cannot be used, why, and what a person can do about it.
It asks the disk, and changes nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM)


def worded_error(error: OSError, directory: str) -> str:
    """What an error says of a directory that was to be used."""
    place = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else directory
    if error.errno in _FULL:
        return (
            f"DISK_FULL: {place} cannot be written: {_disk(directory)} is full, or your quota of it. Remove "
            f"what is not needed, as by `tenuto clean --orphans -w {directory}`, and run it again"
        )
    if error.errno == errno.EROFS:
        disk = _disk(directory)
        return f"{place} cannot be written: {disk} is read-only: use another workspace, or have it remounted"
    if error.errno in _FORBIDDEN:
        return (
            f"{place} cannot be written: {_rights(place)}: use another workspace, or have its "
            f"owner share it with a group of yours, see workspace_group in docs/settings.md"
        )
    return f"{place} cannot be used: {error.strerror}: use another workspace"


def _disk(path: str) -> str:
    """The disk that a path lies on, by where it is mounted, and what it has left."""
    known = _existing(path)
    mounted = known
    while not os.path.ismount(mounted) and mounted != "/":
        mounted = os.path.dirname(mounted)
    with suppress(OSError):
        found = os.statvfs(known)
        free = found.f_bavail * found.f_frsize
        return f"the disk at {mounted} ({free // 2**20} MiB and {found.f_favail} files left)"
    return f"the disk at {mounted}"


def _rights(path: str) -> str:
    known = _existing(path)
    with suppress(OSError):
        found = os.stat(known)
        mode = stat.filemode(found.st_mode)
        return f"{known} belongs to user {found.st_uid} ({mode}), and you are user {os.geteuid()}"
    return "you have no right to"


def _existing(path: str) -> str:
    """The nearest directory above a path that is there."""
    known = os.path.abspath(path)
    while not os.path.exists(known) and known != "/":
        known = os.path.dirname(known)
    return known
