"""The signals that a runner takes, one after another, instead of being interrupted by them.
What each of them means is the supervisor's business.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from signal import pthread_sigmask
else:
    # The wrapper in `signal` makes a member of an enum of every signal that was blocked before, which nobody
    # asks for; in a process just forked that is dozens of pages to copy.
    from _signal import pthread_sigmask

ENDING = (signal.SIGTERM, signal.SIGINT)
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
# HUP is blocked and never taken: a terminal that goes away is no reason to end a job.
SIGNALS = frozenset({*ENDING, *PASSED_ON, signal.SIGHUP, signal.SIGCHLD})
"""Blocked from the first moment of a runner, so that none is lost and none ends it."""
TAKEN = SIGNALS - {signal.SIGHUP}

__all__ = ["ENDING", "PASSED_ON", "SIGNALS", "TAKEN", "pthread_sigmask"]
