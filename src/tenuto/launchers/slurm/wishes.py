"""Wishes: jobs that are to end, of which Slurm is told in few calls of scancel.
Decides nothing; a wish is kept until the id of its job is known, and told again until Slurm has heard it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from tenuto.clock import Clock
from tenuto.launchers.slurm import commands
from tenuto.launchers.slurm.attempt import Attempt, Wish
from tenuto.launchers.slurm.calls import Calls
from tenuto.launchers.slurm.pilot_orders import KILL, append
from tenuto.launchers.slurm.roster import Roster

LAST_WISHES_S = 5.0
"""How long the end of this process waits until Slurm was told of every wish."""
AGAIN_S = 1.0
"""How long after a call that Slurm did not hear it is told again; a controller that is away takes longer."""


class Wishes:
    """The wishes of one process."""

    def __init__(self, roster: Roster, calls: Calls, clock: Clock, hurry: Callable[[], None]) -> None:
        """`hurry`: wakes the thread that calls `grant`."""
        self._roster = roster
        self._calls = calls
        self._clock = clock
        self._hurry = hurry
        self._told: set[Future[Any]] = set()
        self._again_at = 0.0

    def grant(self) -> bool:
        """Tells Slurm which jobs to stop and which to kill; True if there were any."""
        if self._clock.monotonic() < self._again_at:
            return False
        wanted = self._roster.open_wishes()
        for attempt in wanted:
            # A runner under a pilot reads the wish in its directory; to cancel the pilot would end others.
            is_of_pilot = attempt.found is not None and attempt.found.is_pilot
            if attempt.found is not None and is_of_pilot and attempt.wish is Wish.KILL:
                append(attempt.found.place.manifest, [KILL, attempt.launch.nonce])
            if is_of_pilot or attempt.has_lost_id or not attempt.may_be_in_queue:
                attempt.granted = attempt.wish
        ready = [attempt for attempt in wanted if attempt.wish > attempt.granted and attempt.job is not None]
        self._tell(ready, Wish.STOP)
        self._tell(ready, Wish.KILL)
        return bool(ready)

    def finish(self) -> None:
        """Waits, at the end of this process, until Slurm was told: else the jobs would go on."""
        deadline = self._clock.monotonic() + LAST_WISHES_S
        event = threading.Event()
        while self._clock.monotonic() < deadline:
            if not self._told and not any(one.may_be_in_queue for one in self._roster.open_wishes()):
                return
            event.wait(0.02)

    def _tell(self, ready: list[Attempt], wish: Wish) -> None:
        wanted = [attempt for attempt in ready if attempt.wish is wish]
        if not wanted:
            return
        for attempt in wanted:
            attempt.granted = wish
        function = commands.kill if wish is Wish.KILL else _stop
        future = self._calls.submit(partial(function, [str(attempt.job) for attempt in wanted]))
        self._told.add(future)
        future.add_done_callback(partial(self._heard, wanted))

    def _heard(self, wanted: list[Attempt], call: Future[None]) -> None:
        """Keeps the wishes of a call that Slurm did not hear."""
        if call.exception() is not None:
            self._again_at = self._clock.monotonic() + AGAIN_S
            for attempt in wanted:
                self._roster.wish_again(attempt)
            self._hurry()
        self._told.discard(call)


def _stop(jobs: list[str]) -> None:
    commands.cancel_pending(jobs)
    commands.signal_running(jobs)
