"""Runs that still need a job: live runs, runs of a running job that depends on it, and runs that keep it.
Reads only. A remover of a job takes its lock first, and asks then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tenuto.experiments.runs import RunView
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.key import JobKey
from tenuto.jobs.sight import Depth
from tenuto.lifecycle.states import TransientMode
from tenuto.workspace.jobslist import JobLine


def users(view: WorkspaceView, keys: Collection[JobKey]) -> dict[JobKey, str]:
    """Of these jobs those that must not go now, each with the reason."""
    wanted = set(keys)
    found: dict[JobKey, str] = {}
    for run in _runs(view):
        if run.live:
            found.update(dict.fromkeys(wanted & view.asked_for(run), "a live run asked for it"))
        else:
            found.update(_needed_by_what_runs(view, view.lines(run), wanted))
    return found


def askers(view: WorkspaceView, keys: Collection[JobKey]) -> dict[JobKey, str]:
    """Of these jobs those that some run asked for, ended or not: they are no orphans."""
    found = users(view, keys)
    for run in _runs(view):
        for key in set(keys) & view.asked_for(run):
            found.setdefault(key, f"{run.name} asked for it")
    return found


def keepers(view: WorkspaceView, keys: Collection[JobKey], experiment_id: str) -> dict[JobKey, str]:
    """Of these jobs those that a run of another experiment keeps: it did not submit them to be removed."""
    wanted = set(keys)
    found: dict[JobKey, str] = {}
    for run in _runs(view):
        if run.experiment_id != experiment_id:
            for line in view.lines(run):
                key = JobKey(line.task_id, line.job_id)
                if key in wanted and line.transient is not TransientMode.REMOVE:
                    found[key] = f"{run.name} keeps it"
    return found


def _runs(view: WorkspaceView) -> Iterable[RunView]:
    return (run for experiment in view.experiments() for run in experiment.runs)


def _needed_by_what_runs(
    view: WorkspaceView, lines: Iterable[JobLine], wanted: Collection[JobKey]
) -> Mapping[JobKey, str]:
    """The run was left or killed, but a job of it that runs may still read what it depends on."""
    known = {line.job_id: line for line in lines}
    targets = [key for key in wanted if key.job_id in known]
    if not targets:
        return {}
    dependents: dict[str, list[str]] = {}
    for line in known.values():
        for needed in line.depends_on:
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
                    if view.look(JobKey(task_id, job_id), Depth.STATE).state.running():
                        found[key] = f"{task_id} {job_id[:12]} runs, and depends on it"
    return found
