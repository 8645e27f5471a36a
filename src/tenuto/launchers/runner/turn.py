"""The turn of a job: what one runner of a job has at a time, whatever becomes of the job's directory.
Not the job's lock, which lies in that directory: with the directory deleted, another runner has another lock.
"""

from __future__ import annotations

import errno
import sys

from tenuto.errors import WorkspaceError
from tenuto.launchers.instructions import Instructions
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.ports import LockHandle, Machine

LOOK_AGAIN_S = 0.05
_BYTES = (1 << 61) - 1
_NOT_OURS_TO_WRITE = (errno.EACCES, errno.EPERM, errno.EROFS)


class Turn:
    """One byte of a file of the workspace, which the kernel frees with the runner."""

    def __init__(self, machine: Machine, paths: JobPaths, instructions: Instructions) -> None:
        self._machine = machine
        self._path = instructions.layout(paths).turns
        name = f"{instructions.task_id}/{instructions.job_id}"
        self._byte = int.from_bytes(name.encode(), "big") % _BYTES
        self._lock: LockHandle | None = None

    def take(self) -> bool:
        """False while another runner has the job; that one ends when it sees that its directory is gone.

        Where the workspace cannot have such a file there are no turns, and only the job's lock decides.
        """
        if self._lock is not None or sys.platform != "linux":
            return True
        try:
            self._lock = self._machine.locks.try_lock(self._path, self._byte)
        except WorkspaceError:
            return True
        except OSError as error:
            if error.errno in _NOT_OURS_TO_WRITE:
                return True
            raise
        return self._lock is not None
