"""The source of door 1: the experiments of a workspace, their runs, jobs and news, as a monitor sees them.
Reads only, but for `act`. The one module of the door that a monitor may import.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from tenuto.errors import InvalidName, NotFound, TenutoError
from tenuto.experiments.followed_run import FollowedRun, token_panel
from tenuto.experiments.job_past import events_of_jobs, explain_job, job_detail, named_events
from tenuto.experiments.pruning import users
from tenuto.experiments.run_record import RunState
from tenuto.experiments.runs import RunView, run_group, take_up
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.columns import Sieve
from tenuto.jobs.directories import JobActed, directory_size, is_real_directory, subdirectories
from tenuto.jobs.key import JobKey
from tenuto.jobs.log import JobLog
from tenuto.jobs.metrics import MetricsReader
from tenuto.jobs.parameters import plain_side
from tenuto.jobs.removal import Killing, delete, kill
from tenuto.jobs.result_table import Finished, result_of, result_rows
from tenuto.jobs.retry import Retries
from tenuto.jobs.row import Detail, Group, Result, Row, ServiceRow, Why, row_key
from tenuto.jobs.source import (
    Acted,
    ActedAs,
    Action,
    Changes,
    Driver,
    Feed,
    Log,
    Moment,
    Panels,
    Source,
    Target,
    newest_first,
    newest_listed,
)
from tenuto.lifecycle.events import (
    Event,
    JobEvent,
    JobStateChangedEvent,
    JobSubmittedEvent,
    ServiceAddedEvent,
    ServiceStateChangedEvent,
)
from tenuto.lifecycle.owner_names import Door, run_owner
from tenuto.lifecycle.states import JobState
from tenuto.settings import Settings
from tenuto.tasks.tags import tag_sets
from tenuto.workspace.carbon import plain_metrics
from tenuto.workspace.inotify import DirectoryWatches, remote_kind, watch_directories
from tenuto.workspace.journal import EventReader
from tenuto.workspace.layout import JournalPlace, Layout, is_job_id, name_of_directory
from tenuto.workspace.machine import this_machine
from tenuto.workspace.points import Points
from tenuto.workspace.run_paths import RunPaths

MOST_ORPHANS_SIZED = 1_000

__all__ = ["Changes", "ExperimentSource", "open_source"]


def open_source(path: str, settings: Settings) -> ExperimentSource:
    """The source of a workspace."""
    return ExperimentSource(WorkspaceView(Layout(path), this_machine()), settings)


class ExperimentSource(Source):
    """Looks at one workspace, from any thread."""

    def __init__(self, view: WorkspaceView, settings: Settings) -> None:
        self.door = Door.EXPERIMENTS
        self.view = view
        self.beside: frozenset[Door] = frozenset()
        """Doors that keep jobs in the same workspace and show them themselves."""
        self._lock = threading.RLock()
        self._followed: dict[str, FollowedRun] = {}
        self._services: dict[str, tuple[ServiceRow, ...]] = {}
        self._retries = Retries(view, settings)
        self._metrics = MetricsReader(view.machine.files)
        self._skipped = 0
        self._acted: set[str] = set()
        """Jobs that this source was told to act on since the feed asked."""

    # Groups and rows

    def groups(self) -> Sequence[Group]:
        return [self._group(run) for run in self.view.all_runs()]

    def rows(self, group: str) -> Iterator[Sequence[Row]]:
        run = self._run(group)
        if run is None:
            return
        followed = FollowedRun(self.view, run)
        yield from followed.load()
        with self._lock:
            self._followed[group] = followed

    def group(self, group: str) -> Group | None:
        run = self._run(group)
        return self._group(run) if run is not None else None

    def driver(self, group: str) -> Driver:
        run = self._run(group)
        if run is None:
            return Driver()
        # A later run of the experiment asks for the same jobs, as a rule.
        is_at_work = run.live or any(one.live for one in self.view.runs(run.experiment_id))
        return Driver(is_at_work, take_up(run))

    def stamp(self, group: str) -> object:
        name, _, run_id = group.partition(":")[2].rpartition("/")
        try:
            found = self.view.machine.files.stat(self.view.layout.run(name, run_id).status)
        except (OSError, InvalidName):
            return None
        return found.inode if found is not None else None

    def listen(self, wake: Callable[[], None]) -> Callable[[], None] | None:
        return None

    def counts(self, group: str) -> Mapping[JobState, int]:
        run = self._run(group)
        return self.view.counts(run) if run is not None else {}

    def about(self, group: str) -> Mapping[str, Any]:
        return {}

    def listed(self) -> Iterator[Sequence[Row]]:
        known: set[str] = set()
        runs = self.view.find_runs(None)
        for run in runs:
            for chunk in self.view.job_chunks(run):
                rows = [row for row in chunk if row.key not in known]
                if run is not runs[-1]:
                    known.update(row.key for row in rows)
                yield rows

    def sieved(self, sieve: Sieve) -> Iterator[Sequence[Row]]:
        """What `listed` gives, without what a sieve leaves out."""
        runs = self.view.find_runs(None)
        found = self.view.sieved(runs[0], sieve) if len(runs) == 1 else None
        return self.listed() if found is None else iter((found,))

    def newest(self, most: int) -> tuple[list[Row], int]:
        """Of the jobs that `listed` gives the newest, `most` at most, and how many there are in all."""
        found = self.view.newest_jobs(most)
        return newest_listed(self, most) if found is None else (newest_first(found[0])[:most], found[1])

    def every(self) -> Iterator[Sequence[Row]]:
        listed = self.view.listed() if self.beside else set()
        keys = (key for key in self.view.job_keys() if key in listed or not self._is_shown_elsewhere(key))
        yield self.view.all_jobs(keys)

    def find(self, name: str) -> Sequence[str]:
        found = self.view.find(name) or self._listed_as(name)
        return [row_key(Door.EXPERIMENTS, *key) for key in found]

    def _listed_as(self, job_id: str) -> list[JobKey]:
        """Jobs whose ids begin so and whose directories were removed: the last runs list them."""
        lines = (line for run in self.view.find_runs(None) for line in self.view.lines(run))
        keys = (JobKey(line.task_id, line.job_id) for line in lines if line.job_id.startswith(job_id))
        return list(dict.fromkeys(keys)) if job_id else []

    def _is_shown_elsewhere(self, key: JobKey) -> bool:
        """Whether the job is the evaluation of a candidate that the source of searches shows."""
        owner = self.view.owner(key) if self.beside else None
        return owner is not None and owner.door in self.beside

    def feed(self) -> Feed:
        return RunsFeed(self)

    def followed(self, groups: Collection[str]) -> list[FollowedRun]:
        """The runs that were loaded, of these groups; others are forgotten."""
        with self._lock:
            self._followed = {name: run for name, run in self._followed.items() if name in groups}
            return list(self._followed.values())

    def services_changed(self, owner: str) -> None:
        """Read the services of a run again when they are asked for next."""
        with self._lock:
            self._services.pop(owner, None)

    def lines_skipped(self, count: int) -> None:
        """Note how many lines of journals could not be read since they are followed."""
        self._skipped = count

    def acted_on(self) -> Collection[str]:
        """The jobs that were acted on since the last call: what became of them is looked at."""
        with self._lock:
            acted, self._acted = self._acted, set()
        return acted

    def _run(self, group: str) -> RunView | None:
        name, _, run_id = group.partition(":")[2].rpartition("/")
        try:
            return next((run for run in self.view.runs(name) if run.run_id == run_id), None) if name else None
        except TenutoError:
            return None

    def _group(self, run: RunView) -> Group:
        return Group(
            group=run_group(run),
            door=Door.EXPERIMENTS,
            name=run.experiment_id,
            run=run.run_id,
            state=run.state.value,
            live=run.live,
            started=run.started,
            ended=run.ended,
            host=run.host or "",
            pid=run.pid or 0,
            total=run.jobs,
            message=run.message,
            tags=run.tags,
            services=self._services_of(run),
            reused=run.reused,
            failed=run.failed,
            carbon=plain_metrics(run.carbon) if run.carbon is not None else None,
            take_up=take_up(run) if run.state is RunState.INTERRUPTED and not run.live else None,
        )

    def _services_of(self, run: RunView) -> tuple[ServiceRow, ...]:
        owner = run_owner(run.experiment_id, run.run_id)
        with self._lock:
            known = self._services.get(owner)
        if known is not None:
            return known
        found: dict[str, ServiceRow] = {}
        words = (ServiceAddedEvent.__name__.encode(), ServiceStateChangedEvent.__name__.encode())
        for event in named_events(self.view, run, words):
            if isinstance(event, ServiceAddedEvent):
                row = ServiceRow(event.service_id, event.state, event.url, event.description)
                found[event.service_id] = row
            elif isinstance(event, ServiceStateChangedEvent):
                row = found.get(event.service_id, ServiceRow(event.service_id, event.state))
                found[event.service_id] = row._replace(
                    state=event.state, message=event.message, url=event.url or row.url
                )
        services = tuple(found.values())
        with self._lock:
            self._services[owner] = services
        return services

    # One job

    def detail(self, key: str) -> Detail:
        detail = self.view.detail(self._key(key))
        return Detail(detail.job, job_detail(self.view, detail))

    def parameters(self, key: str) -> Mapping[str, Any]:
        job_key = self.parsed(key)
        return self.view.parameters(self.view.row(job_key, self.view.look(job_key)))

    def why(self, key: str) -> Why:
        why = explain_job(self.view, self._key(key))
        nearest = None
        if why.nearest is not None:
            nearest = {
                "task": why.nearest.key.task_id,
                "id": why.nearest.key.job_id,
                "changed": [
                    {
                        "parameter": one.path,
                        "here": plain_side(one.here),
                        "there": plain_side(one.there),
                    }
                    for one in why.nearest.changed
                ],
            }
        return Why(why.because, why.reuse, nearest, why.code, why.next_steps)

    def log(self, key: str, stream: str, earlier: int) -> Log:
        job_key = self._key(key)
        paths = self.view.layout.job(*job_key)
        path = paths.err if stream == "err" else paths.out
        reading = self.view.look(job_key)
        if not earlier:
            return JobLog(
                self.view.machine.files, path, reading.attempt, has_ended=not reading.state.running()
            )
        count = self.view.earlier_logs(paths)
        if earlier > count:
            raise NotFound(f"{job_key} has {count} earlier logs, not {earlier}")
        rotated = paths.rotated(path, count - earlier + 1)
        attempt = max(reading.attempt - earlier, 0)
        return JobLog(self.view.machine.files, rotated, attempt, has_ended=True)

    def metrics(self, key: str) -> Points:
        return self._metrics.of_job(self.view.layout.job(*self.parsed(key)))

    def metrics_stamp(self, key: str) -> object:
        return self._metrics.stamp(self.view.layout.job(*self.parsed(key)))

    def _key(self, key: str) -> JobKey:
        """The job that a key names, if there is one: in a directory, or in the list of a run."""
        found = self.parsed(key)
        try:
            directory = self.view.layout.job(*found).directory
            if is_real_directory(self.view.machine.files, directory) or self.view.runs_of(found):
                return found
        except (OSError, InvalidName):
            pass  # an impossible name names no job
        raise NotFound(f"no job has the key {key!r:.200}; /api/jobs lists them")

    @staticmethod
    def parsed(key: str) -> JobKey:
        """The job that a key names."""
        door, _, name = key.partition(":")
        task_id, _, job_id = name.rpartition("/")
        if door != Door.EXPERIMENTS.value or not task_id or not is_job_id(job_id):
            raise NotFound(f"{key!r:.200} names no job: a key is experiments:TASK/ID")
        return JobKey(task_id, job_id)

    # The past, and results

    def moments(self, group: str) -> Iterator[Moment]:
        run = self._run(group)
        if run is None:
            return
        words = (JobStateChangedEvent.__name__.encode(), JobSubmittedEvent.__name__.encode())
        found: list[Moment] = []
        for event in events_of_jobs(self.view, run, words):
            if isinstance(event, JobStateChangedEvent):
                key = row_key(Door.EXPERIMENTS, event.task_id, event.job_id)
                found.append(Moment(event.timestamp, key, event.state, event.attempt, event.reason))
            elif isinstance(event, JobSubmittedEvent):
                key = row_key(Door.EXPERIMENTS, event.task_id, event.job_id)
                found.append(Moment(event.timestamp, key, JobState.UNSCHEDULED))
        found.sort(key=lambda moment: moment.at)
        yield from found

    def results(self, group: str) -> Iterator[Result]:
        run = self._run(group)
        if run is None:
            return
        files, layout = self.view.machine.files, self.view.layout
        jobs = {job.id: job for job in self.view.jobs(run) if job.state is JobState.DONE}
        finished = [
            Finished(job.task, job.id, job.state, {}, result_of(files, layout.job(*job.job_key), job))
            for job in jobs.values()
        ]
        now = self.view.machine.clock.now()
        for row in result_rows(finished):
            job = jobs[row["job"]]
            values = {name: value for name, value in row.items() if name.startswith("result")}
            kept = {name: value for name, value in values.items() if value is not None}
            kept["took_s"] = job.elapsed_s(now)
            for tags in tag_sets(job.tags):
                yield Result(job.key, job.task, job.state, tags, kept)

    # Panels

    def panels(self, only: str | None = None) -> Panels:
        with self._lock:
            followed = list(self._followed.values())
        return Panels(
            tokens=token_panel(self.view, followed) if only in (None, "tokens") else None,
            services=self._service_panel() if only in (None, "services") else None,
            cleanup=self._cleanup(followed) if only in (None, "cleanup") else None,
        )

    def _service_panel(self) -> list[dict[str, Any]]:
        live = [run for run in self.view.all_runs() if run.live]
        return [{"group": run_group(run), **one._asdict()} for run in live for one in self._services_of(run)]

    def _cleanup(self, followed: Sequence[FollowedRun]) -> dict[str, Any]:
        files, layout = self.view.machine.files, self.view.layout
        orphans = self.view.orphans()
        sizes = [
            directory_size(files, layout.job(*job.job_key).directory) for job in orphans[:MOST_ORPHANS_SIZED]
        ]
        alarms = {key: text for run in followed for key, text in run.alarms()}
        return {
            "unowned": self.view.unowned(),
            "orphans": {"jobs": len(orphans), "bytes": sum(sizes)},
            "alarms": [{"key": key, "text": text} for key, text in alarms.items()],
            "bad_lines": self._skipped + sum(run.bad_lines for run in followed),
        }

    # Acting

    def act(self, action: Action, targets: Sequence[Target], *, dry_run: bool, by: str) -> Sequence[Acted]:
        if action in (Action.PAUSE, Action.RESUME):
            word = "a run cannot be paused: end it with Ctrl-C, and run the script again to continue"
            if action is Action.RESUME:
                word = "a run is never paused: run its script again to continue"
            return [Acted(target.key, ActedAs.REFUSED, word) for target in targets]
        known: dict[JobKey, int] = {}
        acted: list[Acted] = []
        for target in targets:
            try:
                known[self._key(target.key)] = target.attempt
            except NotFound:
                acted.append(Acted(target.key, ActedAs.GONE, "there is no such job"))
        match action:
            case Action.KILL:
                acted += [self._kill(key, attempt, dry_run, by) for key, attempt in known.items()]
            case Action.RETRY:
                acted += map(_told, self._retries.retry(known, dry_run=dry_run))
            case Action.CLEAN:
                used = partial(users, self.view)
                acted += map(_told, delete(self.view, known, really=not dry_run, used=used, seen=known))
            case _:
                raise AssertionError(action)
        with self._lock:
            self._acted |= {key.job_id for key in known}
        return acted

    def _kill(self, key: JobKey, attempt: int, dry_run: bool, by: str) -> Acted:
        killing = stop_job(self.view, key, f"killed by {by}", attempt=attempt, really=not dry_run)
        if killing.runner is not None:
            killing.runner.close()
        return _told(killing.acted)


def stop_job(
    view: WorkspaceView, key: JobKey, message: str, *, attempt: int | None = None, really: bool = True
) -> Killing:
    """As `kill`; a job that waits is taken out of the queue of its runs."""
    killing = kill(view, key, message, attempt=attempt, really=really)
    is_idle = killing.acted.outcome in (ActedAs.NOT_RUNNING, ActedAs.GONE)
    if not (is_idle and view.cancel_waiting(key, message, really=really)):
        return killing
    outcome = ActedAs.ASKED if really else ActedAs.WOULD_KILL
    return Killing(JobActed(key, outcome, "before it began: its driver cancels it", 0))


def _told(acted: JobActed) -> Acted:
    return Acted(row_key(Door.EXPERIMENTS, *acted.key), acted.outcome, acted.detail, acted.attempt)


# -- what changes, as it changes -------------------------------------------------------------------------


SWEEP_S = 2.0
"""How often all is looked at that may have changed without a word."""
POLL_S = 0.4
"""The same, where the kernel tells of nothing."""
SWEPT_ROWS = 2_000
CHECKED_ROWS = 1_000
"""How many jobs that have ended are checked for another attempt in a turn."""
_EVENTS_AT_ONCE = 10_000
_LIST = RunPaths("").jobs_list.strip("/")


class Followed(Protocol):
    """What a feed needs of its source."""

    view: WorkspaceView

    def followed(self, groups: Collection[str]) -> list[FollowedRun]: ...

    def groups(self) -> Collection[Group]: ...

    def services_changed(self, owner: str) -> None: ...

    def lines_skipped(self, count: int) -> None: ...

    def acted_on(self) -> Collection[str]: ...


class RunsFeed:
    """News of runs and of their jobs; for one thread."""

    def __init__(self, source: Followed) -> None:
        self._source = source
        self._view = source.view
        self._layout = source.view.layout
        self._files = source.view.machine.files
        self._clock = source.view.machine.clock
        # Of a network disk the kernel tells only what this machine does: all is looked at instead.
        is_deaf = remote_kind(self._layout.root) is not None
        self._watches: DirectoryWatches | None = None if is_deaf else watch_directories()
        self._is_refused = False
        """True once the kernel refused to watch a directory: too many are watched."""
        self._readers: dict[str, EventReader] = {}
        """Directory of a journal -> its reader."""
        self._hints: dict[str, None] = {}
        """Jobs to look at, by id."""
        self._lists_due = True
        self._groups_due = False
        self._swept_at = self._checked_at = self._clock.monotonic()
        self._watch(at_start=True)

    def fileno(self) -> int | None:
        return None if self._watches is None else self._watches.fileno()

    def close(self) -> None:
        if self._watches is not None:
            self._watches.close()
            self._watches = None

    def read(self, groups: Collection[str], limit: int) -> Changes:
        followed = self._source.followed(groups)
        self._hear()
        self._hints.update(dict.fromkeys(self._source.acted_on()))
        now = self._clock.monotonic()
        is_deaf = self._watches is None or self._is_refused
        is_due = now - self._swept_at >= (POLL_S if is_deaf else SWEEP_S)
        if is_due:
            self._swept_at = now
            self._watch()
            self._lists_due = True
        events = self._read_journals()
        rows: list[Row] = []
        if self._lists_due:
            self._lists_due = False
            for run in followed:
                rows += run.new_jobs()
        rows += self._look(followed, limit)
        if is_due:
            for run in followed:
                rows += run.sweep(SWEPT_ROWS)
        if now - self._checked_at >= SWEEP_S:
            self._checked_at = now
            for run in followed:
                rows += run.check(CHECKED_ROWS)
        told = list(self._source.groups()) if self._groups_due else []
        self._groups_due = False
        return Changes(rows, (), told, events)

    def _look(self, followed: Iterable[FollowedRun], limit: int) -> list[Row]:
        """Follow the hints, some at a time."""
        chosen = list(self._hints)[:limit]
        for job_id in chosen:
            del self._hints[job_id]
        return [row for run in followed for row in run.refresh(job_id for job_id in chosen if job_id in run)]

    # What the kernel tells

    def _hear(self) -> None:
        if self._watches is None:
            return
        has_new_runs = has_new_directories = False
        for directory, name in self._watches.read():
            kind, _, rest = directory.removeprefix(self._layout.root + "/").partition("/")
            if name is None:
                self._lists_due = self._groups_due = True
                self._swept_at = 0.0
            elif kind == "experiments":
                self._lists_due |= name == _LIST
                self._groups_due |= name != _LIST
                has_new_runs |= name != _LIST
            elif kind == "jobs" and rest:
                self._hint(name)
            elif kind == ".events" and rest.startswith("jobs/"):
                self._hint(_job_of(name))
            elif not (kind == ".events" and rest.startswith("experiments/")):
                has_new_directories = True
        if has_new_directories:
            self._watch()
        elif has_new_runs:
            self._watch_runs()

    def _hint(self, job_id: str | None) -> None:
        if job_id is not None and is_job_id(job_id):
            self._hints[job_id] = None

    # Journals

    def _read_journals(self) -> list[Event]:
        events: list[Event] = []
        for reader in self._readers.values():
            try:
                entries = reader.read(_EVENTS_AT_ONCE)
            except (OSError, TenutoError):
                continue  # it is being archived: the next look finds its words
            events += [entry.event for entry in entries]
        self._source.lines_skipped(sum(reader.bad_lines for reader in self._readers.values()))
        for event in events:
            if isinstance(event, JobEvent):
                self._hint(event.job_id)
                self._lists_due |= isinstance(event, JobSubmittedEvent)
            elif isinstance(event, ServiceAddedEvent | ServiceStateChangedEvent):
                self._source.services_changed(event.owner)
                self._groups_due = True
            else:
                self._groups_due = True
        return events

    # The watched files

    def _watch(self, *, at_start: bool = False) -> None:
        """Watch the journals found by now. A journal found at the start is read from its end on."""
        root, layout = self._layout.root, self._layout
        journals = f"{root}/.events/experiments"
        job_journals = f"{root}/.events/jobs"
        for directory in (root, f"{root}/.events", journals, job_journals, layout.jobs, layout.experiments):
            self._add(directory)
        for parent in (layout.jobs, job_journals):
            for name in subdirectories(self._files, parent):
                if self._add(f"{parent}/{name}") and not at_start and parent == layout.jobs:
                    self._swept_at = 0.0
        names = subdirectories(self._files, journals)
        for directory in (layout.retry_journal.directory, *(f"{journals}/{name}" for name in names)):
            if directory not in self._readers:
                reader = self._readers[directory] = EventReader(
                    self._files, JournalPlace(directory, "events-")
                )
                if at_start:
                    reader.skip()
            self._add(directory)
        self._watch_runs()

    def _watch_runs(self) -> None:
        for name in subdirectories(self._files, self._layout.experiments):
            experiment_id = name_of_directory(name)
            if experiment_id is None:
                continue
            self._add(f"{self._layout.experiments}/{name}")
            newest = max(subdirectories(self._files, f"{self._layout.experiments}/{name}"), default=None)
            if newest is not None:
                self._add(f"{self._layout.experiments}/{name}/{newest}")

    def _add(self, directory: str) -> bool:
        """Watch one more directory; True if it was not watched before."""
        if self._watches is None or directory in self._watches:
            return False
        is_watched = self._watches.add(directory)
        self._is_refused |= not is_watched and is_real_directory(self._files, directory)
        return is_watched


def _job_of(name: str) -> str | None:
    """The job whose journal has this file name."""
    if not name.startswith("event-"):
        return None
    return name.removeprefix("event-").rpartition("-")[0] or None
