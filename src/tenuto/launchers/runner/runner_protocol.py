"""The terms between a launcher and a runner: how a runner is started, its inherited files, its answers.
Values only, and the file of signals by which a runner tells its launcher something; nothing is decided here.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from tenuto.light import NamedTuple, late, signal

if TYPE_CHECKING:
    import signal as signal_enums

    from tenuto.launchers.manifest import SetupFailure
    from tenuto.launchers.payload.assignment import Preloaded
    from tenuto.launchers.payload.payload import Payload
    from tenuto.workspace.ports import Machine
else:
    signal_enums = late("signal")

# The interpreter.

ENTRY = f"{__file__.rpartition('/')[0]}/__main__.py"
BARE = ("-I", "-S")
"""How an interpreter is started that runs nothing but Tenuto: it needs no packages."""
PLAIN = ("-P",)
"""How a runner of the user's program is started."""

# Signals, and the words on the pipe.

READY = b"\1"
"""What a runner says to its scheduler once its pid record is written."""
REFUSAL = b"\2"
"""Its message, with the number of the error, if the machine refused it that."""

ENDING = (signal.SIGTERM, signal.SIGINT)
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
# HUP is blocked and never taken: a terminal that goes away is no reason to end a job.
SIGNALS = frozenset({*ENDING, *PASSED_ON, signal.SIGHUP, signal.SIGCHLD})
"""Blocked from the first moment of a runner, so that none is lost and none ends it."""
TAKEN = SIGNALS - {signal.SIGHUP}
FRESH_SIGNALS = (*SIGNALS, signal.SIGPIPE, signal.SIGXFSZ)
"""What a fresh interpreter takes as any program does at its start."""

LAST_WORDS_S = 30.0
"""What a cluster is asked for on top of the time of a job and its grace: for its start and its last steps."""
SPARE_S = LAST_WORDS_S / 2
"""How much of that may have passed when a job begins."""

# Exit codes: a cluster's tools show them, and `launchers` reads them back; the job's own is in the marker.

ENDED = 0
"""The marker is written, whatever it says; of an external attempt: the job is done."""
FAILED = 1
"""Of an external attempt: the marker says that it failed, and its job has no exit code of its own to show."""
BROKEN = 70
"""A bug of the runner's own."""
REFUSED = 71
"""The machine was short of something before the payload began: nothing was run, and the scheduler knows."""
UNRECORDED = 74
"""The attempt ended, and its marker could not be written."""
STALE = 75
"""Another runner has the job by now; nothing was touched."""
SETUP_FAILED = 78
"""Of the script around a runner: the lines of shell that run before each job failed, and nothing was run."""
STARVED = 79
"""Of the script around a runner: the kernel killed the runner for want of memory."""
UNMARKED = 143
"""Of an external attempt: the cluster ended it without a reason that the runner knows; there is no marker."""
NO_MARKER = (BROKEN, REFUSED, UNRECORDED, STALE, SETUP_FAILED, STARVED, UNMARKED)
"""Codes of runners that have probably written no marker."""


def signal_name(number: int) -> str:
    """The name of a signal, such as SIGTERM; `ValueError` for a real-time signal, which has a number only."""
    return signal_enums.Signals(number).name


def shown(failed: bool, exit_code: int | None) -> int:
    """The exit code by which an external runner has its cluster's own tools tell how the job ended."""
    if not failed:
        return ENDED
    return FAILED if exit_code is None or exit_code in (ENDED, *NO_MARKER) else exit_code


class PayloadToBe(Protocol):
    """A child of the runner that has begun to import the task's modules before there was a job."""

    def descriptors(self) -> tuple[int, ...]:
        """What the runner must keep open for it."""
        ...

    def take_over(self, payload: Payload) -> int | None:
        """Make it the payload; its pid, or None if it has ended before."""
        ...

    def close(self, logs: tuple[int, int]) -> None:
        """Once it has ended: save its output from before it had its logs."""
        ...


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
    """How long the payload may run by what its cluster was asked for, where that is known."""
    beat_s: float | None = None
    """How often the runner of an external attempt beats; None for a local one."""
    spare: PayloadToBe | None = None
    """The payload-to-be, if the runner waited for its job beside one."""
    signals: str | None = None
    """The file of an external launcher's that is told of the beginning and the end."""
    is_forkable: bool = False
    """The payload of a task may be forked from this interpreter, which has loaded the runner and no more."""
    failed_setup: SetupFailure | None = None
    """Given if the setup before the payload failed: the attempt is marked so, and no payload begins."""
    earlier: tuple[str, ...] = ()
    """Where requests to stop the jobs would lie that this process ran before."""

    def signal(self, what: str) -> None:
        """Tell the launcher that something happened. It looks for itself: a lost word does no harm."""
        if self.signals is not None:
            append_text(self.signals, f"{self.nonce}{what}\n")


def append_text(path: str, text: str, flags: int = 0) -> None:
    """Append to a file in one write, if that can be; one that is not there is made only by `O_CREAT`."""
    with suppress(OSError):
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o644)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)
