"""The source of door 1: the experiments of a workspace, their runs and jobs, as a monitor sees them.
Reads only, but for `act`. The one module of the door that a monitor may import.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tenuto.errors import InvalidName, NotFound, TenutoError
from tenuto.experiments.followed_run import FollowedRun, token_panel
from tenuto.experiments.job_past import events_of_jobs, explain_job, job_detail, named_events
from tenuto.experiments.pruning import users
from tenuto.experiments.result_rows import Finished, result_rows
from tenuto.experiments.run_record import RunState
from tenuto.experiments.runs import RunView, run_group, take_up
from tenuto.experiments.source_feed import RunsFeed
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.difference import plain_side
from tenuto.jobs.directories import JobActed, directory_size, is_real_directory
from tenuto.jobs.key import JobKey
from tenuto.jobs.log import JobLog
from tenuto.jobs.metrics import MetricsReader
from tenuto.jobs.removal import delete
from tenuto.jobs.result_table import result_of
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
from tenuto.jobs.stop import kill
from tenuto.lifecycle.events import (
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
from tenuto.workspace.layout import Layout, is_job_id
from tenuto.workspace.machine import this_machine
from tenuto.workspace.points import Points

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
        for run in self.view.find_runs(None):
            rows = [row for row in self.view.jobs(run) if row.key not in known]
            known.update(row.key for row in rows)
            yield rows

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
        sight = self.view.look(job_key)
        if not earlier:
            return JobLog(self.view.machine.files, path, sight.attempt, has_ended=not sight.state.running())
        count = self.view.earlier_logs(paths)
        if earlier > count:
            raise NotFound(f"{job_key} has {count} earlier logs, not {earlier}")
        rotated = paths.rotated(path, count - earlier + 1)
        attempt = max(sight.attempt - earlier, 0)
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
            pass  # what cannot be a name names nothing
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
        killing = kill(self.view, key, f"killed by {by}", attempt=attempt, really=not dry_run)
        if killing.runner is not None:
            killing.runner.close()
        return _told(killing.acted)


def _told(acted: JobActed) -> Acted:
    outcome = ActedAs[acted.outcome.name]
    return Acted(row_key(Door.EXPERIMENTS, *acted.key), outcome, acted.detail, acted.attempt)
