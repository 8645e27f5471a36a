"""What is known of the jobs while experiments run: counts, what runs, what failed, what is left to do.
It hears of jobs in any thread, and shows nothing.
"""

from __future__ import annotations

import statistics
import threading
from collections import Counter, deque
from datetime import datetime
from typing import NamedTuple

from tenuto.clock import Clock
from tenuto.jobs.forecast import Durations
from tenuto.jobs.progress import Progress, ProgressSoFar
from tenuto.lifecycle.events import JobProgressEvent
from tenuto.lifecycle.states import JobFailureStatus, JobState, Standing
from tenuto.scheduler.jobs import Job
from tenuto.workspace.journal import EventReader
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import Files

RECENT_FAILURES = 20


class RunningJob:
    """A job that runs, and what it says of itself."""

    def __init__(self, job: Job, since: datetime, files: Files) -> None:
        self.job = job
        self.since = since
        self._reports = ProgressSoFar(job.attempt, since)
        self._attempt = job.attempt
        self._journal = EventReader(files, job.layout.job_journal(job.task_id, job.job_id))

    def look(self) -> None:
        """Reads what the job reported since the last look."""
        try:
            entries = self._journal.read()
        except OSError:
            return  # the journal of a new attempt takes the place of this one
        for entry in entries:
            event = entry.event
            if isinstance(event, JobProgressEvent) and event.attempt == self.job.attempt:
                if event.attempt != self._attempt:
                    self._attempt, self._reports = event.attempt, ProgressSoFar(event.attempt, None)
                self._reports.add(event)

    @property
    def progress(self) -> Progress | None:
        """What the job said last."""
        return self._reports.progress


class Counts(NamedTuple):
    """How many jobs are where."""

    known: int = 0
    waiting: int = 0
    running: int = 0
    reused: int = 0
    ran: int = 0
    failed: int = 0
    stranded: int = 0
    """Not run, because a job that they depend on failed."""

    @property
    def finished(self) -> int:
        """Those that nothing more will happen to."""
        return self.reused + self.ran + self.failed + self.stranded


class Tally:
    """The jobs of all experiments that are opened, each once."""

    def __init__(self, clock: Clock, files: Files) -> None:
        self.clock = clock
        self._files = files
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}
        self._standings: dict[str, Standing] = {}
        self._running: dict[str, RunningJob] = {}
        self._reused: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._unstarted: Counter[str] = Counter()
        self._took: dict[str, list[float]] = {}
        self._past: dict[str, Durations] = {}
        self._workspaces: dict[str, Durations] = {}
        self._slots: dict[str, int] = {}
        self._failures: deque[Job] = deque(maxlen=RECENT_FAILURES)

    def tell(self, job: Job, standing: Standing) -> bool:
        """A job moved on; False if that was known, for two experiments may tell of the same job."""
        key = job.key
        with self._lock:
            before = self._standings.get(key)
            if before == standing:
                return False
            if before is not None:
                self._counts[self._group(key, before)] -= 1
                if before.state.unfinished() and not before.state.running():
                    self._unstarted[job.task_id] -= 1
            if standing.state is JobState.DONE and not standing.submittime and not standing.starttime:
                self._reused.add(key)
            self._jobs[key] = job
            self._standings[key] = standing
            self._counts[self._group(key, standing)] += 1
            self._slots[job.launcher.name] = job.launcher.slots
            if job.task_id not in self._past:
                self._past[job.task_id] = self._durations(job.layout)
            if standing.state.unfinished() and not standing.state.running():
                self._unstarted[job.task_id] += 1
            if standing.state is JobState.RUNNING:
                since = standing.starttime or self.clock.now()
                self._running[key] = RunningJob(job, since, self._files)
            else:
                self._running.pop(key, None)
            if standing.state is JobState.ERROR and standing.reason is not JobFailureStatus.DEPENDENCY:
                self._failures.append(job)
            if standing.state is JobState.DONE and standing.starttime and standing.endtime:
                took = (standing.endtime - standing.starttime).total_seconds()
                self._took.setdefault(job.task_id, []).append(max(took, 0.0))
        return True

    def _group(self, key: str, standing: Standing) -> str:
        match standing.state:
            case JobState.DONE:
                return "reused" if key in self._reused else "ran"
            case JobState.ERROR:
                return "stranded" if standing.reason is JobFailureStatus.DEPENDENCY else "failed"
            case JobState.SCHEDULED | JobState.RUNNING:
                return "running"
            case _:
                return "waiting"

    def counts(self) -> Counts:
        """How many jobs are where, now."""
        with self._lock:
            return Counts(known=len(self._jobs), **self._counts)

    def running(self) -> list[RunningJob]:
        """What runs, the longest first."""
        with self._lock:
            return list(self._running.values())

    def failures(self) -> list[Job]:
        """The most recent failures, the latest first."""
        with self._lock:
            return [job for job in reversed(self._failures) if job.state is JobState.ERROR]

    def ended_badly(self) -> list[tuple[Job, Standing]]:
        """Every job that is in ERROR now."""
        with self._lock:
            return [
                (self._jobs[key], standing)
                for key, standing in self._standings.items()
                if standing.state is JobState.ERROR
            ]

    def remaining_s(self) -> float | None:
        """How long it will still take; None while nobody can say.

        The expected time of what has not started, and of what is left of what runs, divided by the slots; but
        no less than the longest of what runs.
        """
        now = self.clock.now()
        with self._lock:
            running = list(self._running.values())
            unstarted = {task: number for task, number in self._unstarted.items() if number > 0}
            slots = max(sum(self._slots.values()), 1)
        elapsed = {one.job.key: max((now - one.since).total_seconds(), 0.0) for one in running}
        tasks = {*unstarted, *(one.job.task_id for one in running)}
        expected = {task: self._expected(task) for task in tasks}
        for one in running:
            left = one.progress.left_s(now) if one.progress else None
            if expected[one.job.task_id] is None and left is not None:
                expected[one.job.task_id] = elapsed[one.job.key] + left
        known = [seconds for seconds in expected.values() if seconds is not None]
        if not known:
            return None
        usual = statistics.fmean(known)  # for tasks that nobody has ever seen end
        each = {task: usual if seconds is None else seconds for task, seconds in expected.items()}
        to_go = [_left(one, now, each[one.job.task_id] - elapsed[one.job.key]) for one in running]
        work = sum(to_go) + sum(number * each[task] for task, number in unstarted.items())
        return max([work / slots, *to_go])

    def _expected(self, task_id: str) -> float | None:
        took = self._took.get(task_id)
        if took:
            return statistics.fmean(took[-100:])
        past = self._past.get(task_id)
        return None if past is None else past.expected(task_id)

    def _durations(self, layout: Layout) -> Durations:
        return self._workspaces.setdefault(layout.root, Durations(self._files, layout))


def _left(one: RunningJob, now: datetime, expected_s: float) -> float:
    """What is left of a running job: as it says itself, or else as others of its task suggest."""
    known = one.progress.left_s(now) if one.progress else None
    return max(expected_s, 0.0) if known is None else known
