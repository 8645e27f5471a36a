"""Pauses of all starts while the machine is short of something: processes, memory, descriptors, disk.
A pause ends by itself; no job is lost by it, and none is tried more often for it. If the machine does not
recover, the jobs fail: no pause is without an end.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from math import inf

from tenuto.scheduler.decisions import Verdict, failure, has_recovered, shortage, worded
from tenuto.scheduler.inputs import Input, Recovered, Short
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.listeners import LogStep
from tenuto.scheduler.loop import Loop
from tenuto.scheduler.slots import Slots
from tenuto.workspace.ports import Machine

logger = logging.getLogger("tenuto.scheduler")

_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
BACK_OFF_S = 1.0
TELLS_EVERY_S = 60.0
"""How often, at most, a shortage that goes on is worth a line: it stops a start each second."""
PAUSED = "waits until the machine recovers"
"""How the message of a job begins whose start the machine refused."""
LONGEST_S = 86_400.0
"""How long the machine may be short of something before the jobs that wait for it fail."""
OWN_S = 60.0
"""The same, where only this process could end the shortage, and nothing of it runs that will."""


class Pauses:
    """Has the core pause, and go on; to be used in the loop's thread only."""

    def __init__(self, machine: Machine, slots: Slots, loop: Loop, feed: Callable[[Input], None]) -> None:
        """`feed` tells the core."""
        self._machine = machine
        self._slots = slots
        self._loop = loop
        self._feed = feed
        self._told_at = -inf
        self._since: float | None = None
        """When the shortage began, of which no job has been started since."""
        self.reason: str | None = None
        """What the machine is short of, while starts are paused."""

    def verdict(self, job: Job, error: Exception) -> Verdict | None:
        """What an error in an attempt amounts to; None if its job waits until the machine recovers."""
        passing = shortage(error)
        lasting = None if passing is None else self.begin(job, passing)
        if lasting is not None:
            return failure(job.job_id, error)._replace(message=lasting)
        return failure(job.job_id, error) if passing is None else None

    def begin(self, job: Job, error: OSError) -> str | None:
        """A start was refused by the machine: its job is ready again, and nothing is started for a while.

        Returns why the job is to fail instead, if the shortage lasts too long.
        """
        now = self._machine.clock.monotonic()
        self._since = now if self._since is None else self._since
        is_own = error.errno == errno.EMFILE and self._slots.is_alone
        longest_s = OWN_S if is_own else LONGEST_S
        if now >= self._since + longest_s:
            hint = "raise the limit of open files (ulimit -n)" if is_own else "see to it, and run it again"
            return f"{worded(error)}; that did not change within {longest_s:g} s: {hint}"
        self.reason = worded(error)
        self._tell()
        self._feed(Short(job, f"{PAUSED}: {self.reason}", error.errno in _DESCRIPTORS))
        self._loop.later(BACK_OFF_S, self._resume, job, error)
        return None

    def end(self) -> None:
        """A job was started: whatever the machine was short of, there is some again."""
        self._since = None

    def _resume(self, job: Job, error: OSError) -> None:
        since = self._since or 0.0
        is_over = self._machine.clock.monotonic() >= since + LONGEST_S  # then the jobs find out, and fail
        if not is_over and not has_recovered(error, self._machine.files, job.layout.root):
            self._loop.later(BACK_OFF_S, self._resume, job, error)
            return
        if self.reason is not None:
            logger.info("starts are tried again", extra={"action": LogStep.STARTS_RESUMED.value})
        self.reason = None
        self._feed(Recovered())

    def _tell(self) -> None:
        now = self._machine.clock.monotonic()
        if now >= self._told_at + TELLS_EVERY_S:
            self._told_at = now
            said = "starts are paused until the machine recovers: %s"
            logger.warning(said, self.reason, extra={"action": LogStep.STARTS_PAUSED.value})
