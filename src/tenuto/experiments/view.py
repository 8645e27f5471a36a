"""A workspace as seen from outside, by any process at any time: experiments, runs, jobs.
Reads only. It needs no scheduler, and survives whatever lies on the disk.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from tenuto.errors import Ambiguous, NotFound, TenutoError
from tenuto.experiments.glance import REMOVED, Sight, glance, see, sight_of, within_run
from tenuto.experiments.run_id import parse_run_id
from tenuto.experiments.run_tags import read_tags
from tenuto.experiments.status import RunState, RunStatus, read_run_status
from tenuto.experiments.stored import JobKey, Stored, read_stored
from tenuto.experiments.tails import Progress, last_progress
from tenuto.experiments.token_view import with_tokens
from tenuto.lifecycle.events import CarbonMetricsData
from tenuto.lifecycle.states import JobFailureStatus, JobState, TransientMode
from tenuto.workspace.carbon import Measured, plain_metrics, read_carbon
from tenuto.workspace.derive import Evidence
from tenuto.workspace.job_directory import look
from tenuto.workspace.jobslist import JobLine, read_jobs
from tenuto.workspace.json_bytes import from_json
from tenuto.workspace.layout import JobPaths, Layout, RunPaths, is_job_id, name_of_directory
from tenuto.workspace.markers import Marker
from tenuto.workspace.ports import FileKind, Machine
from tenuto.workspace.records import Fields, LaunchRecord

CRASHED = "its process ended without closing the run"
_ENVIRONMENT_LIMIT = 1 << 20
_LOCK_LIMIT = 4096
_JOBS_LIST_LIMIT = 1 << 30
"""Some three million jobs; a larger file was not written by Tenuto, and reading it would take minutes."""
_CANDIDATES_SHOWN = 8


class RunView(NamedTuple):
    """One run of an experiment."""

    experiment_id: str
    run_id: str
    state: RunState
    live: bool
    """Its process is at work."""
    started: datetime | None = None
    ended: datetime | None = None
    host: str | None = None
    pid: int | None = None
    jobs: int | None = None
    """How many jobs it had when it ended; these three are not known before, nor after a crash."""
    reused: int | None = None
    failed: int | None = None
    message: str | None = None
    carbon: CarbonMetricsData | None = None
    """What its jobs used, as far as that was measured; known when it has ended."""
    tags: tuple[str, ...] = ()
    """Words that a person gave it; a tagged run is not pruned."""

    @property
    def name(self) -> str:
        """As a person names it on the command line."""
        return f"{self.experiment_id}/{self.run_id}"


class ExperimentView(NamedTuple):
    """An experiment, with its runs, newest first."""

    experiment_id: str
    runs: tuple[RunView, ...]


class JobView(NamedTuple):
    """One job, as far as a list shows it."""

    task_id: str
    job_id: str
    state: JobState
    reason: JobFailureStatus | None = None
    message: str | None = None
    attempt: int = 0
    tags: Mapping[str, str] = {}
    depends_on: tuple[str, ...] = ()
    transient: TransientMode = TransientMode.NONE
    submittime: datetime | None = None
    starttime: datetime | None = None
    endtime: datetime | None = None
    experiment_id: str | None = None
    run_id: str | None = None
    alarm: str | None = None
    marker: Marker | None = None
    progress: Progress | None = None
    """Only of a job that runs."""

    @property
    def key(self) -> JobKey:
        return JobKey(self.task_id, self.job_id)

    def duration_s(self, now: datetime) -> float | None:
        """How long it ran, or has been running."""
        if self.starttime is None:
            return None
        end = self.endtime or (now if self.state.running() else None)
        return None if end is None else max((end - self.starttime).total_seconds(), 0.0)


class JobDetail(NamedTuple):
    """Everything about one job."""

    job: JobView
    stored: Stored
    dependencies: tuple[JobView, ...]
    dependents: tuple[JobView, ...]
    runs: tuple[RunView, ...]
    """The runs that asked for it, newest first."""
    launch: LaunchRecord | None
    evidence: Evidence | None
    paths: JobPaths
    earlier_logs: int
    """How many earlier attempts left a log."""
    carbon: Mapping[int, Measured] = {}
    """attempt -> what it used."""


class WorkspaceView:
    """Looks at one workspace."""

    def __init__(self, layout: Layout, machine: Machine) -> None:
        self.layout = layout
        self.machine = machine
        self._files = machine.files

    # Experiments and runs

    def experiments(self) -> list[ExperimentView]:
        """All experiments, the one with the newest run first."""
        names = (name_of_directory(name) for name in self._directories(self.layout.experiments))
        found = [ExperimentView(name, tuple(self.runs(name))) for name in names if name is not None]
        return sorted(found, key=lambda one: one.runs[0].run_id if one.runs else "", reverse=True)

    def runs(self, experiment_id: str) -> list[RunView]:
        """The runs of an experiment, newest first."""
        directory = self.layout.experiment(experiment_id)
        ids = [run_id for name in self._directories(directory) if (run_id := parse_run_id(name))]
        views = []
        at_work = self._process_at_work(experiment_id)
        for run_id in sorted(ids, reverse=True):
            view = self._run(experiment_id, str(run_id), at_work)
            if view.live:
                at_work = None  # one process, one run
            views.append(view)
        return views

    def find_runs(self, name: str | None) -> list[RunView]:
        """The runs that a name stands for, newest first.

        None: the last run of each experiment, and each live one. An experiment: its last run.
        `EXPERIMENT/RUN`, or a run id, or the beginning of one: that run.
        """
        experiments = self.experiments()
        if name is None:
            return [
                run
                for experiment in experiments
                for place, run in enumerate(experiment.runs)
                if not place or run.live
            ]
        for experiment in experiments:
            if experiment.experiment_id == name and experiment.runs:
                return [experiment.runs[0]]
        found = [
            run
            for experiment in experiments
            for run in experiment.runs
            if run.run_id.startswith(name) or (run.name.startswith(name) and "/" in name)
        ]
        exact = [run for run in found if name in (run.run_id, run.name)]
        if not found:
            raise NotFound(f"no experiment and no run is called {name!r}; `tenuto runs` lists them")
        return exact or found

    def run(self, name: str) -> RunView:
        """The one run that a name stands for."""
        found = self.find_runs(name)
        if len(found) > 1:
            names = ", ".join(run.name for run in found[:_CANDIDATES_SHOWN])
            raise Ambiguous(f"{len(found)} runs are called {name!r}: {names}; give one of these names")
        return found[0]

    def _run(self, experiment_id: str, run_id: str, at_work: _Holder | None) -> RunView:
        paths = self.layout.run(experiment_id, run_id)
        status = read_run_status(self._files, paths)
        tags = read_tags(self._files, paths)
        if status is None:
            message = "its status.json is missing or cannot be read"
            return RunView(experiment_id, run_id, RunState.INTERRUPTED, False, message=message, tags=tags)
        live = status.state is RunState.RUNNING and at_work is not None and at_work.fits(status)
        ended = status.state is not RunState.RUNNING
        crashed = status.state is RunState.RUNNING and not live
        return RunView(
            experiment_id,
            run_id,
            RunState.INTERRUPTED if crashed else status.state,
            live,
            started=_aware(status.started),
            ended=_aware(status.ended),
            host=status.host,
            pid=status.pid,
            jobs=status.jobs if ended else None,
            reused=status.reused if ended else None,
            failed=status.failed if ended else None,
            message=CRASHED if crashed else status.message,
            carbon=status.carbon,
            tags=tags,
        )

    def _process_at_work(self, experiment_id: str) -> _Holder | None:
        """Who holds the lock of an experiment."""
        path = self.layout.experiment_lock(experiment_id)
        try:
            if not self.machine.locks.is_locked(path):
                return None
            holder = Fields(from_json(self._files.read(path, _LOCK_LIMIT)))
            return _Holder(holder.text("host"), holder.integer("pid"))
        except ValueError:
            return _Holder(None, 0)  # held, but it does not say by whom
        except (OSError, TenutoError):
            return None

    def commits(self, run: RunView) -> dict[str, str]:
        """project path -> git commit, as the run recorded them."""
        paths = self.layout.run(run.experiment_id, run.run_id)
        try:
            recorded = json.loads(self._files.read(paths.environment, _ENVIRONMENT_LIMIT))
            return {
                str(project["path"]): f"{project['commit']}{' with changes' if project.get('dirty') else ''}"
                for project in recorded["git"]
                if project.get("commit")
            }
        except (OSError, TenutoError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}

    # Jobs of a run

    def lines(self, run: RunView) -> list[JobLine]:
        """What the run asked for, as far as it can be read."""
        paths = self.layout.run(run.experiment_id, run.run_id)
        try:
            size = self._files.stat(paths.jobs_list)
            if size is None or size.size > _JOBS_LIST_LIMIT:
                return []
            found = read_jobs(self._files, paths).jobs
        except OSError:
            return []
        tasks = {line.task_id for line in found}
        sound = {task_id for task_id in tasks if self._task_is_sound(task_id)}
        return [line for line in found if line.task_id in sound and is_job_id(line.job_id)]

    def counts(self, run: RunView) -> Counter[JobState]:
        """How many jobs of a run are in which state; made to be fast."""
        lines = self.lines(run)
        seen = {}
        for line in lines:
            paths = self.layout.job(line.task_id, line.job_id)
            state = glance(self.machine, paths)
            detailed = state is JobState.ERROR and run.live  # it may be a failure of an earlier run
            seen[line.job_id] = see(self.machine, paths) if detailed else _SEEN[state]
        return Counter(sight.state for sight in self._standing(lines, seen, run).values())

    def jobs(self, run: RunView) -> list[JobView]:
        """The jobs of a run, in the order they were submitted."""
        lines = self.lines(run)
        seen = {line.job_id: see(self.machine, self.layout.job(line.task_id, line.job_id)) for line in lines}
        standing = self._standing(lines, seen, run)
        return [self._job_view(line, standing[line.job_id], run) for line in lines]

    def _standing(self, lines: list[JobLine], seen: Mapping[str, Sight], run: RunView) -> dict[str, Sight]:
        standing = within_run(lines, seen, live=run.live)
        return with_tokens(self.machine, lines, standing) if run.live else standing

    def _job_view(self, line: JobLine, sight: Sight, run: RunView) -> JobView:
        return self._with_progress(
            JobView(
                line.task_id,
                line.job_id,
                sight.state,
                sight.reason,
                sight.message,
                sight.attempt,
                tags=line.tags,
                depends_on=line.depends_on,
                transient=line.transient,
                submittime=line.submittime,
                starttime=sight.starttime,
                endtime=sight.endtime,
                experiment_id=run.experiment_id,
                run_id=run.run_id,
                alarm=sight.alarm,
                marker=sight.marker,
            )
        )

    def _with_progress(self, job: JobView) -> JobView:
        if job.state is not JobState.RUNNING:
            return job
        place = self.layout.job_journal(job.task_id, job.job_id)
        return job._replace(progress=last_progress(self._files, place, job.attempt, job.starttime))

    # Jobs of the workspace

    def job_keys(self) -> Iterator[JobKey]:
        """Every job that has a directory."""
        for directory in self._directories(self.layout.jobs):
            task_id = name_of_directory(directory)
            if task_id is not None:
                for name in self._list(f"{self.layout.jobs}/{directory}"):
                    if is_job_id(name):
                        yield JobKey(task_id, name)

    def all_jobs(self, keys: Iterable[JobKey] | None = None) -> list[JobView]:
        """Every job that has a directory, also those of no run; each as its newest run sees it."""
        wanted = list(self.job_keys() if keys is None else keys)
        missing = set(wanted)
        known: dict[JobKey, JobView] = {}
        for experiment in self.experiments():
            for run in experiment.runs:
                if not missing:
                    break
                if any(JobKey(line.task_id, line.job_id) in missing for line in self.lines(run)):
                    for job in self.jobs(run):
                        if job.key in missing:
                            known[job.key] = job
                            missing.discard(job.key)
        return [known.get(key) or self._job_of_no_run(key) for key in wanted]

    def _job_of_no_run(self, key: JobKey) -> JobView:
        sight = see(self.machine, self.layout.job(*key))
        return self._with_progress(
            JobView(
                key.task_id,
                key.job_id,
                sight.state,
                sight.reason,
                sight.message if sight.is_there else REMOVED,
                sight.attempt,
                starttime=sight.starttime,
                endtime=sight.endtime,
                alarm=sight.alarm,
                marker=sight.marker,
            )
        )

    def listed(self, *, live_only: bool = False) -> set[JobKey]:
        """The jobs that some run, or some live run, asked for."""
        found: set[JobKey] = set()
        for experiment in self.experiments():
            for run in experiment.runs:
                if run.live or not live_only:
                    found |= self.asked_for(run)
        return found

    def asked_for(self, run: RunView) -> set[JobKey]:
        """The jobs that a run asked for; by its list and by its links."""
        listed = {JobKey(line.task_id, line.job_id) for line in self.lines(run)}
        return listed.union(self._linked(self.layout.run(run.experiment_id, run.run_id)))

    def _linked(self, run: RunPaths) -> Iterator[JobKey]:
        for directory in self._directories(run.jobs):
            task_id = name_of_directory(directory)
            if task_id is not None:
                for name in self._list(f"{run.jobs}/{directory}"):
                    if is_job_id(name):
                        yield JobKey(task_id, name)

    def orphans(self) -> list[JobView]:
        """Finished jobs of no run: their runs were pruned."""
        listed = self.listed()
        jobs = (self._job_of_no_run(key) for key in self.job_keys() if key not in listed)
        return [job for job in jobs if job.state.finished()]

    def strays(self) -> list[JobView]:
        """Running jobs that no live run waits for: their run was left or killed."""
        waited_for = self.listed(live_only=True)
        keys = [
            key
            for key in self.job_keys()
            if key not in waited_for and glance(self.machine, self.layout.job(*key)).running()
        ]
        return [job for job in self.all_jobs(keys) if job.state.running()]

    # One job

    def find(self, name: str) -> list[JobKey]:
        """The jobs that a name stands for.

        The beginning of an id, a task (its last part will do), `TASK/ID`, or the path of a directory.
        """
        task, _, identity = name.rstrip("/").rpartition("/")
        task = task.rpartition("/")[2]
        keys = list(self.job_keys())
        if task:
            by_id = [key for key in keys if _is_task(key, task) and key.job_id.startswith(identity)]
            return [key for key in by_id if key.job_id == identity] or by_id
        by_id = [key for key in keys if key.job_id.startswith(identity)]
        exact = [key for key in by_id if key.job_id == identity]
        return exact or by_id + [key for key in keys if _is_task(key, identity) and key not in by_id]

    def find_one(self, name: str) -> JobKey:
        """The one job that a name stands for."""
        found = self.find(name)
        if not found:
            raise NotFound(f"no job is called {name!r}; `tenuto jobs --all` lists them")
        if len(found) > 1:
            more = "" if len(found) <= _CANDIDATES_SHOWN else f", and {len(found) - _CANDIDATES_SHOWN} more"
            names = ", ".join(f"{key.task_id}/{key.job_id[:12]}" for key in found[:_CANDIDATES_SHOWN])
            raise Ambiguous(f"{len(found)} jobs are called {name!r}: {names}{more}; give more of the id")
        return found[0]

    def job(self, key: JobKey) -> JobView:
        """One job, as its newest run sees it."""
        return self.all_jobs([key])[0]

    def detail(self, key: JobKey) -> JobDetail:
        """Everything about one job."""
        paths = self.layout.job(*key)
        runs = self.runs_of(key)
        siblings = self.jobs(runs[0]) if runs else []
        job = next((one for one in siblings if one.key == key), None) or self._job_of_no_run(key)
        stored = read_stored(self._files, paths)
        evidence = None
        if self._is_directory(paths.directory):
            try:
                found = look(self.machine, paths)
            except (OSError, TenutoError):
                pass  # its sight says so already
            else:
                evidence = found.evidence
                sight = sight_of(found)
                if sight.state is job.state:
                    job = job._replace(starttime=sight.starttime or job.starttime)
        launch = evidence.launch if evidence and isinstance(evidence.launch, LaunchRecord) else None
        needed = {one.job_id: one for one in siblings}
        upstream = {key.job_id: key for key in stored.upstream.values()}
        wanted = dict.fromkeys((*job.depends_on, *upstream))
        dependencies = [
            needed.get(one) or self._job_of_no_run(upstream[one])
            for one in wanted
            if one in needed or one in upstream
        ]
        return JobDetail(
            job=job,
            stored=stored,
            dependencies=tuple(dependencies),
            dependents=tuple(one for one in siblings if key.job_id in one.depends_on),
            runs=tuple(runs),
            launch=launch,
            evidence=evidence,
            paths=paths,
            earlier_logs=self._earlier_logs(paths),
            carbon=read_carbon(self._files, paths),
        )

    def runs_of(self, key: JobKey) -> list[RunView]:
        """The runs that asked for a job, newest first."""
        runs = [run for experiment in self.experiments() for run in experiment.runs if self._has(run, key)]
        return sorted(runs, key=lambda run: (run.live, run.run_id), reverse=True)

    def _has(self, run: RunView, key: JobKey) -> bool:
        paths = self.layout.run(run.experiment_id, run.run_id)
        try:
            return self._files.stat(paths.job_link(*key)) is not None
        except OSError:
            return False

    def _earlier_logs(self, paths: JobPaths) -> int:
        number = 0
        while number < 1000 and any(
            self._files.stat(paths.rotated(log, number + 1)) for log in (paths.out, paths.err)
        ):
            number += 1
        return number

    # Looking safely

    def _directories(self, path: str) -> list[str]:
        """The names of real directories: a link could lead anywhere."""
        if not self._is_directory(path):
            return []
        return [name for name in self._list(path) if self._is_directory(f"{path}/{name}")]

    def _list(self, path: str) -> list[str]:
        try:
            return self._files.list(path)
        except OSError:
            return []

    def _is_directory(self, path: str) -> bool:
        try:
            found = self._files.stat(path)
        except OSError:
            return False
        return found is not None and found.kind is FileKind.DIRECTORY

    def _task_is_sound(self, task_id: str) -> bool:
        try:
            path = self.layout.job(task_id, "x").directory.rpartition("/")[0]
        except TenutoError:
            return False
        try:
            found = self._files.stat(path)
        except OSError:
            return False
        return found is None or found.kind is FileKind.DIRECTORY


class _Holder(NamedTuple):
    """The process that holds the lock of an experiment; without a host it is not known."""

    host: str | None
    pid: int

    def fits(self, status: RunStatus) -> bool:
        return self.host is None or (self.host, self.pid) == (status.host, status.pid)


_SEEN = {state: Sight(state) for state in JobState}


def _is_task(key: JobKey, name: str) -> bool:
    return key.task_id == name or key.task_id.endswith(f".{name}") or key.task_id.rpartition(".")[2] == name


def _aware(instant: datetime | None) -> datetime | None:
    """An instant that can be compared; what another program wrote may lack a time zone."""
    return None if instant is None or instant.tzinfo is None else instant


def plain_job(job: JobView, now: datetime) -> dict[str, Any]:
    """A job as the plain values that `--json` prints; the keys are documented in docs/cli.md."""
    return {
        "task": job.task_id,
        "id": job.job_id,
        "state": job.state.name.lower(),
        "reason": job.reason.name.lower() if job.reason else None,
        "message": job.message,
        "experiment": job.experiment_id,
        "run": job.run_id,
        "attempt": job.attempt,
        "tags": dict(job.tags),
        "depends_on": list(job.depends_on),
        "transient": job.transient.name.lower(),
        "submitted": _iso(job.submittime),
        "started": _iso(job.starttime),
        "ended": _iso(job.endtime),
        "duration_s": job.duration_s(now),
        "progress": job.progress.fraction if job.progress else None,
        "progress_desc": job.progress.desc if job.progress else None,
        "eta_s": job.progress.left_s(now) if job.progress else None,
        "alarm": job.alarm,
    }


def plain_run(run: RunView) -> dict[str, Any]:
    """A run as the plain values that `--json` prints."""
    return {
        "experiment": run.experiment_id,
        "run": run.run_id,
        "state": run.state.value,
        "live": run.live,
        "started": _iso(run.started),
        "ended": _iso(run.ended),
        "host": run.host,
        "pid": run.pid,
        "jobs": run.jobs,
        "reused": run.reused,
        "failed": run.failed,
        "message": run.message,
        "carbon": plain_metrics(run.carbon) if run.carbon else None,
        "tags": list(run.tags),
    }


def _iso(instant: datetime | None) -> str | None:
    return instant.isoformat() if instant else None
