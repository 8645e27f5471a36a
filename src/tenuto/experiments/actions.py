"""What a person does to a workspace from another process: kill jobs, delete them, prune runs.
Each action takes the lock of what it changes, or names the attempt it means, so a stale wish does nothing.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Collection, Iterable
from enum import Enum, unique
from typing import NamedTuple

from tenuto.errors import TenutoError
from tenuto.experiments.history import FinishedRun, runs_to_prune
from tenuto.experiments.locking import lock_experiment
from tenuto.experiments.stored import JobKey
from tenuto.experiments.view import WorkspaceView
from tenuto.launchers.instructions import GRACE_S, Instructions
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.workspace import job_directory, journal, trash
from tenuto.workspace.derive import derive_state
from tenuto.workspace.derive_table import Action
from tenuto.workspace.ports import FileKind, Machine, ProcessHandle
from tenuto.workspace.records import LaunchRecord, PidRecord, StopRecord

_MOST_ENTRIES = 200_000


@unique
class Outcome(Enum):
    """What became of an action on one job."""

    ASKED = "asked to stop"
    NOT_RUNNING = "not running"
    STALE = "another attempt runs by now"
    ELSEWHERE = "runs on another machine"
    STARTING = "is being started"
    DELETED = "deleted"
    WOULD_DELETE = "would be deleted"
    IN_USE = "in use"
    GONE = "gone already"


class Acted(NamedTuple):
    """One job, and what was done to it."""

    key: JobKey
    outcome: Outcome
    detail: str = ""
    attempt: int = 0
    size: int = 0
    """Bytes of its directory, where it was deleted or would be."""


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


# Deleting


def delete(view: WorkspaceView, keys: Iterable[JobKey], *, really: bool) -> list[Acted]:
    """Deletes the directories of jobs; without `really` only says what would happen.

    Spared is what runs, what somebody has locked, and what a live run asked for.
    """
    wanted_by_runs = view.listed(live_only=True)
    acted = [_delete(view, key, wanted_by_runs, really=really) for key in keys]
    if really:
        empty_trash(view)
    return acted


def empty_trash(view: WorkspaceView) -> None:
    """Deletes what was moved to the trash; what another process is deleting too is left to it."""
    with contextlib.suppress(FileNotFoundError):
        trash.empty(view.machine.files, view.layout)


def _delete(view: WorkspaceView, key: JobKey, wanted: Collection[JobKey], *, really: bool) -> Acted:
    machine, paths = view.machine, view.layout.job(*key)
    if key in wanted:
        return Acted(key, Outcome.IN_USE, "a live run asked for it")
    if not is_real_directory(machine, paths.directory):
        return Acted(key, Outcome.GONE, "it has no directory")
    try:
        size = directory_size(machine, paths.directory)
        if not really:
            found = job_directory.look(machine, paths)
            if _in_use(found.derived.action) or machine.locks.is_locked(paths.lock):
                return Acted(key, Outcome.IN_USE, f"it is {found.derived.state.name.lower()}")
            return Acted(key, Outcome.WOULD_DELETE, size=size)
        lock = machine.locks.try_lock(paths.lock)
        if lock is None:
            return Acted(key, Outcome.IN_USE, "it is locked: it runs, or is about to")
        with contextlib.closing(lock):
            # A held lock is not enough: with its lock file replaced a job can run unlocked, and a cluster's
            # job may have no process here at all.
            derived = derive_state(job_directory.read_evidence(machine, paths, lock=lock))
            if _in_use(derived.action):
                return Acted(key, Outcome.IN_USE, derived.message or f"it is {derived.state.name.lower()}")
            if trash.discard(machine.files, view.layout, paths.directory, machine.randomness) is None:
                return Acted(key, Outcome.GONE)
        journal.discard(machine.files, view.layout.job_journal(*key))
    except (OSError, TenutoError) as error:
        return Acted(key, Outcome.IN_USE, f"it cannot be deleted: {error}")
    return Acted(key, Outcome.DELETED, size=size)


def _in_use(action: Action) -> bool:
    return action in (Action.WATCH, Action.SWEEP)


def is_real_directory(machine: Machine, path: str) -> bool:
    """Whether a directory lies there, and not a link to one."""
    found = machine.files.stat(path)
    return found is not None and found.kind is FileKind.DIRECTORY


def directory_size(machine: Machine, path: str) -> int:
    """The bytes of all files below a directory, without following links; of very many files, a part."""
    size = entries = 0
    pending = [path]
    while pending and entries < _MOST_ENTRIES:
        directory = pending.pop()
        try:
            names = machine.files.list(directory)
        except OSError:
            continue  # gone meanwhile, or not ours to see
        for name in names:
            entries += 1
            found = machine.files.stat(f"{directory}/{name}")
            if found is not None and found.kind is FileKind.DIRECTORY:
                pending.append(f"{directory}/{name}")
            elif found is not None:
                size += found.size
    return size


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
                trash.discard(view.machine.files, view.layout, directory, view.machine.randomness)
            empty_trash(view)
    return pruned


def failed_jobs(view: WorkspaceView, name: str | None) -> list[JobKey]:
    """The failed jobs of a run, or of the last run of each experiment."""
    found = [job.key for run in view.find_runs(name) for job in view.jobs(run) if job.state is JobState.ERROR]
    return list(dict.fromkeys(found))
