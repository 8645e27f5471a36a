"""What a person does to a workspace from another process: kill jobs, prune runs.
Each action takes the lock of what it changes, or names the attempt it means, so a stale wish does nothing.
"""

from __future__ import annotations

import contextlib
import signal
from typing import NamedTuple

from tenuto.experiments.history import FinishedRun, runs_to_prune
from tenuto.experiments.locking import lock_experiment
from tenuto.experiments.outcomes import Acted, Outcome
from tenuto.experiments.removing import is_real_directory
from tenuto.experiments.stored import JobKey
from tenuto.experiments.view import WorkspaceView
from tenuto.launchers.instructions import GRACE_S, Instructions
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.workspace import job_directory, trash
from tenuto.workspace.ports import ProcessHandle
from tenuto.workspace.records import LaunchRecord, PidRecord, StopRecord

# Killing


class Killing(NamedTuple):
    """A job that was asked to stop, with a handle on its runner to wait by; the caller closes it."""

    acted: Acted
    runner: ProcessHandle | None = None
    grace_s: float = GRACE_S
    """How long the runner lets it end by itself."""


def kill(view: WorkspaceView, key: JobKey, message: str, *, attempt: int | None = None) -> Killing:
    """Asks the runner of a job to end it: the wish is written down first, then the runner is told.

    `attempt`: what the person saw running; a later attempt is left alone.
    """
    machine, paths = view.machine, view.layout.job(*key)
    if not is_real_directory(machine, paths.directory):
        return Killing(Acted(key, Outcome.GONE, "it has no directory"))
    found = job_directory.look(machine, paths)
    launch, pid = found.evidence.launch, found.evidence.pid
    now = found.derived.attempt
    if not found.derived.state.running():
        return Killing(Acted(key, Outcome.NOT_RUNNING, f"it is {found.derived.state.name.lower()}", now))
    if attempt is not None and attempt != now:
        return Killing(Acted(key, Outcome.STALE, f"attempt {now} runs, not {attempt}", now))
    if (
        not isinstance(pid, PidRecord)
        or not isinstance(launch, LaunchRecord)
        or pid.attempt != launch.attempt
    ):
        return Killing(Acted(key, Outcome.STARTING, "its runner is not known yet: try again", now))
    # The handle is of exactly that process. If the attempt ends meanwhile the signal reaches nobody, and a
    # wish that names an ended attempt is never heard.
    runner = machine.processes.open(pid.identity)
    if runner is None:
        where = f"kill it on {pid.identity.host}" if pid.identity.host != machine.processes.own().host else ""
        outcome = Outcome.ELSEWHERE if where else Outcome.NOT_RUNNING
        return Killing(Acted(key, outcome, where or "its runner has just ended", now))
    stop = StopRecord(pid.attempt, JobFailureStatus.CANCELLED, machine.clock.now(), message)
    job_directory.request_stop(machine.files, paths, stop)
    if not runner.send_signal(signal.SIGTERM):
        runner.close()
        return Killing(Acted(key, Outcome.NOT_RUNNING, "it has just ended", now))
    acted = Acted(key, Outcome.ASKED, f"attempt {now}, process {pid.identity.pid}", now)
    return Killing(acted, runner, _grace_s(launch))


def _grace_s(launch: LaunchRecord) -> float:
    try:
        return Instructions.of(launch).limits.grace_s
    except (ValueError, TypeError, KeyError):
        return GRACE_S


# Pruning


def prune_runs(
    view: WorkspaceView,
    experiment_id: str,
    *,
    max_done: int | None,
    max_failed: int | None,
    really: bool,
) -> list[str]:
    """Forgets old runs of an experiment, the jobs stay; returns their ids, oldest first.

    `ExperimentLocked` if the experiment runs.
    """
    with contextlib.ExitStack() as held:
        if really:
            held.callback(lock_experiment(view.machine, view.layout, experiment_id).close)
        finished = [
            FinishedRun(run.run_id, failed=run.state.value != "done")
            for run in view.runs(experiment_id)
            if not run.live
        ]
        pruned = runs_to_prune(finished, max_done=max_done, max_failed=max_failed)
        if really:
            for run_id in pruned:
                directory = view.layout.run(experiment_id, run_id).directory
                trash.discard(view.machine, view.layout, directory)
            trash.empty(view.machine, view.layout)
    return pruned


def failed_jobs(view: WorkspaceView, name: str | None) -> list[JobKey]:
    """The failed jobs of a run, or of the last run of each experiment."""
    found = [job.key for run in view.find_runs(name) for job in view.jobs(run) if job.state is JobState.ERROR]
    return list(dict.fromkeys(found))
