"""What an experiment removes when it ends: transient jobs, and runs older than it wants to keep."""

from __future__ import annotations

import contextlib

from tenuto.experiments.history import FinishedRun, runs_to_prune
from tenuto.experiments.run import Run
from tenuto.experiments.run_id import parse_run_id
from tenuto.experiments.status import RunState, read_run_status
from tenuto.lifecycle.states import JobState, TransientMode
from tenuto.settings import Settings
from tenuto.workspace import trash
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import Machine


def remove_transient_jobs(machine: Machine, layout: Layout, run: Run) -> None:
    """Removes the directories of jobs that were only wanted for the others, unless somebody uses them.

    Under the job's lock, so that nobody starts it meanwhile.
    """
    for job in run.jobs.values():
        if job.transient is TransientMode.REMOVE and job.state is JobState.DONE and not job.owners:
            lock = machine.locks.try_lock(job.paths.lock)
            if lock is not None:
                with contextlib.closing(lock):
                    trash.discard(machine.files, layout, job.paths.directory, machine.randomness)
    trash.empty(machine.files, layout)


def prune_history(machine: Machine, layout: Layout, experiment_id: str, settings: Settings) -> None:
    """Removes old runs of an experiment, under its lock; the jobs stay."""
    finished = []
    for run_id in filter(parse_run_id, machine.files.list(layout.experiment(experiment_id))):
        status = read_run_status(machine.files, layout.run(experiment_id, run_id))
        if status is not None and status.state is not RunState.RUNNING:
            finished.append(FinishedRun(run_id, failed=status.state is not RunState.DONE))
    for run_id in runs_to_prune(
        finished, max_done=settings.history.max_done, max_failed=settings.history.max_failed
    ):
        directory = layout.run(experiment_id, run_id).directory
        trash.discard(machine.files, layout, directory, machine.randomness)
    trash.empty(machine.files, layout)
