"""Cancellations: the jobs that are to end, of which the batch system is told in few calls.
Decides nothing; each is kept until the id of its job is known, and told again until the system has heard it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from tenuto.clock import Clock
from tenuto.launchers.cluster.allocation import KILL, append
from tenuto.launchers.cluster.dialect import CommandThreads, Dialect
from tenuto.launchers.cluster.tracked import EndRequest, Tracked, TrackedAttempt

T = TypeVar("T")

LAST_S = 5.0
"""How long the end of this process waits until the system was told of every end."""
AGAIN_S = 1.0
"""How long after a call that the system did not hear it is told again; one that is away takes longer."""
DROP_S = 0.3
"""How long needless tasks are gathered for one call."""


class Cancellations:
    """The cancellations of one process."""

    def __init__(
        self,
        tracked: Tracked,
        dialect: Dialect,
        calls: CommandThreads,
        clock: Clock,
        hurry: Callable[[], None],
    ) -> None:
        """`hurry`: wakes the thread that calls `tell`."""
        self._tracked = tracked
        self._dialect = dialect
        self._calls = calls
        self._clock = clock
        self._hurry = hurry
        self._open: set[Future[Any]] = set()
        self._again_at = 0.0
        self._needless: set[TrackedAttempt] = set()
        """Attempts whose own tasks are needless, of which the system was not told."""
        self._over: set[str] = set()
        """Names of submissions whose jobs have all ended, of which the system was not told."""
        self._needless_at = 0.0

    @property
    def are_open(self) -> bool:
        """True while there is something that the system was not told."""
        return bool(self._needless or self._over)

    def drop_needless(self, attempt: TrackedAttempt) -> None:
        """Has the system take away the own task of an attempt that another task of the array runs."""
        self._keep(self._needless, [attempt])

    def drop_submission(self, name: str) -> None:
        """Has the system take the waiting tasks of a submission out of its queue: all its jobs have ended."""
        self._keep(self._over, [name])

    def tell(self) -> bool:
        """Tells the system which jobs to stop and which to kill; True if there were any."""
        now = self._clock.monotonic()
        if now < self._again_at:
            return False
        self._drop_needless(now)
        wanted = self._tracked.unsaid_endings()
        for attempt in wanted:
            # A runner under a pilot reads the order in its directory; to cancel the pilot would end others.
            is_of_pilot = attempt.found is not None and attempt.found.is_pilot
            if attempt.found is not None and is_of_pilot and attempt.ending is EndRequest.KILL:
                append(attempt.found.place.manifest, [KILL, attempt.launch.nonce])
            if is_of_pilot or attempt.has_lost_id or not attempt.may_be_in_queue:
                attempt.told = attempt.ending
        ready = [attempt for attempt in wanted if attempt.ending > attempt.told and attempt.job is not None]
        self._tell(ready, EndRequest.STOP)
        self._tell(ready, EndRequest.KILL)
        return bool(ready)

    def finish(self) -> None:
        """Waits, at the end of this process, until the system was told: else the jobs would continue."""
        deadline = self._clock.monotonic() + LAST_S
        event = threading.Event()
        while self._clock.monotonic() < deadline:
            if self.are_open:
                self._needless_at = 0.0
                self._hurry()
            elif not self._open and not any(one.may_be_in_queue for one in self._tracked.unsaid_endings()):
                return
            event.wait(0.02)

    def _tell(self, ready: list[TrackedAttempt], ending: EndRequest) -> None:
        wanted = [attempt for attempt in ready if attempt.ending is ending]
        if not wanted:
            return
        for attempt in wanted:
            attempt.told = ending
        jobs = [str(attempt.job) for attempt in wanted]
        function = partial(self._dialect.kill, jobs)
        if ending is EndRequest.STOP:
            function = partial(self._stop, jobs, [str(one.job) for one in wanted if self._may_wait(one)])
        self._call(function, partial(self._end_again, wanted))

    def _end_again(self, wanted: list[TrackedAttempt]) -> None:
        for attempt in wanted:
            self._tracked.end_again(attempt)

    def _drop_needless(self, now: float) -> None:
        if not self.are_open or now < self._needless_at:
            return
        self._needless_at = now + DROP_S
        if attempts := self._taken(self._needless):
            self._call(partial(self._drop, attempts), partial(self._keep, self._needless, attempts))
        for name in self._taken(self._over):
            self._call(partial(self._dialect.cancel_named, name), partial(self._keep, self._over, [name]))

    def _drop(self, attempts: list[TrackedAttempt]) -> None:
        """Has the needless tasks of attempts cancelled, whose claims are synced first; the others wait.

        A driver that finds no claim after a power loss would take the end of the task for that of the job.
        """
        if synced := [attempt for attempt in attempts if self._is_synced(attempt)]:
            self._dialect.cancel_tasks(str(attempt.needless) for attempt in synced)

    def _is_synced(self, attempt: TrackedAttempt) -> bool:
        """Syncs the claim on an attempt; one that the disk refuses is tried again, and holds up no other."""
        try:
            attempt.keep_claim()
        except OSError:
            self._keep(self._needless, [attempt])
            self._needless_at = self._clock.monotonic() + AGAIN_S
            return False
        return True

    def _taken(self, kept: set[T]) -> list[T]:
        with self._tracked.lock:
            taken = list(kept)
            kept.clear()
        return taken

    def _keep(self, kept: set[T], more: list[T]) -> None:
        with self._tracked.lock:
            kept.update(more)

    def _call(self, function: Callable[[], None], keep: Callable[[], None]) -> None:
        """Calls a command in a thread; `keep` keeps them if the system did not hear it."""
        future = self._calls.submit(function)
        self._open.add(future)
        future.add_done_callback(partial(self._heard, keep))

    def _heard(self, keep: Callable[[], None], call: Future[None]) -> None:
        if call.exception() is not None:
            self._again_at = self._clock.monotonic() + AGAIN_S
            keep()
            self._hurry()
        self._open.discard(call)

    def _may_wait(self, attempt: TrackedAttempt) -> bool:
        """True unless the job runs, and a cancellation of waiting jobs would kill it."""
        if not self._dialect.can_spare_running:
            with self._tracked.lock:
                attempt.look()
        return self._dialect.can_spare_running or not attempt.has_begun

    def _stop(self, jobs: list[str], waiting: list[str]) -> None:
        self._dialect.cancel_waiting(waiting)
        self._dialect.signal(jobs)
