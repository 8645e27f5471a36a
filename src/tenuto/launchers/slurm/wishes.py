"""Wishes: jobs that are to end, of which Slurm is told in few calls of scancel.
Decides nothing; a wish is kept until the id of its job is known, and told again until Slurm has heard it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from tenuto.clock import Clock
from tenuto.launchers.slurm import commands
from tenuto.launchers.slurm.attempt import SlurmAttempt, Wish
from tenuto.launchers.slurm.calls import Calls
from tenuto.launchers.slurm.pilot_orders import KILL, append
from tenuto.launchers.slurm.roster import Roster

T = TypeVar("T")

LAST_WISHES_S = 5.0
"""How long the end of this process waits until Slurm was told of every wish."""
AGAIN_S = 1.0
"""How long after a call that Slurm did not hear it is told again; a controller that is away takes longer."""
DROP_S = 0.3
"""How long needless tasks are gathered for one call."""


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
        self._needless: set[SlurmAttempt] = set()
        """Attempts whose own tasks are needless, of which Slurm was not told."""
        self._over: set[str] = set()
        """Names of submissions whose jobs have all ended, of which Slurm was not told."""
        self._needless_at = 0.0

    @property
    def are_open(self) -> bool:
        """True while there is something that Slurm was not told."""
        return bool(self._needless or self._over)

    def drop_needless(self, attempt: SlurmAttempt) -> None:
        """Has Slurm take away the own task of an attempt that another task of the array runs."""
        self._keep(self._needless, [attempt])

    def drop_submission(self, name: str) -> None:
        """Has Slurm take the waiting tasks of a submission out of its queue: all its jobs have ended."""
        self._keep(self._over, [name])

    def grant(self) -> bool:
        """Tells Slurm which jobs to stop and which to kill; True if there were any."""
        now = self._clock.monotonic()
        if now < self._again_at:
            return False
        self._drop_needless(now)
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
            if self.are_open:
                self._needless_at = 0.0
                self._hurry()
            elif not self._told and not any(one.may_be_in_queue for one in self._roster.open_wishes()):
                return
            event.wait(0.02)

    def _tell(self, ready: list[SlurmAttempt], wish: Wish) -> None:
        wanted = [attempt for attempt in ready if attempt.wish is wish]
        if not wanted:
            return
        for attempt in wanted:
            attempt.granted = wish
        function = commands.kill if wish is Wish.KILL else _stop
        jobs = [str(attempt.job) for attempt in wanted]
        self._call(partial(function, jobs), partial(self._wish_again, wanted))

    def _wish_again(self, wanted: list[SlurmAttempt]) -> None:
        for attempt in wanted:
            self._roster.wish_again(attempt)

    def _drop_needless(self, now: float) -> None:
        if not self.are_open or now < self._needless_at:
            return
        self._needless_at = now + DROP_S
        if attempts := self._taken(self._needless):
            self._call(partial(self._drop, attempts), partial(self._keep, self._needless, attempts))
        for name in self._taken(self._over):
            self._call(partial(commands.cancel_waiting, name), partial(self._keep, self._over, [name]))

    def _drop(self, attempts: list[SlurmAttempt]) -> None:
        """Has the needless tasks of attempts cancelled, whose claims are synced first; the others wait.

        A driver that finds no claim after a power loss would take the end of the task for that of the job.
        """
        if synced := [attempt for attempt in attempts if self._is_synced(attempt)]:
            commands.cancel_tasks(str(attempt.needless) for attempt in synced)

    def _is_synced(self, attempt: SlurmAttempt) -> bool:
        """Syncs the claim on an attempt; one that the disk refuses is tried again, and holds up no other."""
        try:
            attempt.keep_claim()
        except OSError:
            self._keep(self._needless, [attempt])
            self._needless_at = self._clock.monotonic() + AGAIN_S
            return False
        return True

    def _taken(self, kept: set[T]) -> list[T]:
        with self._roster.lock:
            taken = list(kept)
            kept.clear()
        return taken

    def _keep(self, kept: set[T], wishes: list[T]) -> None:
        with self._roster.lock:
            kept.update(wishes)

    def _call(self, function: Callable[[], None], keep: Callable[[], None]) -> None:
        """Calls a command in a thread; `keep` keeps the wishes if Slurm did not hear it."""
        future = self._calls.submit(function)
        self._told.add(future)
        future.add_done_callback(partial(self._heard, keep))

    def _heard(self, keep: Callable[[], None], call: Future[None]) -> None:
        if call.exception() is not None:
            self._again_at = self._clock.monotonic() + AGAIN_S
            keep()
            self._hurry()
        self._told.discard(call)


def _stop(jobs: list[str]) -> None:
    commands.cancel_pending(jobs)
    commands.signal_running(jobs)
