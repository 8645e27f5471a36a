"""The jobs of all experiments of one call, as a model of rows, and the reporter that fills it with events.
Hears events in any thread, and shows nothing: displays do.
"""

from __future__ import annotations

import heapq
import statistics
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from tenuto.clock import Clock
from tenuto.errors import WorkspaceError
from tenuto.experiments.run import Run
from tenuto.experiments.run_record import RunState
from tenuto.jobs.job_progress import ProgressSoFar
from tenuto.jobs.model import CountKind, Counts, Model
from tenuto.jobs.row import Row, RowId, row_key
from tenuto.jobs.rows import after_event, identity_row
from tenuto.lifecycle.events import (
    Event,
    JobExplainedEvent,
    JobProgressEvent,
    JobStateChangedEvent,
    JobSubmittedEvent,
)
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.jobs import TaskWork
from tenuto.tasks.base import is_config
from tenuto.tasks.schema import schema_of
from tenuto.workspace.journal import EventReader
from tenuto.workspace.layout import Layout
from tenuto.workspace.markers import Marker, read_markers
from tenuto.workspace.ports import Files

if TYPE_CHECKING:
    from tenuto.experiments.experiment import experiment

_DEEPEST = 3
_MOST_JOBS = 5000
_MOST_NAMED = 3
_LONGEST_VALUE = 24


class VaryingNames:
    """Learns what varies as jobs come, and names them by it."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, str]] = {}
        """job -> path of a parameter -> value."""
        self._first: dict[str, dict[str, str]] = {}
        """task -> the values of its first job."""
        self._varying: dict[str, dict[str, None]] = {}
        """task -> the paths whose values differ, in the order of their declaration."""

    def add(self, task_id: str, job: str, task: Any) -> None:
        """Take a job in; of very many only some."""
        if job in self._values or len(self._values) >= _MOST_JOBS:
            return
        values = dict(_scalars(task))
        self._values[job] = values
        first = self._first.setdefault(task_id, values)
        varying = self._varying.setdefault(task_id, {})
        for path in {**first, **values}:
            if first.get(path) != values.get(path):
                varying[path] = None

    def name(self, task_id: str, job: str) -> dict[str, str]:
        """The parameters that tell a job from others of its task, as tags would; empty if nothing varies."""
        values = self._values.get(job, {})
        found = {path: values[path] for path in self._varying.get(task_id, ()) if path in values}
        return dict(list(found.items())[:_MOST_NAMED])


def _scalars(config: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Path and text of the plain values that count, also of configs inside."""
    for name, parameter in schema_of(type(config)).parameters.items():
        value = config.__dict__.get(name)
        if is_config(value) and depth < _DEEPEST:
            yield from _scalars(value, f"{prefix}{name}.", depth + 1)
        elif parameter.counted and isinstance(value, str | int | float | Enum):
            text = value.name if isinstance(value, Enum) else str(value)
            yield f"{prefix}{name}", text[:_LONGEST_VALUE]


RECENT_FAILURES = 20
_SAMPLE = 100


class Overview:
    """A model whose groups are workspaces, so that a job which two experiments ask for is one row."""

    def __init__(self, clock: Clock, files: Files) -> None:
        self.clock = clock
        self._files = files
        self._lock = threading.Lock()
        self._model = Model()
        self._runs: dict[str, Run] = {}
        self._reports: dict[RowId, _Reports] = {}
        """What jobs that run say of themselves, the longest first."""
        self._took: dict[str, deque[float]] = {}
        self._durations: dict[str, Durations] = {}
        self._slots: dict[str, int] = {}
        self._failures: deque[RowId] = deque(maxlen=RECENT_FAILURES)
        self._names = VaryingNames()

    # Hearing

    def add(self, run: Run) -> None:
        """The events of a run are about to come."""
        with self._lock:
            self._runs[run.id] = run

    def hear(self, event: Event) -> Row | None:
        """Take an event; the row of its job, if the event changed it."""
        if not isinstance(event, JobSubmittedEvent | JobStateChangedEvent | JobExplainedEvent):
            return None
        with self._lock:
            row = after_event(self._row(event), event)
            if row.state is JobState.UNSCHEDULED and row.id in self._runs[event.owner].found_before:
                row = row._replace(state=JobState.DONE)
            if not self._model.put(row):
                return None  # two experiments may tell of the same job
            if isinstance(event, JobStateChangedEvent):
                self._note(row)
            return row

    def _row(self, event: JobSubmittedEvent | JobStateChangedEvent | JobExplainedEvent) -> Row:
        job = self._runs[event.owner].job_of(event)
        workspace = job.layout.root
        known = self._model.row(workspace, row_key(Door.EXPERIMENTS, event.task_id, event.job_id))
        if known is not None:
            return known
        if not job.tags and isinstance(job.work, TaskWork):
            self._names.add(job.task_id, job.job_id, job.work.task)
        self._slots[job.launcher.name] = job.launcher.slots
        if workspace not in self._durations:
            self._durations[workspace] = Durations(self._files, job.layout)
        return identity_row(job, workspace)

    def _note(self, row: Row) -> None:
        name = RowId(row.group, row.key)
        if row.state is JobState.RUNNING:
            self._reports[name] = _Reports(self._files, row)
        else:
            self._reports.pop(name, None)
        if row.state is JobState.ERROR and row.reason is not JobFailureStatus.DEPENDENCY:
            self._failures.append(name)
        if row.state is JobState.DONE and row.started is not None and row.ended is not None:
            took = max((row.ended - row.started).total_seconds(), 0.0)
            self._took.setdefault(row.task, deque(maxlen=_SAMPLE)).append(took)

    # Asking

    def counts(self) -> Counts:
        """How many jobs are where, now."""
        with self._lock:
            return self._model.counts()

    def running(self, looks: int = 0) -> list[Row]:
        """The running jobs, the longest first; the reports of so many are read before."""
        with self._lock:
            reports = list(self._reports.items())
        for _, report in reports[:looks]:
            report.read()
        with self._lock:
            for name, report in reports[:looks]:
                row = self._model.row(*name)
                if row is not None and self._reports.get(name) is report:
                    self._model.put(report.shown(row))
            found = [self._model.row(*name) for name in self._reports]
            return [self._named(row) for row in found if row is not None]

    def failures(self) -> list[Row]:
        """The most recent failures, the latest first."""
        with self._lock:
            found = [self._model.row(*name) for name in reversed(self._failures)]
            return [self._named(row) for row in found if row is not None and row.state is JobState.ERROR]

    def _named(self, row: Row) -> Row:
        """A row to be shown: in place of missing tags it has the parameters that tell the job from others."""
        return row if row.tags else row._replace(tags=self._names.name(row.task, row.id))

    def names(self, rows: Iterable[Row]) -> dict[str, dict[str, str]]:
        """By id, the parameters that tell jobs without tags from others of their task."""
        with self._lock:
            found = {row.id: self._names.name(row.task, row.id) for row in rows if not row.tags}
        return {job: name for job, name in found.items() if name}

    def rows(self) -> list[Row]:
        """Every job."""
        with self._lock:
            return list(self._model.rows())

    def remaining_s(self) -> float | None:
        """Seconds until all jobs have ended; None while no duration is known."""
        now = self.clock.now()
        with self._lock:
            unstarted = self._model.by_task(CountKind.WAITING)
            found = [self._model.row(*name) for name in self._reports]
            slots = sum(self._slots.values())
        running = [
            Running(row.task, row.elapsed_s(now) or 0.0, row.left_s(now)) for row in found if row is not None
        ]
        tasks = {*unstarted, *(one.task for one in running)}
        return remaining_s(unstarted, running, {task: self._expected(task) for task in tasks}, slots)

    def _expected(self, task: str) -> float | None:
        took = self._took.get(task)
        if took:
            return statistics.fmean(list(took))
        past = (durations.expected(task) for durations in list(self._durations.values()))
        return next((seconds for seconds in past if seconds is not None), None)


class _Reports:
    """What the attempt of a job that runs says of itself."""

    def __init__(self, files: Files, row: Row) -> None:
        self._attempt = row.attempt
        self._so_far = ProgressSoFar(row.attempt, row.started)
        self._journal = EventReader(files, Layout(row.group).job_journal(row.task, row.id))

    def read(self) -> None:
        """Read the reports since the last time."""
        try:
            entries = self._journal.read()
        except OSError:
            return  # the journal of a new attempt takes the place of this one
        for entry in entries:
            if isinstance(entry.event, JobProgressEvent) and entry.event.attempt == self._attempt:
                self._so_far.add(entry.event)

    def shown(self, row: Row) -> Row:
        """The row with its last report."""
        said = self._so_far.progress
        if said is None:
            return row
        left_s = said.left_s(said.reported)
        eta_at = None if left_s is None else said.reported + timedelta(seconds=left_s)
        return row._replace(progress=said.fraction, progress_desc=said.words, eta_at=eta_at)


class ClosedRun(NamedTuple):
    """A run that is over, or was left."""

    name: str
    run_id: str
    workspace: str
    state: RunState
    fails: bool = False
    """It failed, and the script did not say that this is fine."""
    notes: tuple[str, ...] = ()
    """What a person should know, though nothing failed."""


class ProgressDisplay:
    """A `Reporter` that keeps an overview; the displays, which derive from it, show that."""

    def __init__(self, overview: Overview) -> None:
        self.overview = overview
        self.runs: list[ClosedRun] = []
        self.plans: list[experiment] = []
        self._open = 0
        self.on_opened: Callable[[experiment], object] | None = None
        """Called with each experiment that is entered."""

    @property
    def is_open(self) -> bool:
        """True while an experiment is open that it shows."""
        return self._open > 0

    def opened(self, xp: experiment) -> None:
        """An experiment was entered."""
        self._open += 1
        self.overview.add(xp.run)
        if self.on_opened is not None:
            self.on_opened(xp)
        self.begin(xp)

    def hear(self, event: Event) -> None:
        """Something happened to a job."""
        row = self.overview.hear(event)
        if row is not None and isinstance(event, JobStateChangedEvent):
            self.moved(row)

    def closed(self, xp: experiment, state: RunState) -> None:
        """An experiment was left."""
        fails = state is RunState.FAILED and xp.raises_on_failure
        self.runs.append(ClosedRun(xp.name, xp.run_id, str(xp.workspace.path), state, fails, tuple(xp.notes)))
        self._open -= 1
        if self._open == 0:
            self.end()

    def left(self) -> list[ClosedRun]:
        """The experiments that were left, and not run to their end afterwards."""
        last = {(run.workspace, run.name): run for run in self.runs}
        return [run for run in last.values() if run.state is RunState.INTERRUPTED]

    def failed(self) -> list[ClosedRun]:
        """The experiments that failed, and were not run to a good end afterwards."""
        last = {(run.workspace, run.name): run for run in self.runs}
        return [run for run in last.values() if run.fails]

    def planned(self, xp: experiment) -> None:
        """An experiment that runs nothing was left."""
        self.plans.append(xp)

    # What a display adds

    def begin(self, xp: experiment) -> None:
        """Something is to be shown from now on."""

    def moved(self, row: Row) -> None:
        """A job is in another state now."""

    def end(self) -> None:
        """There is nothing to be shown any more; called again, it does nothing."""


# -- how long work will take -----------------------------------------------------------------------------


SAMPLE = 100
"""How many earlier jobs of a task are asked. Job ids are hashes, so the first of a list are a fair sample."""


class Durations:
    """How long the jobs of each task took in a workspace: the median of the jobs that ended well."""

    def __init__(self, files: Files, layout: Layout) -> None:
        self._files = files
        self._layout = layout
        self._known: dict[str, float | None] = {}

    def expected(self, task_id: str) -> float | None:
        """Seconds that a job of this task takes; None if none has ended well yet."""
        if task_id not in self._known:
            found = list(self._found(task_id))
            self._known[task_id] = statistics.median(found) if found else None
        return self._known[task_id]

    def _found(self, task_id: str) -> Iterable[float]:
        try:
            job_ids = self._files.list(self._layout.task(task_id))[:SAMPLE]
        except (OSError, WorkspaceError):
            return
        for job_id in job_ids:
            try:
                marker = read_markers(self._files, self._layout.job(task_id, job_id)).done
            except (OSError, WorkspaceError):
                continue  # a stray file, or a job that is being removed
            if isinstance(marker, Marker) and marker.starttime and marker.endtime:
                yield max((marker.endtime - marker.starttime).total_seconds(), 0.0)


class ForecastJob(NamedTuple):
    """A job to be done."""

    key: str
    duration_s: float
    needs: tuple[str, ...] = ()
    launcher: str = ""


def makespan(steps: Iterable[ForecastJob], slots: Mapping[str, int]) -> float:
    """How long the steps take together: each launcher starts ready steps, first come, first served.

    What a step needs and is not among the steps is taken to be done.
    """
    by_key = {step.key: step for step in steps}
    missing = {key: sum(need in by_key for need in set(step.needs)) for key, step in by_key.items()}
    followers: dict[str, list[str]] = {}
    for key, step in by_key.items():
        for need in set(step.needs) & by_key.keys():
            followers.setdefault(need, []).append(key)
    ready: dict[str, deque[str]] = {}
    free = dict(slots)
    running: list[tuple[float, str]] = []
    now = 0.0

    def offer(key: str) -> None:
        ready.setdefault(by_key[key].launcher, deque()).append(key)

    for key, count in missing.items():
        if not count:
            offer(key)
    while True:
        for launcher, queue in ready.items():
            while queue and free.setdefault(launcher, 1) > 0:
                key = queue.popleft()
                free[launcher] -= 1
                heapq.heappush(running, (now + by_key[key].duration_s, key))
        if not running:
            return now
        now, ended = heapq.heappop(running)
        free[by_key[ended].launcher] += 1
        for follower in followers.get(ended, ()):
            missing[follower] -= 1
            if not missing[follower]:
                offer(follower)


class Running(NamedTuple):
    """A job that runs."""

    task: str
    elapsed_s: float
    left_s: float | None = None
    """Its own forecast, if it has one."""


def remaining_s(
    unstarted: Mapping[str, int],
    running: Sequence[Running],
    expected: Mapping[str, float | None],
    slots: int,
) -> float | None:
    """How long jobs will still take: those that wait, by task, and those that run; None if nothing is known.

    The expected time of the jobs that wait, and the rest of those that run, divided by the slots; but no less
    than the longest running job.
    """
    known = dict(expected)
    for one in running:
        if known.get(one.task) is None and one.left_s is not None:
            known[one.task] = one.elapsed_s + one.left_s
    seconds = [each for each in known.values() if each is not None]
    if not seconds:
        return None
    usual = statistics.fmean(seconds)  # for tasks of which no job has ever ended

    def each(task: str) -> float:
        found = known.get(task)
        return usual if found is None else found

    to_go = [
        max(each(one.task) - one.elapsed_s, 0.0) if one.left_s is None else one.left_s for one in running
    ]
    work = sum(to_go) + sum(number * each(task) for task, number in unstarted.items())
    return max([work / max(slots, 1), *to_go])
