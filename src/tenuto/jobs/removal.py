"""The removal of jobs' directories: under their locks, by one rename, and never while a job is used.
The caller says which jobs, and which of them are in use.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from tenuto.errors import TenutoError
from tenuto.jobs.directories import (
    JobActed,
    Outcome,
    Seen,
    directory_size,
    is_real_directory,
    job_files,
    stale,
)
from tenuto.jobs.key import JobKey
from tenuto.jobs.text import counted
from tenuto.jobs.validity import note_dropped
from tenuto.jobs.view import JobsView
from tenuto.lifecycle.states import JobState
from tenuto.workspace import job_directory, journal, packs, trash
from tenuto.workspace.derive import derive_state
from tenuto.workspace.derive_table import Action
from tenuto.workspace.ports import LockHandle

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

    What runs, what another process has locked, what is `used`, and what has been tried again since it was
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
    The same jobs are spared as by `delete`, and those that are not done.
    """
    acted: list[JobActed] = []
    for key in keys:
        with contextlib.ExitStack() as held:
            lock = lock_job(view, key, held, 0.0, unpacks=really)
            reasons = used({key: None if isinstance(lock, JobActed) else lock})
            if key in reasons and not (isinstance(lock, JobActed) and lock.outcome is Outcome.GONE):
                acted.append(JobActed(key, Outcome.IN_USE, reasons[key]))
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
            return JobActed(key, Outcome.REFUSED, "it is not done: its files may be all there is of it")
        if (other := _stale(view, key, seen, derived.attempt)) is not None:
            return other
        if files.stat(paths.task_outputs) is not None:
            return JobActed(
                key, Outcome.REFUSED, "jobs use outputs that it handed over, and would not wait for it"
            )
        results = f"{paths.script_name}.result-"
        made = [
            one for one in job_files(files, paths) if one.made_by_task and not one.path.startswith(results)
        ]
        if not made:
            return JobActed(key, Outcome.GONE, "it left no files")
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
    return JobActed(key, Outcome.DELETED if really else Outcome.WOULD_DELETE, detail, size=size)


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
    view: JobsView, key: JobKey, held: contextlib.ExitStack, give_up: float, *, unpacks: bool = False
) -> LockHandle | JobActed:
    """The lock of a job that is there, for as long as it is `held`; or why it cannot be had."""
    machine, paths = view.machine, view.layout.job(*key)

    def taken() -> LockHandle | None:
        if unpacks or packs.is_packed(machine.files, paths.directory):
            return job_directory.take_lock(machine, paths, unpacks=unpacks)
        return machine.locks.try_lock(paths.lock)

    try:
        if not is_real_directory(machine.files, paths.directory):
            return JobActed(key, Outcome.GONE, "it has no directory")
        while (lock := taken()) is None and machine.clock.monotonic() < give_up:
            time.sleep(_LOOK_AGAIN_S)
    except (OSError, TenutoError) as error:
        return impossible(key, error)
    if lock is None:
        return JobActed(key, Outcome.IN_USE, "it is locked: it runs, or is about to")
    held.callback(lock.close)
    return lock


def _remove(
    view: JobsView, key: JobKey, lock: LockHandle | JobActed, reasons: Mapping[JobKey, str], seen: Seen
) -> JobActed:
    machine, paths = view.machine, view.layout.job(*key)
    if isinstance(lock, JobActed) and lock.outcome is Outcome.GONE:
        return lock
    if key in reasons:
        return JobActed(key, Outcome.IN_USE, reasons[key])
    if isinstance(lock, JobActed):
        return lock
    try:
        # A held lock is not enough: with its lock file replaced a job can run unlocked, and a cluster's
        # job may have no process here at all.
        derived = derive_state(job_directory.read_evidence(machine, paths, lock=lock, ask=view.inquiry))
        if _in_use(derived.action):
            return JobActed(key, Outcome.IN_USE, derived.message or f"it is {derived.state.name.lower()}")
        if (other := _stale(view, key, seen, derived.attempt)) is not None:
            return other
        # Before the rename: from then on another scheduler may run the job, and write events.
        journal.discard(machine.files, view.layout.job_journal(*key))
        packs.forget_job(machine, paths)
        if trash.discard(machine, view.layout, paths.directory) is None:
            return JobActed(key, Outcome.GONE)
    except (OSError, TenutoError) as error:
        return impossible(key, error)
    return JobActed(key, Outcome.DELETED)


def _stale(view: JobsView, key: JobKey, seen: Seen, attempt: int) -> JobActed | None:
    """As `stale`; a list may show the marker of the attempt before where a crash left that one."""
    other = stale(key, seen, attempt)
    return other and stale(key, seen, view.look(key).attempt) and other


def _would_delete(view: JobsView, key: JobKey, used: Mapping[JobKey, str], seen: Seen) -> JobActed:
    machine, paths = view.machine, view.layout.job(*key)
    if key in used:
        return JobActed(key, Outcome.IN_USE, used[key])
    if not is_real_directory(machine.files, paths.directory):
        return JobActed(key, Outcome.GONE, "it has no directory")
    try:
        found = job_directory.look(machine, paths, ask=view.inquiry)
        if _in_use(found.derived.action) or machine.locks.is_locked(paths.lock):
            return JobActed(key, Outcome.IN_USE, f"it is {found.derived.state.name.lower()}")
        if (other := _stale(view, key, seen, found.derived.attempt)) is not None:
            return other
    except (OSError, TenutoError) as error:
        return impossible(key, error)
    return JobActed(key, Outcome.WOULD_DELETE)


def impossible(key: JobKey, error: Exception, what: str = "deleted") -> JobActed:
    """What becomes of a job whose files refuse it."""
    return JobActed(key, Outcome.IN_USE, f"it cannot be {what}: {error}")


def _in_use(action: Action) -> bool:
    return action in (Action.WATCH, Action.SWEEP)
