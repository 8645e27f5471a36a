"""The source files that a warm parent has loaded, and whether one of them has changed since.
Looks at the disk; what follows from a change is the launcher's business.
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
        # Written while we were reading: what we have may be the old text, and its time the new one.
        self._changed = any(state is None or state[0] > began_ns - _TICK_NS for state in self._seen.values())
        self._looked = time.monotonic()

    def changed(self) -> bool:
        now = time.monotonic()
        if not self._changed and now >= self._looked + _EVERY_S:
            self._looked = now
            self._changed = any(_state(file) != state for file, state in self._seen.items())
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
