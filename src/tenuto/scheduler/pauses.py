"""Pauses of all starts while the machine is short of something: processes, memory, descriptors, disk.
A pause ends by itself; no job is lost by it, and none is tried more often for it.
"""

from __future__ import annotations

import logging
from math import inf

from tenuto.lifecycle.states import JobState
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.logbook import Step
from tenuto.scheduler.loop import Loop
from tenuto.scheduler.ready import ReadyQueue
from tenuto.scheduler.troubles import has_recovered, worded
from tenuto.workspace.ports import Machine

logger = logging.getLogger("tenuto.scheduler")

BACK_OFF_S = 1.0
TELLS_EVERY_S = 60.0
"""How often, at most, a shortage that goes on is worth a line: it stops a start each second."""


class Pauses:
    """Stops the ready queue, and lets it go on; to be used in the loop's thread only."""

    def __init__(self, machine: Machine, ready: ReadyQueue, loop: Loop) -> None:
        self._machine = machine
        self._ready = ready
        self._loop = loop
        self._told_at = -inf
        self.reason: str | None = None
        """What the machine is short of, while starts are paused."""

    def begin(self, job: Job, error: OSError) -> None:
        """A start was refused by the machine: its job is ready again, and nothing is started for a while."""
        self.reason = worded(error)
        self._tell()
        message = f"waits until the machine recovers: {self.reason}"
        job.set_state(JobState.WAITING, message=message)
        job.set_state(JobState.READY, message=message)
        self._ready.pause()
        self._ready.add_first(job)
        self._loop.later(BACK_OFF_S, self._resume, job, error)

    def _resume(self, job: Job, error: OSError) -> None:
        if not has_recovered(error, self._machine.files, job.layout.root):
            self._loop.later(BACK_OFF_S, self._resume, job, error)
            return
        if self.reason is not None:
            logger.info("starts are tried again", extra={"action": Step.STARTS_RESUMED.value})
        self.reason = None
        self._ready.resume()

    def _tell(self) -> None:
        now = self._machine.clock.monotonic()
        if now >= self._told_at + TELLS_EVERY_S:
            self._told_at = now
            said = "starts are paused until the machine recovers: %s"
            logger.warning(said, self.reason, extra={"action": Step.STARTS_PAUSED.value})
