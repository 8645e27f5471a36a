"""Deleting the directories of jobs: under their locks, by one rename, and never what somebody uses.
Which jobs, and who counts as a user, is its callers' business.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice

from tenuto.errors import TenutoError
from tenuto.experiments.outcomes import Acted, Outcome
from tenuto.experiments.stored import JobKey
from tenuto.experiments.users import users
from tenuto.experiments.view import WorkspaceView
from tenuto.workspace import job_directory, journal, trash
from tenuto.workspace.derive import derive_state
from tenuto.workspace.derive_table import Action
from tenuto.workspace.ports import FileKind, LockHandle, Machine

_MOST_ENTRIES = 200_000
_AT_ONCE = 100
"""Jobs whose locks are held while the lists of all runs are read."""

Users = Callable[[WorkspaceView, Collection[JobKey]], Mapping[JobKey, str]]
"""Of some jobs those that must stay, each with the reason."""


def delete(view: WorkspaceView, keys: Iterable[JobKey], *, really: bool) -> list[Acted]:
    """Deletes the directories of jobs; without `really` only says what would happen.

    Spared is what runs, what somebody has locked, what a live run asked for, and what a running job needs.
    """
    wanted = list(keys)
    sizes = {key: directory_size(view.machine, view.layout.job(*key).directory) for key in wanted}
    if really:
        acted = remove(view, wanted, users)
    else:
        used = users(view, wanted)
        acted = [_would_delete(view, key, used) for key in wanted]
    kept = (Outcome.DELETED, Outcome.WOULD_DELETE)
    return [one._replace(size=sizes[one.key]) if one.outcome in kept else one for one in acted]


def remove(view: WorkspaceView, keys: Iterable[JobKey], used: Users) -> list[Acted]:
    """Removes the directories of jobs that nobody uses, and empties the trash.

    The locks come first, then the question who uses the jobs. A scheduler does it the other way round: it
    lists a job that it found done as used, and then looks whether somebody has the lock. So one of the two
    sees the other, and a job is never taken from under a run that is about to use it.
    """
    acted: list[Acted] = []
    remaining = iter(keys)
    while batch := list(islice(remaining, _AT_ONCE)):
        with contextlib.ExitStack() as held:
            locks: dict[JobKey, LockHandle] = {}
            for key in batch:
                try:
                    found = _lock(view, key)
                except (OSError, TenutoError) as error:
                    found = _impossible(key, error)
                if isinstance(found, Acted):
                    acted.append(found)
                else:
                    held.callback(found.close)
                    locks[key] = found
            reasons = used(view, locks) if locks else {}
            acted += [_remove(view, key, lock, reasons) for key, lock in locks.items()]
    trash.empty(view.machine, view.layout)
    return acted


def _lock(view: WorkspaceView, key: JobKey) -> LockHandle | Acted:
    machine, paths = view.machine, view.layout.job(*key)
    if not is_real_directory(machine, paths.directory):
        return Acted(key, Outcome.GONE, "it has no directory")
    lock = machine.locks.try_lock(paths.lock)
    return Acted(key, Outcome.IN_USE, "it is locked: it runs, or is about to") if lock is None else lock


def _remove(view: WorkspaceView, key: JobKey, lock: LockHandle, reasons: Mapping[JobKey, str]) -> Acted:
    machine, paths = view.machine, view.layout.job(*key)
    if key in reasons:
        return Acted(key, Outcome.IN_USE, reasons[key])
    try:
        # A held lock is not enough: with its lock file replaced a job can run unlocked, and a cluster's
        # job may have no process here at all.
        derived = derive_state(job_directory.read_evidence(machine, paths, lock=lock))
        if _in_use(derived.action):
            return Acted(key, Outcome.IN_USE, derived.message or f"it is {derived.state.name.lower()}")
        # Before the rename: from then on somebody else may run the job, and write events.
        journal.discard(machine.files, view.layout.job_journal(*key))
        if trash.discard(machine, view.layout, paths.directory) is None:
            return Acted(key, Outcome.GONE)
    except (OSError, TenutoError) as error:
        return _impossible(key, error)
    return Acted(key, Outcome.DELETED)


def _would_delete(view: WorkspaceView, key: JobKey, used: Mapping[JobKey, str]) -> Acted:
    machine, paths = view.machine, view.layout.job(*key)
    if key in used:
        return Acted(key, Outcome.IN_USE, used[key])
    if not is_real_directory(machine, paths.directory):
        return Acted(key, Outcome.GONE, "it has no directory")
    try:
        found = job_directory.look(machine, paths)
        if _in_use(found.derived.action) or machine.locks.is_locked(paths.lock):
            return Acted(key, Outcome.IN_USE, f"it is {found.derived.state.name.lower()}")
    except (OSError, TenutoError) as error:
        return _impossible(key, error)
    return Acted(key, Outcome.WOULD_DELETE)


def _impossible(key: JobKey, error: Exception) -> Acted:
    return Acted(key, Outcome.IN_USE, f"it cannot be deleted: {error}")


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
