"""The signals that a runner takes, one after another, instead of being interrupted; what it says itself.
The supervisor decides what each of them means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenuto.light import late, signal

if TYPE_CHECKING:
    import signal as signal_enums
else:
    signal_enums = late("signal")

READY = b"\1"
"""What a runner says to its scheduler once its pid record is written."""
REFUSAL = b"\2"
"""What it says, with the number of the error, if the machine refused it that."""

ENDING = (signal.SIGTERM, signal.SIGINT)
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
# HUP is blocked and never taken: a terminal that goes away is no reason to end a job.
SIGNALS = frozenset({*ENDING, *PASSED_ON, signal.SIGHUP, signal.SIGCHLD})
"""Blocked from the first moment of a runner, so that none is lost and none ends it."""
TAKEN = SIGNALS - {signal.SIGHUP}


def signal_name(number: int) -> str:
    """The name of a signal, such as SIGTERM; `ValueError` for a real-time signal, which has a number only."""
    return signal_enums.Signals(number).name
