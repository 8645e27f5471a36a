"""What ends a job: the stop of its runner, from any process; the removal of its directory, by one rename.
A removal happens under the job's lock, and never while a job is used: the caller says which are.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from tenuto.errors import TenutoError
from tenuto.jobs.directories import JobActed, Seen, directory_size, is_real_directory, job_files, stale
from tenuto.jobs.key import JobKey
from tenuto.jobs.source import ActedAs
from tenuto.jobs.text import counted
from tenuto.jobs.validity import note_dropped
from tenuto.jobs.view import JobsView
from tenuto.launchers.instructions import GRACE_S, Instructions
from tenuto.lifecycle.states import JobFailureStatus, JobState, StateRecord
from tenuto.workspace import job_directory, journal, packs, trash
from tenuto.workspace.claims import Claimer, claim
from tenuto.workspace.derive import derive_state
from tenuto.workspace.derive_table import Action
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.markers import Marker, read_markers
from tenuto.workspace.ports import LockHandle, Machine, ProcessHandle
from tenuto.workspace.records import LaunchRecord, PidRecord, StatusRecord, StopRecord

_AT_ONCE = 100
"""Jobs whose locks are held while the lists of all runs are read."""

_LOOK_AGAIN_S = 0.01
_UNSEEN: Seen = {}

Held = Mapping[JobKey, LockHandle | None]
"""Jobs that are to go, with their locks where the remover has them."""
Keepers = Callable[[Held], Mapping[JobKey, str]]
"""Says which of some jobs must stay, each with the reason."""


def no_keeper(keys: Held) -> Mapping[JobKey, str]:
    """For jobs that only their owner knows: none must stay."""
    return {}


def delete(
    view: JobsView, keys: Iterable[JobKey], *, really: bool, used: Keepers, seen: Seen = _UNSEEN
) -> list[JobActed]:
    """Deletes the directories of jobs; without `really` only says what would happen.

    A job that runs, is locked by another process, is `used`, or has been tried again since it was
    `seen` is spared.
    """
    wanted = list(keys)
    sizes = {key: directory_size(view.machine.files, view.layout.job(*key).directory) for key in wanted}
    if really:
        acted = remove(view, wanted, used, seen)
    else:
        reasons = used(dict.fromkeys(wanted))
        acted = [_would_delete(view, key, reasons, seen) for key in wanted]
    return [one._replace(size=sizes[one.key]) if one.outcome.acts else one for one in acted]


def drop_files(
    view: JobsView, keys: Iterable[JobKey], *, really: bool, used: Keepers, seen: Seen = _UNSEEN
) -> list[JobActed]:
    """Deletes what tasks that are done left in their directories; result, parameters, logs and record stay.

    The record names the files, so that the job stays valid; it is run again if a job that runs depends on it.
    The same jobs are spared as by `delete`, and unfinished jobs.
    """
    acted: list[JobActed] = []
    for key in keys:
        with contextlib.ExitStack() as held:
            lock = lock_job(view, key, held, 0.0, unpacks=really)
            reasons = used({key: None if isinstance(lock, JobActed) else lock})
            if key in reasons and not (isinstance(lock, JobActed) and lock.outcome is ActedAs.GONE):
                acted.append(JobActed(key, ActedAs.IN_USE, reasons[key]))
            elif isinstance(lock, JobActed):
                acted.append(lock)
            else:
                acted.append(_drop(view, key, really, seen))
    return acted


def _drop(view: JobsView, key: JobKey, really: bool, seen: Seen) -> JobActed:
    """Deletes the files of a job that the caller has locked: first the record names them."""
    files, paths = view.machine.files, view.layout.job(*key)
    try:
        derived = job_directory.look(view.machine, paths, ask=view.inquiry).derived
        if derived.state is not JobState.DONE:
            return JobActed(key, ActedAs.REFUSED, "it is not done: its files may be all there is of it")
        if (other := _stale(view, key, seen, derived.attempt)) is not None:
            return other
        if files.stat(paths.task_outputs) is not None:
            return JobActed(
                key, ActedAs.REFUSED, "jobs use outputs that it handed over, and would not wait for it"
            )
        results = f"{paths.script_name}.result-"
        made = [
            one for one in job_files(files, paths) if one.made_by_task and not one.path.startswith(results)
        ]
        if not made:
            return JobActed(key, ActedAs.GONE, "it left no files")
        size = sum(one.size for one in made)
        if really:
            roots = sorted({one.path.partition("/")[0] for one in made})
            note_dropped(files, paths, roots)
            for name in roots:
                trash.discard(view.machine, view.layout, f"{paths.directory}/{name}")
            trash.empty(view.machine, view.layout)
    except (OSError, TenutoError) as error:
        return impossible(key, error)
    detail = f"{counted(len(made), 'file')}; its result stays"
    return JobActed(key, ActedAs.DELETED if really else ActedAs.WOULD_DELETE, detail, size=size)


def remove(
    view: JobsView, keys: Iterable[JobKey], used: Keepers, seen: Seen = _UNSEEN, *, patience_s: float = 0.0
) -> list[JobActed]:
    """Removes the directories of jobs that are not `used`, and empties the trash.

    `patience_s`: how long it waits, for all of them together, for jobs that another process has locked.

    The locks come first, then the question which jobs are in use. A scheduler does it the other way round: it
    lists a job that it found done as used, and then looks whether another process has the lock. So one
    sees the other, and a job is never taken from under a run that is about to use it.
    """
    acted: list[JobActed] = []
    give_up = view.machine.clock.monotonic() + patience_s
    remaining = iter(keys)
    while batch := list(islice(remaining, _AT_ONCE)):
        with contextlib.ExitStack() as held:
            locks = {key: lock_job(view, key, held, give_up) for key in batch}
            reasons = used({key: None if isinstance(lock, JobActed) else lock for key, lock in locks.items()})
            acted += [_remove(view, key, lock, reasons, seen) for key, lock in locks.items()]
    trash.empty(view.machine, view.layout)
    return acted


def lock_job(
    view: JobsView,
    key: JobKey,
    held: contextlib.ExitStack,
    give_up: float,
    *,
    unpacks: bool = False,
    packs_it: bool = False,
) -> LockHandle | JobActed:
    """The lock of a job that is there, for as long as it is `held`; or why it cannot be had.

    A packed job is put back if the caller `unpacks`; no directory is made for a caller that packs it.
    """
    machine, paths = view.machine, view.layout.job(*key)

    def taken() -> LockHandle | None:
        if not packs_it and (unpacks or packs.is_packed(machine.files, paths.directory)):
            return job_directory.take_lock(machine, paths, unpacks=unpacks)
        return machine.locks.try_lock(paths.lock)

    try:
        if not is_real_directory(machine.files, paths.directory):
            return JobActed(key, ActedAs.GONE, "it has no directory")
        while (lock := taken()) is None and machine.clock.monotonic() < give_up:
            time.sleep(_LOOK_AGAIN_S)
    except FileNotFoundError:
        is_packed = packs.is_packed(machine.files, paths.directory)
        return JobActed(key, ActedAs.GONE, "it is packed already" if is_packed else "it has no directory")
    except (OSError, TenutoError) as error:
        return impossible(key, error, "packed" if packs_it else "deleted")
    if lock is None:
        return JobActed(key, ActedAs.IN_USE, "it is locked: it runs, or is about to")
    held.callback(lock.close)
    return lock


def _remove(
    view: JobsView, key: JobKey, lock: LockHandle | JobActed, reasons: Mapping[JobKey, str], seen: Seen
) -> JobActed:
    machine, paths = view.machine, view.layout.job(*key)
    if isinstance(lock, JobActed) and lock.outcome is ActedAs.GONE:
        return lock
    if key in reasons:
        return JobActed(key, ActedAs.IN_USE, reasons[key])
    if isinstance(lock, JobActed):
        return lock
    try:
        # A held lock is not enough: with its lock file replaced a job can run unlocked, and a cluster's
        # job may have no process here at all.
        derived = derive_state(job_directory.read_evidence(machine, paths, lock=lock, ask=view.inquiry))
        if _in_use(derived.action):
            return JobActed(key, ActedAs.IN_USE, derived.message or f"it is {derived.state.name.lower()}")
        if (other := _stale(view, key, seen, derived.attempt)) is not None:
            return other
        # Before the rename: from then on another scheduler may run the job, and write events.
        journal.discard(machine.files, view.layout.job_journal(*key))
        packs.forget_job(machine, paths)
        if trash.discard(machine, view.layout, paths.directory) is None:
            return JobActed(key, ActedAs.GONE)
    except (OSError, TenutoError) as error:
        return impossible(key, error)
    return JobActed(key, ActedAs.DELETED)


def _stale(view: JobsView, key: JobKey, seen: Seen, attempt: int) -> JobActed | None:
    """As `stale`; a list may show the marker of the attempt before where a crash left that one."""
    other = stale(key, seen, attempt)
    return other and stale(key, seen, view.look(key).attempt) and other


def _would_delete(view: JobsView, key: JobKey, used: Mapping[JobKey, str], seen: Seen) -> JobActed:
    machine, paths = view.machine, view.layout.job(*key)
    if key in used:
        return JobActed(key, ActedAs.IN_USE, used[key])
    if not is_real_directory(machine.files, paths.directory):
        return JobActed(key, ActedAs.GONE, "it has no directory")
    try:
        found = job_directory.look(machine, paths, ask=view.inquiry)
        if _in_use(found.derived.action) or machine.locks.is_locked(paths.lock):
            return JobActed(key, ActedAs.IN_USE, f"it is {found.derived.state.name.lower()}")
        if (other := _stale(view, key, seen, found.derived.attempt)) is not None:
            return other
    except (OSError, TenutoError) as error:
        return impossible(key, error)
    return JobActed(key, ActedAs.WOULD_DELETE)


def impossible(key: JobKey, error: Exception, what: str = "deleted") -> JobActed:
    """What becomes of a job whose files refuse it."""
    return JobActed(key, ActedAs.IN_USE, f"it cannot be {what}: {error}")


def _in_use(action: Action) -> bool:
    return action in (Action.WATCH, Action.SWEEP)


class Killing(NamedTuple):
    """A job that was asked to stop, with a handle on its runner to wait by; the caller closes it."""

    acted: JobActed
    runner: ProcessHandle | None = None
    grace_s: float = GRACE_S
    """How long the runner lets it end by itself."""
    elsewhere: JobPaths | None = None
    """The job, if its runner is on another host: then its marker tells of the end."""


def kill(
    view: JobsView, key: JobKey, message: str, *, attempt: int | None = None, really: bool = True
) -> Killing:
    """Asks the runner of a job to end it: the request is written down first, then the runner is told.

    `attempt`: what the person saw running; a later attempt is left alone. Without `really` nothing is done.
    """
    machine, paths = view.machine, view.layout.job(*key)
    if not is_real_directory(machine.files, paths.directory):
        return Killing(JobActed(key, ActedAs.GONE, "it has no directory"))
    found = job_directory.look(machine, paths, ask=view.inquiry)
    launch, pid = found.evidence.launch, found.evidence.pid
    now = found.derived.attempt
    if attempt is not None and (other := stale(key, {key: attempt}, now)):
        return Killing(other)
    if isinstance(launch, LaunchRecord) and launch.external and found.derived.action is Action.WATCH:
        if attempt is not None and attempt != now:
            return Killing(JobActed(key, ActedAs.STALE, f"attempt {now} runs, not {attempt}", now))
        if not really:
            return Killing(JobActed(key, ActedAs.WOULD_KILL, f"attempt {now}, by {launch.launcher}", now))
        return _kill_elsewhere(view, key, launch, message)
    if not found.derived.state.running():
        return Killing(JobActed(key, ActedAs.NOT_RUNNING, f"it is {found.derived.state.name.lower()}", now))
    if (
        not isinstance(pid, PidRecord)
        or not isinstance(launch, LaunchRecord)
        or pid.attempt != launch.attempt
    ):
        return Killing(JobActed(key, ActedAs.STARTING, "its runner is not known yet: try again", now))
    # The handle is of exactly that process. If the attempt ends meanwhile the signal is lost, and a
    # request that names an ended attempt is never heard.
    runner = machine.processes.open(pid.identity)
    if runner is None:
        where = f"kill it on {pid.identity.host}" if pid.identity.host != machine.processes.own().host else ""
        outcome = ActedAs.ELSEWHERE if where else ActedAs.NOT_RUNNING
        return Killing(JobActed(key, outcome, where or "its runner has just ended", now))
    if not really:
        runner.close()
        return Killing(JobActed(key, ActedAs.WOULD_KILL, f"attempt {now}", now))
    try:
        runner.send_signal(0)  # asks only for the right to send one
    except PermissionError:
        runner.close()
        told = f"process {pid.identity.pid} is another user's: only that user can stop it"
        return Killing(JobActed(key, ActedAs.REFUSED, told, now))
    stop = StopRecord(pid.attempt, JobFailureStatus.CANCELLED, machine.clock.now(), message)
    try:
        job_directory.request_stop(machine.files, paths, stop)
        is_told = runner.send_signal(signal.SIGTERM)
    except FileNotFoundError:  # its runner has just tidied the directory up
        is_told = False
    if not is_told:
        runner.close()
        return Killing(JobActed(key, ActedAs.NOT_RUNNING, "it has just ended", now))
    acted = JobActed(key, ActedAs.ASKED, f"attempt {now}, process {pid.identity.pid}", now)
    return Killing(acted, runner, _grace_s(launch))


def _kill_elsewhere(view: JobsView, key: JobKey, launch: LaunchRecord, message: str) -> Killing:
    """Ends an attempt that a cluster has: an attempt that has not begun is revoked and marked at once."""
    machine, paths = view.machine, view.layout.job(*key)
    stop = StopRecord(launch.attempt, JobFailureStatus.CANCELLED, machine.clock.now(), message)
    job_directory.request_stop(machine.files, paths, stop)
    is_revoked = claim(machine, paths, launch.nonce, Claimer.SCHEDULER)
    view.inquiry.clusters.stop(paths, launch)
    if is_revoked:
        _mark(view, key, launch, stop)
        return Killing(
            JobActed(key, ActedAs.ASKED, f"attempt {launch.attempt}, before it began", launch.attempt)
        )
    acted = JobActed(key, ActedAs.ASKED, f"attempt {launch.attempt}, by {launch.launcher}", launch.attempt)
    return Killing(acted, None, _grace_s(launch), paths)


def _mark(view: JobsView, key: JobKey, launch: LaunchRecord, stop: StopRecord) -> None:
    """Writes the marker of an attempt that no runner will ever begin, unless a scheduler is about to."""
    machine, paths = view.machine, view.layout.job(*key)
    lock = job_directory.take_lock(machine, paths)
    if lock is None:
        return
    with contextlib.closing(lock):
        current = job_directory.read_launch(machine.files, paths)
        if current is None or current.nonce != launch.nonce or has_ended(machine, paths, launch.attempt):
            return
        now = machine.clock.now()
        marker = Marker(launch.attempt, launch.nonce, reason=stop.reason, message=stop.message, endtime=now)
        record = StateRecord(JobState.ERROR, stop.reason, stop.message, endtime=now)
        status = StatusRecord(key.job_id, key.task_id, record, launch.attempt, launch.retry_count)
        job_directory.finish(machine.files, paths, marker, status)


def has_ended(machine: Machine, paths: JobPaths, attempt: int) -> bool:
    """True if an attempt has left its marker."""
    found = read_markers(machine.files, paths)
    return any(isinstance(one, Marker) and one.attempt == attempt for one in found)


def _grace_s(launch: LaunchRecord) -> float:
    try:
        return Instructions.of(launch).limits.grace_s
    except (ValueError, TypeError, KeyError):
        return GRACE_S
