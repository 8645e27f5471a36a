"""The seed's job scheduler: how many candidates are made, which go out next, and when.
Knows neither how they are run nor what comes of them.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any, Protocol

from tenuto.clock import Clock, SystemClock
from tenuto.database import Database
from tenuto.search.opening import default_workspace, open_database
from tenuto.search.queues import Queue, open_queue
from tenuto.search.rows import Refusal, Sent
from tenuto.search.store import Store
from tenuto.settings import Settings
from tenuto.settings.urls import without_secrets

_SENDS_S = 5.0
_PROBE_S = 2.0


class Console(Protocol):
    """Where a scheduler tells a person something: rich's console, or any with its `print`."""

    def print(self, *objects: Any) -> None: ...


class JobSampler(Protocol):
    """What the scheduler asks for new jobs."""

    def schedule_job(self, *, experiment_id: str, priority: int | None = None) -> Any: ...


class JobScheduler:
    """Makes and dispatches the jobs of one search."""

    def __init__(
        self,
        settings: Settings,
        console: Console,
        sampler: JobSampler,
        experiment_id: str,
        *,
        store: Store | None = None,
        queue: Queue | None = None,
        clock: Clock | None = None,
        max_unfinished: int | None = None,
    ) -> None:
        """`store` and `queue`: by default where the settings say; so is the cap `max_unfinished`."""
        self._settings = settings.search
        own = settings.search.max_unfinished_jobs or 2 * settings.slots
        self._max_unfinished = own if max_unfinished is None else max_unfinished
        self._console = console
        self._sampler = sampler
        self._experiment_id = experiment_id
        self._opened: Database | None = None
        if store is None:
            self._opened = open_database(settings, default_workspace(settings))
            store = Store(self._opened)
        self._store = store
        self._queue: Queue = queue or open_queue(settings)
        self._clock: Clock = clock or SystemClock()
        self._is_total_told = False
        self.sampler_failures = 0
        """How often in a row the sampler raised, and with which words last."""
        self.sampler_error = ""
        self._failed_at: float | None = None
        """When a send failed last, while the broker is down."""

    def count_unfinished_jobs(self) -> int:
        """How many jobs are PENDING, QUEUED or RUNNING."""
        return self._store.count_unfinished(self._experiment_id)

    def schedule_jobs(self, unfinished_jobs: int, *, total_scheduled_jobs: int) -> int:
        """Asks the sampler for new jobs, as many as both caps allow, and sends them; how many were made.

        The two numbers are the caller's bounds: the caps themselves are counted in the transaction that adds
        a job, so that numbers that are too low never pass them.
        """
        limit = self._max_unfinished - unfinished_jobs
        if self._settings.schedule_batch_size is not None:
            limit = min(limit, self._settings.schedule_batch_size)
        total = self._settings.max_total_jobs
        if total is not None:
            limit = min(limit, total - total_scheduled_jobs)
            if total_scheduled_jobs >= total:
                self._tell_total(total)
        made: list[Any] = []
        while len(made) < limit:
            job = self._schedule_one()
            if job is None:
                break
            made.append(job)
        self._enqueue_jobs([job.job_id for job in made if not job.reused])
        return len(made)

    def dispatch_pending_jobs(self) -> int:
        """Promotes jobs that wait to QUEUED, by priority and age, and sends them; how many were sent."""
        rows = self._store.dispatch(self._experiment_id, self._settings.dispatch_batch_size)
        now = self._clock.monotonic()
        if not rows and self._failed_at is not None and now - self._failed_at >= _PROBE_S:
            rows = self._store.dispatch(self._experiment_id, 1, is_probe=True)
        return self._send(rows)

    def close(self) -> None:
        """Closes the connection to the broker, and to a database that the scheduler opened itself."""
        self._queue.close()
        if self._opened is not None:
            self._opened.close()

    def _schedule_one(self) -> Any:
        try:
            job = self._sampler.schedule_job(experiment_id=self._experiment_id)
        except Exception as error:  # noqa: BLE001  a sampler is the user's code: told, logged, tried again later
            self._trouble("the sampler failed", error)
            self.sampler_failures += 1
            self.sampler_error = without_secrets(f"{type(error).__name__}: {error}")
            return None
        self.sampler_failures = 0
        if job is None:
            refusal = getattr(self._sampler, "refusal", None)
            if refusal is None:
                self._console.print("[yellow]Sampler returned no job[/]")
            elif refusal is Refusal.TOTAL:
                self._tell_total(self._settings.max_total_jobs)
        return job

    def _tell_total(self, total: int | None) -> None:
        if not self._is_total_told:
            self._is_total_told = True
            self._console.print(f"{_escaped(self._experiment_id)}: all {total} candidates are scheduled")

    def _enqueue_jobs(self, ids: Sequence[str]) -> int:
        """Promotes new jobs to QUEUED and sends them."""
        return self._send(self._store.promote(self._experiment_id, ids)) if ids else 0

    def _send(self, rows: Sequence[Sent]) -> int:
        failed: list[str] = []
        began = self._clock.monotonic()
        for row in rows:
            if failed and self._clock.monotonic() - began > _SENDS_S:
                failed.append(row.id)  # a broker that does not answer must not hold up the tick
                continue
            try:
                self._queue.send(row.id)
            except Exception as error:  # noqa: BLE001  whatever a broker's client raises; the others are sent
                self._trouble(f"candidate {row.number} could not be sent", error)
                failed.append(row.id)
        if self._failed_at is not None and len(failed) < len(rows):
            self._failed_at = None
            self._store.forget_backoff(self._experiment_id)
        if failed:
            self._failed_at = self._clock.monotonic()
            backoff_ms = int(self._settings.send_backoff_s * 1000)
            self._store.send_failed(self._experiment_id, failed, backoff_ms)
        return len(rows) - len(failed)

    def _trouble(self, what: str, error: Exception) -> None:
        words = without_secrets(f"{type(error).__name__}: {error}")
        log_trouble(f"{self._experiment_id}: {what}", error)
        self._console.print(f"[red]{_escaped(f'{self._experiment_id}: {what}: {words}')}[/]")


def log_trouble(what: str, error: Exception) -> None:
    """Logs an error with its traceback, by Loguru."""
    from loguru import logger  # noqa: PLC0415  an extra

    # Not `opt(exception=...)`: Loguru would show the values of variables, and passwords among them.
    trace = "".join(traceback.format_exception(error))
    logger.error("{}\n{}", what, without_secrets(trace))


def _escaped(text: str) -> str:
    """Text for a console that reads markup."""
    return text.replace("[", r"\[")
