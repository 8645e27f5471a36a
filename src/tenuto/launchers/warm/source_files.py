"""The source files that a warm parent has loaded, and whether one of them has changed since.
Looks at the disk; the launcher decides what follows from a change.
"""

from __future__ import annotations

import os
import sys
import time
from types import ModuleType

_EVERY_S = 0.1
_STANDARD = f"{os.path.dirname(os.__file__)}/"
_PACKAGES = f"{_STANDARD}site-packages/"
_TICK_NS = 10_000_000
"""The time of a file's change is as coarse as the kernel's clock."""


class Sources:
    """Everything loaded, but for the standard library."""

    def __init__(self, began_ns: int) -> None:
        """`began_ns`: when the first of them may have been read."""
        self._seen = {file: _state(file) for file in _files(list(sys.modules.values()))}
        # A file written while it was read: the parent may have the old text, and here its new time. A module
        # may also name a file that never was (`torch.ops`): that one changes when the file appears.
        self._changed = next(
            (file for file, state in self._seen.items() if state and state[0] > began_ns - _TICK_NS), None
        )
        self._looked = time.monotonic()

    def changed(self) -> str | None:
        """A file that is no longer what was imported, if there is one."""
        now = time.monotonic()
        if self._changed is None and now >= self._looked + _EVERY_S:
            self._looked = now
            self._changed = next((file for file, state in self._seen.items() if _state(file) != state), None)
        return self._changed


def _files(modules: list[ModuleType]) -> set[str]:
    files = {getattr(module, "__file__", None) for module in modules}
    return {
        file
        for file in files
        if isinstance(file, str) and (not file.startswith(_STANDARD) or file.startswith(_PACKAGES))
    }


def _state(file: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
