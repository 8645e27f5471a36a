"""Retries from outside a run: the failed jobs of runs, and a monitor's wish to run some of them again.
Waits for nothing. A job that is about to be run again is not submitted twice.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.key import JobKey
from tenuto.jobs.outcome import JobActed, Outcome
from tenuto.jobs.retry import Retrying, prepare, submit
from tenuto.launchers.spawn import SpawnLauncher
from tenuto.lifecycle.events import Event, JobStateChangedEvent
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.base import Scheduler
from tenuto.settings import Settings


class Retries:
    """Runs failed jobs again; from any thread."""

    def __init__(self, view: WorkspaceView, settings: Settings) -> None:
        self._view = view
        self._slots = settings.slots
        self._lock = threading.Lock()
        self._launcher: SpawnLauncher | None = None
        self._owner = Retrying(self._hear)
        self._under_way: dict[JobKey, int] = {}
        """Jobs that were submitted, and the attempts that had failed."""

    def retry(self, seen: Mapping[JobKey, int], *, dry_run: bool) -> list[JobActed]:
        """Submit failed jobs; a job with a newer attempt than the one seen is left alone."""
        with self._lock:
            busy = [key for key in seen if key in self._under_way]
            acted = [
                JobActed(key, Outcome.STARTING, "it is about to be run again", seen[key]) for key in busy
            ]
            wanted = {key: attempt for key, attempt in seen.items() if key not in busy}
            if not wanted:
                return acted
            scheduler = Scheduler.instance()
            if self._launcher is None:
                self._launcher = SpawnLauncher(scheduler.machine, slots=self._slots, shares_slots=True)
            prepared = prepare(self._view, wanted, scheduler, self._launcher, seen=wanted)
            acted += prepared.refused
            keys = [JobKey(job.task_id, job.job_id) for job in prepared.jobs]
            outcome = Outcome.WOULD_RETRY if dry_run else Outcome.RETRIED
            acted += [JobActed(key, outcome, f"attempt {wanted[key] + 1}", wanted[key]) for key in keys]
            if not dry_run:
                self._under_way.update({key: wanted[key] for key in keys})
                submit(scheduler, prepared.jobs, self._owner)
            return acted

    def _hear(self, event: Event) -> None:
        if isinstance(event, JobStateChangedEvent) and event.state.finished():
            with self._lock:
                self._under_way.pop(JobKey(event.task_id, event.job_id), None)


def failed_jobs(view: WorkspaceView, name: str | None) -> dict[JobKey, int]:
    """The failed jobs of a run, or of the last run of each experiment, and the attempts that failed.

    Not those whose directories a person removed: there is nothing left to run them from.
    """
    return {
        job.key: job.attempt
        for run in view.find_runs(name)
        for job in view.jobs(run)
        if job.state is JobState.ERROR and job.reason is not JobFailureStatus.DELETED
    }
