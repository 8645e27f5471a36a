"""What a person does to the runs of a workspace from another process: prune them, find what failed in them.
Pruning takes the lock of the experiment that it changes.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from tenuto.experiments.history import FinishedRun, runs_to_prune
from tenuto.experiments.locking import lock_experiment
from tenuto.experiments.view import WorkspaceView
from tenuto.jobs.directories import directory_size
from tenuto.jobs.key import JobKey
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.workspace import trash


class PrunedRun(NamedTuple):
    """A run that was forgotten, or would be."""

    run_id: str
    size: int
    """Bytes of its directory."""


def prune_runs(
    view: WorkspaceView,
    experiment_id: str,
    *,
    max_done: int | None,
    max_failed: int | None,
    really: bool,
) -> list[PrunedRun]:
    """Forgets old runs of an experiment, the jobs stay; returns them, oldest first.

    A tagged run stays, and does not count. `ExperimentLocked` if the experiment runs.
    """
    with contextlib.ExitStack() as held:
        if really:
            held.callback(lock_experiment(view.machine, view.layout, experiment_id).close)
        finished = [
            FinishedRun(run.run_id, failed=run.state.value != "done")
            for run in view.runs(experiment_id)
            if not run.live and not run.tags
        ]
        pruned = []
        for run_id in runs_to_prune(finished, max_done=max_done, max_failed=max_failed):
            directory = view.layout.run(experiment_id, run_id).directory
            pruned.append(PrunedRun(run_id, directory_size(view.machine.files, directory)))
            if really:
                trash.discard(view.machine, view.layout, directory)
        if really:
            trash.empty(view.machine, view.layout)
    return pruned


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
