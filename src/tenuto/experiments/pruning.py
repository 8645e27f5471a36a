"""What an experiment removes when it ends: runs older than it wants to keep, and what killed writers left."""

from __future__ import annotations

from contextlib import suppress

from tenuto.errors import WorkspaceError
from tenuto.experiments.history import FinishedRun, runs_to_prune
from tenuto.experiments.run import Run
from tenuto.experiments.run_id import parse_run_id
from tenuto.experiments.run_tags import read_tags
from tenuto.experiments.status import RunState, read_run_status
from tenuto.settings import Settings
from tenuto.workspace import job_directory, trash
from tenuto.workspace.jobslist import read_jobs
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import Machine
from tenuto.workspace.temporaries import clear_forsaken


def clear_after_kills(machine: Machine, layout: Layout, run: Run) -> None:
    """Removes what killed writers left half written: in jobs of this run, and of runs that were killed.

    Under the lock of the experiment. A job that is tried again clears up by itself; this is for the rest.
    """
    ran = [job.paths for key, job in run.jobs.items() if key not in run.reused and job.state.finished()]
    for run_id in filter(parse_run_id, machine.files.list(layout.experiment(run.experiment_id))):
        paths = layout.run(run.experiment_id, run_id)
        status = read_run_status(machine.files, paths)
        if status is not None and status.state is RunState.RUNNING:
            ran += [layout.job(job.task_id, job.job_id) for job in read_jobs(machine.files, paths).jobs]
        clear_forsaken(machine, paths.directory)
    for job in ran:
        clear_forsaken(machine, job.directory)
        clear_forsaken(machine, job.private)
        with suppress(OSError, WorkspaceError):  # a courtesy: every reader of ours derives the state
            job_directory.mend_status(machine, job)


def prune_history(
    machine: Machine, layout: Layout, experiment_id: str, settings: Settings, ending: str
) -> None:
    """Removes old runs of an experiment, under its lock, but neither tagged ones nor `ending`; jobs stay."""
    finished = []
    for run_id in filter(parse_run_id, machine.files.list(layout.experiment(experiment_id))):
        paths = layout.run(experiment_id, run_id)
        status = read_run_status(machine.files, paths)
        # Under the lock no other run is under way: one that never came to its end was killed.
        is_ours = status is not None or machine.files.stat(paths.environment) is not None
        if is_ours and not read_tags(machine.files, paths):
            finished.append(FinishedRun(run_id, failed=status is None or status.state is not RunState.DONE))
    for run_id in runs_to_prune(
        finished,
        max_done=settings.history.max_done,
        max_failed=settings.history.max_failed,
        keep=[ending],
    ):
        directory = layout.run(experiment_id, run_id).directory
        trash.discard(machine, layout, directory)
    trash.empty(machine, layout)
