"""The handle of a runner that ended before the launcher could open it.
It was heard of only through what it wrote.
"""

from __future__ import annotations

import os

from tenuto.workspace.ports import ProcessIdentity


class EndedHandle:
    """A `ProcessHandle` on a process that is no more."""

    def __init__(self, identity: ProcessIdentity) -> None:
        self.identity = identity
        self._fd = os.eventfd(1, os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._fd

    def send_signal(self, signal: int) -> bool:
        return False

    def ended(self) -> bool:
        return True

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
