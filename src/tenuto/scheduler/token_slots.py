"""The slots that jobs with tokens take in the same step as their tokens: of a launcher, and of a workspace.
Which job is next is decided in `token_decisions`.
"""

from __future__ import annotations

from tenuto.scheduler.jobs import Job
from tenuto.scheduler.shared_slots import SharedSlots
from tenuto.scheduler.slots import Slots


class TokenSlots:
    """The slots of one scheduler, as far as jobs with tokens are concerned."""

    def __init__(self, slots: Slots, shared: SharedSlots) -> None:
        self._slots = slots
        self._shared = shared

    def is_wanted(self, job: Job) -> bool:
        """True if an owner still wants the job to be started."""
        return self._slots.is_wanted(job)

    def has_room(self, job: Job) -> bool:
        """True if a slot is free for a job."""
        return self._slots.has_room(job) and self._shared.has_room(job)

    def take(self, job: Job, *, to_run: bool = True) -> bool:
        """Give a job its slots; False if another process took the last one.

        `to_run`: False for a job that another process runs, and that is only waited for.
        """
        if to_run and not self._shared.take(job):
            return False
        self._slots.take(job)
        return True
