"""What people write beside runs, services and searches: a note, and a pin; kept in one file of the workspace.
Jobs and commands know nothing of it: without the file nothing is lost but the notes.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any, TypedDict

FILE = ".monitor-notes.json"
MOST_BYTES = 4 << 20
LONGEST_NOTE = 2_000
MOST_NOTES = 1_000


class Note(TypedDict):
    """What a person wrote beside one group."""

    note: str
    pinned: bool


class Notes:
    """The notes of one workspace; without a directory they last as long as the server."""

    def __init__(self, workspace: str) -> None:
        self._path = Path(workspace) / FILE if workspace and Path(workspace).is_dir() else None
        self._lock = threading.Lock()
        self._kept: dict[str, Note] = {}

    def read(self) -> dict[str, Note]:
        """Every note, by its group; a file that cannot be read has none."""
        if self._path is None:
            return dict(self._kept)
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, encoding="utf-8") as file:
                return _checked(json.loads(file.read(MOST_BYTES)))
        except (OSError, ValueError):
            return {}

    def write(self, group: str, note: str, pinned: bool) -> dict[str, Note]:
        """Put a note beside a group; an empty one without a pin is removed. The answer is every note."""
        with self._lock:
            found = self.read()
            found.pop(group, None)
            if note or pinned:
                found[group] = {"note": note[:LONGEST_NOTE], "pinned": pinned}
            found = dict(list(found.items())[-MOST_NOTES:])
            self._kept = found
            if self._path is not None:
                temporary = self._path.with_name(f"{FILE}.{os.getpid()}")
                temporary.write_text(json.dumps(found), encoding="utf-8")
                temporary.replace(self._path)
            return found


def _checked(found: Any) -> dict[str, Note]:
    """Only data of the shape of notes: people edit files."""
    if not isinstance(found, dict):
        return {}
    return {
        group: {"note": str(one.get("note", ""))[:LONGEST_NOTE], "pinned": one.get("pinned") is True}
        for group, one in found.items()
        if isinstance(one, dict)
    }
