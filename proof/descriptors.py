"""Owns how a proof or a test finds open files: by name, for other threads of its process open files too."""

from __future__ import annotations

import os
from contextlib import suppress


def open_files(below: str = "") -> dict[int, str]:
    """The descriptors of this process, with the names of their files; only of files below a directory."""
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one that lists, and those that others closed meanwhile
            found[int(fd)] = os.readlink(f"/proc/self/fd/{fd}")
    return {fd: name for fd, name in found.items() if name.startswith(f"{below}/" if below else "")}
