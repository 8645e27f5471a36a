"""Experiments and their runs as a reader sees them, in any process at any time.
Reads only, and survives whatever lies on the disk; jobs are not looked at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from tenuto.errors import Ambiguous, NotFound, TenutoError
from tenuto.experiments.run_record import (
    LockHolder,
    RunId,
    RunState,
    parse_run_id,
    read_holder,
    read_run_status,
    read_tags,
)
from tenuto.jobs.directories import entries, subdirectories
from tenuto.jobs.driver_command import take_up_by
from tenuto.jobs.key import JobKey
from tenuto.jobs.row import group_key
from tenuto.lifecycle.events import CarbonMetricsData
from tenuto.lifecycle.owner_names import Door, OwnerName
from tenuto.lifecycle.states import JobState
from tenuto.workspace.carbon import plain_metrics
from tenuto.workspace.jobslist import lines_about
from tenuto.workspace.layout import Layout, name_of_directory
from tenuto.workspace.ports import Machine

CRASHED = "its process ended without closing the run"
_ENVIRONMENT_LIMIT = 1 << 20
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
    command: tuple[str, ...] = ()
    """What starts it again in its directory, as far as that is known."""
    directory: str = ""
    counts: Mapping[JobState, int] = {}
    """How many jobs were in which state when its process wrote that last."""
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


class RunsView:
    """Looks at the experiments of one workspace."""

    def __init__(self, layout: Layout, machine: Machine) -> None:
        self.layout = layout
        self.machine = machine
        self._files = machine.files

    def experiments(self) -> list[ExperimentView]:
        """All experiments, the one with the newest run first."""
        names = (name_of_directory(name) for name in subdirectories(self._files, self.layout.experiments))
        found = [ExperimentView(name, tuple(self.runs(name))) for name in names if name is not None]
        return sorted(found, key=lambda one: [*map(by_age, one.runs[:1])], reverse=True)

    def all_runs(self) -> list[RunView]:
        """The runs of all experiments, newest first."""
        return sorted(chain.from_iterable(one.runs for one in self.experiments()), key=by_age, reverse=True)

    def runs(self, experiment_id: str) -> list[RunView]:
        """The runs of an experiment, newest first."""
        directory = self.layout.experiment(experiment_id)
        ids = [run_id for name in subdirectories(self._files, directory) if (run_id := parse_run_id(name))]
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

    def _run(self, experiment_id: str, run_id: str, at_work: LockHolder | None) -> RunView:
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
            command=status.command,
            directory=status.directory,
            counts=status.counts,
            tags=tags,
        )

    def _process_at_work(self, experiment_id: str) -> LockHolder | None:
        """The process that holds the lock of an experiment."""
        path = self.layout.experiment_lock(experiment_id)
        try:
            if not self.machine.locks.is_locked(path):
                return None
            return read_holder(self._files, path)
        except ValueError:
            return LockHolder(None, 0, "")  # held, but it does not say by whom
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

    def runs_of(self, key: JobKey) -> list[RunView]:
        """The runs that asked for a job, newest first; asks each run of the workspace for one name."""
        found = []
        for name in subdirectories(self._files, self.layout.experiments):
            experiment_id = name_of_directory(name)
            if experiment_id is None:
                continue
            directory = self.layout.experiment(experiment_id)
            run_ids = [one for one in entries(self._files, directory) if parse_run_id(one)]
            if have := {run_id for run_id in run_ids if self._has(experiment_id, run_id, key)}:
                found += [run for run in self.runs(experiment_id) if run.run_id in have]
        return sorted(found, key=lambda run: (run.live, by_age(run)), reverse=True)

    def _has(self, experiment_id: str, run_id: str, key: JobKey) -> bool:
        paths = self.layout.run(experiment_id, run_id)
        try:
            if self._files.stat(paths.job_link(*key)) is not None:
                return True
            return any(one.task_id == key.task_id for one in lines_about(self._files, paths, [key.job_id]))
        except OSError:
            return False


def _aware(instant: datetime | None) -> datetime | None:
    """An instant that can be compared; what another program wrote may lack a time zone."""
    return None if instant is None or instant.tzinfo is None else instant


def by_age(run: RunView) -> tuple[RunId, float, str]:
    """The sort key of runs: ids tell seconds, of two that began in one their own records tell more."""
    started = run.started.timestamp() if run.started is not None else 0.0
    return parse_run_id(run.run_id) or RunId(""), started, run.experiment_id


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


def take_up(run: RunView) -> str:
    """The command that takes a run up again: done jobs are reused."""
    if not run.command:
        return f"tenuto run FILE (the script or file of {run.experiment_id})"
    return take_up_by(run.command, run.directory)


def run_group(run: RunView) -> str:
    """The key of the group that a run is."""
    return group_key(OwnerName(Door.EXPERIMENTS, run.experiment_id, run.run_id))
