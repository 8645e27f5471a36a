"""What a runner inherits from the launcher that started it: its job, its descriptors, its terms.
Values only, and the bell by which a runner tells its launcher something; nothing is decided here.
"""

import os
from contextlib import suppress

from tenuto.launchers.runner.payload import PayloadToBe, Preloaded
from tenuto.light import NamedTuple
from tenuto.workspace.ports import Machine


class Inherited(NamedTuple):
    """What a launcher gives a runner: where the job lies, which attempt is meant, and descriptors."""

    directory: str
    script_name: str
    nonce: str
    python: str
    """The interpreter for a task that is to have a fresh one."""
    lock: int
    descendants: int
    ready: int | None
    """The runner writes here once its pid record is written; None if no launcher listens."""
    tokens: tuple[int, ...] = ()
    """Never looked at: to have them open is to hold the tokens."""
    machine: Machine | None = None
    """Given if it was put together before the fork."""
    preloaded: Preloaded | None = None
    """Given if the task's modules were imported before the fork."""
    why_fresh: str | None = None
    """Why they were not, if the launcher would have."""
    time_s: float | None = None
    """How long a cluster lets the runner run, where that is known."""
    beat_s: float | None = None
    """How often the runner of an external attempt beats; None for a local one."""
    spare: PayloadToBe | None = None
    """The payload-to-be, if the runner waited for its job beside one."""
    bell: str | None = None
    """The file of an external launcher's that is told of the beginning and the end."""
    is_forkable: bool = False
    """The payload of a task may be forked from this interpreter, which has loaded the runner and no more."""

    def ring(self, what: str) -> None:
        """Tell the launcher that something happened. It looks for itself: a lost word does no harm."""
        if self.bell is not None:
            with suppress(OSError):
                fd = os.open(self.bell, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    os.write(fd, f"{self.nonce}{what}\n".encode())
                finally:
                    os.close(fd)
