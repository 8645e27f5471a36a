"""Runs and jobs that are no longer kept: old runs, transient jobs, what killed writers left.
Removes under the lock of an experiment or a job only, and no job that a run still needs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from tenuto.errors import WorkspaceError
from tenuto.experiments.run_record import (
    RunId,
    RunState,
    lock_experiment,
    parse_run_id,
    read_run_status,
    read_tags,
)
from tenuto.jobs.key import JobKey
from tenuto.lifecycle.states import JobState, TransientMode
from tenuto.light import late
from tenuto.settings.tree import HistorySettings, Settings
from tenuto.workspace import job_directory, trash
from tenuto.workspace.derive import derive_state
from tenuto.workspace.jobslist import JobLine, read_jobs
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import Machine
from tenuto.workspace.trash import clear_forsaken

if TYPE_CHECKING:
    from tenuto.experiments import workspace_view as views
    from tenuto.experiments.run import Run
    from tenuto.jobs import directories, packing, removal
    from tenuto.jobs import view as jobs_view
else:  # most runs need none of it
    views = late("tenuto.experiments.workspace_view")
    directories = late("tenuto.jobs.directories")
    packing = late("tenuto.jobs.packing")
    removal = late("tenuto.jobs.removal")
    jobs_view = late("tenuto.jobs.view")

_PATIENCE_S = 1.0
"""How long a run that ends waits for another process to let go of its transient jobs."""


def clear_up(machine: Machine, layout: Layout, run: Run, state: RunState, settings: Settings) -> None:
    """Remove what a run that ended in a state leaves behind; under the lock of its experiment."""
    if state is RunState.DONE and any(job.transient is TransientMode.REMOVE for job in run.jobs.values()):
        remove_transient_jobs(machine, layout, run)
    clear_after_kills(machine, layout, run)
    prune_history(machine, layout, run.experiment_id, settings.history, ending=run.run_id)
    if settings.pack:
        _pack_jobs(machine, layout, run)


def _pack_jobs(machine: Machine, layout: Layout, run: Run) -> None:
    """Packs the jobs of a run that ended; not those with outputs that its script may open by their paths."""
    view = views.WorkspaceView(layout, machine)
    keys = [
        JobKey(job.task_id, job.job_id)
        for job in run.jobs.values()
        if job.state.finished() and not (job.marker is not None and job.marker.record.get("outputs"))
    ]
    packing.pack(view, keys, really=True, used=steady_users(view), seen={}, patience_s=_PATIENCE_S)
    view.keep_columns(ending=run.run_id)


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
    machine: Machine, layout: Layout, experiment_id: str, kept: HistorySettings, *, ending: str
) -> None:
    """Remove old runs of an experiment, under its lock, but neither tagged ones nor `ending`; jobs stay."""
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
        max_done=kept.max_done,
        max_failed=kept.max_failed,
        keep=[ending],
    ):
        directory = layout.run(experiment_id, run_id).directory
        trash.discard(machine, layout, directory)
    trash.empty(machine, layout)


class FinishedRun(NamedTuple):
    """A run that is over."""

    run_id: str
    failed: bool


def runs_to_prune(
    runs: Iterable[FinishedRun],
    *,
    max_done: int | None,
    max_failed: int | None,
    keep: Collection[str] = (),
) -> list[str]:
    """The ids of the runs to remove, oldest first, so that the newest of each kind stay.

    None keeps all. The runs in `keep` stay, and counts towards the limit; a name that is no run id stays too,
    for Tenuto did not make it.
    """
    limits = {False: max_done, True: max_failed}
    kept = {False: 0, True: 0}
    known = {run_id: run.failed for run in runs if (run_id := parse_run_id(run.run_id))}
    pruned: list[RunId] = []
    for run_id in sorted(known, reverse=True):
        failed = known[run_id]
        limit = limits[failed]
        if limit is None or kept[failed] < limit or str(run_id) in keep:
            kept[failed] += 1
        else:
            pruned.append(run_id)
    return [str(run_id) for run_id in reversed(pruned)]


def remove_transient_jobs(machine: Machine, layout: Layout, run: Run) -> None:
    """Removes the directories of jobs that were only wanted for the others, unless an experiment uses them.

    After a clean end, when the run no longer counts as live. What another experiment asked for stays: if it
    runs, in any case; if it has ended, unless it wanted the job removed, too. Of two runs that end together
    the first one has the lock, and keeps the job for the second: that one waits for the lock.
    """
    view = views.WorkspaceView(layout, machine)
    keys = sorted(  # two removers that wait for each other's locks would both wait in vain
        JobKey(job.task_id, job.job_id)
        for job in run.jobs.values()
        if job.transient is TransientMode.REMOVE and job.state is JobState.DONE
    )
    if keys:
        removal.remove(
            view,
            keys,
            lambda keys: {**keepers(view, keys, run.experiment_id), **users(view, keys)},
            patience_s=_PATIENCE_S,
        )


class PrunedRun(NamedTuple):
    """A run that was forgotten, or would be."""

    run_id: str
    size: int
    """Bytes of its directory."""


def prune_runs(
    view: views.WorkspaceView,
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
            pruned.append(PrunedRun(run_id, directories.directory_size(view.machine.files, directory)))
            if really:
                trash.discard(view.machine, view.layout, directory)
        if really:
            trash.empty(view.machine, view.layout)
    return pruned


# -- runs that still need a job: a remover takes its lock first, and asks then -----------------------


def users(view: views.WorkspaceView, keys: removal.Held) -> dict[JobKey, str]:
    """The jobs that a run still needs, of those with these keys, each with the reason."""
    wanted = set(keys)
    found: dict[JobKey, str] = {}
    for run in view.all_runs():
        if run.live:
            found.update(dict.fromkeys(wanted & view.asked_for(run), "a live run asked for it"))
        else:
            found.update(_needed_by_what_runs(view, view.lines(run), keys))
    return found


def steady_users(view: views.WorkspaceView) -> removal.Keepers:
    """As `users`, for very many jobs in parts: the list of a run that has ended is read once."""
    needed: dict[tuple[str, str], set[JobKey]] = {}

    def used(keys: removal.Held) -> dict[JobKey, str]:
        found: dict[JobKey, str] = {}
        for run in view.all_runs():
            name = (run.experiment_id, run.run_id)
            if run.live:
                needed.pop(name, None)
                found.update(dict.fromkeys(keys.keys() & view.asked_for(run), "a live run asked for it"))
                continue
            if name not in needed:
                needed[name] = _needed(view, view.lines(run))
            found.update(dict.fromkeys(keys.keys() & needed[name], "a job that runs depends on it"))
        return found

    return used


def _needed(view: views.WorkspaceView, lines: Iterable[JobLine]) -> set[JobKey]:
    """What the jobs depend on that still run, of those of a run that was left or killed."""
    known = {line.job_id: line for line in lines}
    pending = [line for line in known.values() if _runs(view, JobKey(line.task_id, line.job_id), {})]
    found: set[JobKey] = set()
    while pending:
        line = pending.pop()
        for one in (known[name] for name in (*line.depends_on, *line.uses) if name in known):
            if (key := JobKey(one.task_id, one.job_id)) not in found:
                found.add(key)
                pending.append(one)
    return found


def askers(view: views.WorkspaceView, keys: removal.Held) -> dict[JobKey, str]:
    """The jobs that a run, ended or not, asked for, of those with these keys: they are no orphans."""
    found = users(view, keys)
    for run in view.all_runs():
        for key in set(keys) & view.asked_for(run):
            found.setdefault(key, f"{run.name} asked for it")
    return found


def keepers(view: views.WorkspaceView, keys: Collection[JobKey], experiment_id: str) -> dict[JobKey, str]:
    """The jobs that a run of another experiment keeps, of those with these keys, each with the reason."""
    wanted = set(keys)
    found: dict[JobKey, str] = {}
    for run in view.all_runs():
        if run.experiment_id != experiment_id:
            for line in view.lines(run):
                key = JobKey(line.task_id, line.job_id)
                if key in wanted and line.transient is not TransientMode.REMOVE:
                    found[key] = f"{run.name} keeps it"
    return found


def _needed_by_what_runs(
    view: views.WorkspaceView, lines: Iterable[JobLine], wanted: removal.Held
) -> Mapping[JobKey, str]:
    """The run was left or killed, but a job of it that runs may still read its dependencies."""
    known = {line.job_id: line for line in lines}
    targets = [key for key in wanted if key.job_id in known]
    if not targets:
        return {}
    dependents: dict[str, list[str]] = {}
    for line in known.values():
        for needed in (*line.depends_on, *line.uses):
            dependents.setdefault(needed, []).append(line.job_id)
    found = {}
    for key in targets:
        seen = {key.job_id}
        pending = [key.job_id]
        while pending and key not in found:
            for job_id in dependents.get(pending.pop(), ()):
                if job_id not in seen:
                    seen.add(job_id)
                    pending.append(job_id)
                    task_id = known[job_id].task_id
                    if _runs(view, JobKey(task_id, job_id), wanted):
                        found[key] = f"{task_id} {job_id[:12]} runs, and depends on it"
    return found


def _runs(view: views.WorkspaceView, key: JobKey, held: removal.Held) -> bool:
    """True if a job runs; a job that the remover has locked itself looks so, and is asked for by its lock."""
    lock = held.get(key)
    if lock is None:
        return view.look(key, jobs_view.ReadDepth.STATE).state.running()
    evidence = job_directory.read_evidence(view.machine, view.layout.job(*key), lock=lock, ask=view.inquiry)
    return derive_state(evidence).state.running()
