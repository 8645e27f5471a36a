"""The poller: asks squeue for all attempts at once, and looks up those that squeue no longer shows.
Says what Slurm answered; what that amounts to is judged by each `SlurmAttempt`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from tenuto.clock import Clock
from tenuto.launchers.slurm import commands, submission
from tenuto.launchers.slurm.attempt import MISSING_ANSWERS, SlurmAttempt
from tenuto.launchers.slurm.calls import Calls
from tenuto.launchers.slurm.commands import SlurmError, SlurmRow
from tenuto.launchers.slurm.pace import Pace
from tenuto.launchers.slurm.roster import Roster

logger = logging.getLogger("tenuto.slurm")

FRESH_S = 5.0
"""How long an answer of squeue also tells of attempts that were not asked for then."""


class Poller:
    """Asks for the attempts of a roster; its answers are taken in one thread."""

    def __init__(
        self, roster: Roster, calls: Calls, clock: Clock, poll_s: float, wake: Callable[[], None]
    ) -> None:
        """`wake`: has the thread that takes the answers look for them."""
        self._roster = roster
        self._calls = calls
        self._clock = clock
        self._wake = wake
        self._answers: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.heard = -FRESH_S
        """When the last answer of squeue was asked for."""
        self._configuration: dict[str, str] | None = None
        self._is_configuration_asked = False
        self.pace = Pace(poll_s)
        self.is_asking = False
        self.rows: dict[str, SlurmRow] = {}
        """The last answer of squeue, by job."""
        self.trouble = ""
        """Why Slurm does not answer; empty while it does."""

    def configuration(self) -> dict[str, str]:
        """The settings of the cluster, asked once; empty while it does not answer."""
        if self._configuration is None:
            with suppress(SlurmError):
                self._configuration = commands.configuration()
                age_s = commands.leading_number(self._configuration.get("MinJobAge", ""), 300)
                self.pace.slowest_s = min(self.pace.slowest_s, max(age_s / 3, 1.0))
        return self._configuration or {}

    def has_accounting(self) -> bool:
        """True if sacct can be asked."""
        return "slurmdbd" in self.configuration().get("AccountingStorageType", "")

    def take_answers(self) -> None:
        """Takes every answer that came in."""
        with suppress(Empty):
            while True:
                self._answers.get_nowait()()

    def ask_if_due(self, now: float) -> None:
        """Asks squeue, unless it was asked a moment ago."""
        if not self.is_asking and self.pace.is_due(now):
            if not self._is_configuration_asked:
                self._is_configuration_asked = True
                self._calls.submit(self.configuration)
            self._ask(commands.queue, self._take_queue)

    def recall(self, attempts: Iterable[SlurmAttempt], now: float) -> None:
        """Takes what the last answer said of attempts that were not asked for then."""
        if now - self.heard > FRESH_S:
            return
        for attempt in attempts:
            row = attempt.own(self.rows.get(attempt.job or ""))
            if row is not None:
                attempt.take(row)

    def _ask(self, function: Callable[[], Any], take: Callable[[Any, float], None]) -> None:
        """Has Slurm asked in another thread; the answer is taken in this one."""
        self.is_asking = True
        began = self._clock.monotonic()

        def answered(future: Future[Any]) -> None:
            self._answers.put(partial(self._take_answer, future, take, began))
            self._wake()

        self._calls.submit(function).add_done_callback(answered)

    def _take_answer(self, future: Future[Any], take: Callable[[Any, float], None], began: float) -> None:
        self.is_asking = False
        error = future.exception()
        if error is None:
            self._say("")
            take(future.result(), began)
            return
        if not isinstance(error, SlurmError):
            raise error
        self._say(str(error))
        self.pace.asked(self._clock.monotonic(), is_news=False)

    def _say(self, trouble: str) -> None:
        """Tells once, in the log and to the attempts that wait, that Slurm gives no answer, or does again."""
        if trouble == self.trouble:
            return
        self.trouble = trouble
        if trouble:
            logger.warning("Slurm does not answer: %s", trouble, extra={"action": "slurm_silent"})
        for attempt in self._roster.all():
            attempt.tell_listeners()

    def _take_queue(self, rows: list[SlurmRow], began: float) -> None:
        self.rows = {row.job: row for row in rows}
        self.heard = began
        is_news = False
        active = [a for a in self._roster.all() if a.is_active and not a.is_submitting]
        for attempt in active:
            if attempt.job is None:
                _find_by_name(attempt, rows)
            row = attempt.own(self.rows.get(attempt.job or ""))
            if row is None and began < attempt.since:
                continue
            is_news = attempt.take(row) or is_news
            if row is None and attempt.found is None:
                attempt.is_new = True  # the process that submits it may not have written its manifest yet
        is_close = is_news or any(a.is_watched_closely for a in active)
        self.pace.asked(self._clock.monotonic(), is_news=is_close)
        if any(0 < a.missing < MISSING_ANSWERS for a in active):
            self.pace.soon(self._clock.monotonic())  # a command that asks for two seconds needs two answers
        lost = [a for a in active if a.missing >= MISSING_ANSWERS and not a.is_forgotten]
        lost = [attempt for attempt in lost if attempt.job is not None]
        if lost:
            self._look_up(lost)

    def _look_up(self, lost: list[SlurmAttempt]) -> None:
        """Asks for jobs that squeue no longer shows: Slurm may remember how they ended."""
        jobs = [str(attempt.job) for attempt in lost]

        def look_up() -> dict[str, SlurmRow]:
            return commands.look_up(jobs, accounting=self.has_accounting())

        def take(found: dict[str, SlurmRow], began: float) -> None:
            for attempt in lost:
                row = attempt.own(found.get(str(attempt.job)))
                if row is not None:
                    attempt.take(row)
                elif attempt.missing >= MISSING_ANSWERS:
                    attempt.is_forgotten = True

        self._ask(look_up, take)


def _find_by_name(attempt: SlurmAttempt, rows: list[SlurmRow]) -> None:
    """Finds the job of a submission whose answer was lost."""
    found = attempt.found
    if found is None:
        return
    for row in rows:
        job, _, index = row.job.partition("_")
        if row.name.endswith(found.place.suffix) and (index or "0") == str(found.position):
            attempt.job = submission.task_id(job, found.position, is_array=found.is_array)
            return
