"""The packing of jobs that ended: their directories go into one file of their task, and come out again.
The caller says which jobs, and which of them are in use; `workspace.packs` has the file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from itertools import islice

from tenuto.errors import TenutoError
from tenuto.jobs.directories import JobActed, Seen, entries, job_keys, stale
from tenuto.jobs.key import JobKey
from tenuto.jobs.removal import Keepers, impossible, lock_job
from tenuto.jobs.source import ActedAs
from tenuto.jobs.view import JobsView
from tenuto.workspace import job_directory, packs, trash
from tenuto.workspace.derive_table import Action
from tenuto.workspace.layout import directory_name
from tenuto.workspace.ports import DESCENDANTS_BYTE, LockHandle

_AT_ONCE = 200
"""Jobs whose locks are held while their records are written, and synced once for all of them."""


def pack(
    view: JobsView,
    keys: Iterable[JobKey],
    *,
    really: bool,
    used: Keepers,
    seen: Seen,
    patience_s: float = 0.0,
) -> list[JobActed]:
    """Packs jobs that ended; without `really` only says which.

    Spared is a job that is `used`, locked, or was tried again since it was `seen`; a job that left a
    large file, or much else than files, stays where it is, too. `patience_s`: how long locks are waited for.
    """
    acted: list[JobActed] = []
    give_up = view.machine.clock.monotonic() + patience_s
    remaining = iter(keys)
    touched: set[str] = set()
    while batch := list(islice(remaining, _AT_ONCE)):
        with contextlib.ExitStack() as held:
            locks = {
                key: lock_job(view, key, held, give_up, packs_it=True) if really else None for key in batch
            }
            reasons = used({key: None if isinstance(lock, JobActed) else lock for key, lock in locks.items()})
            records: dict[str, dict[JobKey, bytes]] = {}
            for key, lock in locks.items():
                one = lock if isinstance(lock, JobActed) else _record(view, key, lock, reasons, seen)
                if isinstance(one, bytes):
                    records.setdefault(view.layout.pack(key.task_id), {})[key] = one
                else:
                    acted.append(one)
            for path, made in records.items():
                acted += _packed(view, path, made, really)
                touched.add(path)
    if really:
        with contextlib.suppress(OSError, TenutoError):  # an index is never needed
            for path in touched:
                packs.keep_index(view.machine, path)
        _unlink(view, {one.key for one in acted if one.outcome is ActedAs.PACKED})
        trash.empty(view.machine, view.layout)
    return acted


def unpack(view: JobsView, keys: Iterable[JobKey], *, really: bool) -> list[JobActed]:
    """Puts jobs that are packed back into their directories."""
    acted = []
    for key in keys:
        paths = view.layout.job(*key)
        try:
            if not packs.is_packed(view.machine.files, paths.directory):
                continue
            is_locked = really and not job_directory.unpacked(view.machine, paths)
        except (OSError, TenutoError) as error:
            acted.append(impossible(key, error, "unpacked"))
            continue
        acted.append(
            JobActed(key, ActedAs.IN_USE, "it is locked")
            if is_locked
            else JobActed(key, ActedAs.UNPACKED if really else ActedAs.WOULD_UNPACK)
        )
    return acted


def _record(
    view: JobsView, key: JobKey, lock: LockHandle | None, reasons: Mapping[JobKey, str], seen: Seen
) -> JobActed | bytes:
    """The record of a job, whose lock the caller has; or why it is not packed."""
    machine, paths = view.machine, view.layout.job(*key)
    if key in reasons:
        return JobActed(key, ActedAs.IN_USE, reasons[key])
    try:
        if packs.is_packed(machine.files, paths.directory):
            if lock is not None:  # a packer was killed before it took the directory away
                trash.discard(machine, view.layout, paths.directory)
            return JobActed(key, ActedAs.GONE, "it is packed already")
        found = job_directory.look(machine, paths, ask=view.inquiry)
        derived = found.derived
        is_held = machine.locks.is_locked(paths.lock, DESCENDANTS_BYTE) or (
            lock is None and machine.locks.is_locked(paths.lock)
        )
        if derived.action is not Action.KEEP or derived.marker is None or is_held:
            state = derived.state.name.lower()
            return JobActed(key, ActedAs.IN_USE, "something of it runs" if is_held else f"it is {state}")
        if (other := stale(key, seen, derived.attempt)) is not None:
            return other
        if machine.files.stat(paths.aside) is not None:
            return JobActed(key, ActedAs.REFUSED, "what it had before is kept until it is done again")
        made = packs.record_of(machine.files, paths, int(machine.clock.now().timestamp() * 1e9))
    except (OSError, TenutoError) as error:
        return impossible(key, error, "packed")
    return made if isinstance(made, bytes) else JobActed(key, ActedAs.REFUSED, f"it stays: {made}")


def _packed(view: JobsView, path: str, made: Mapping[JobKey, bytes], really: bool) -> list[JobActed]:
    """Writes the records of jobs that the caller has locked; only then their directories go."""
    acted = []
    try:
        if really:
            packs.append(view.machine, path, made.values())
    except (OSError, TenutoError) as error:
        return [impossible(key, error, "packed") for key in made]
    for key, record in made.items():
        outcome = ActedAs.PACKED if really else ActedAs.WOULD_PACK
        try:
            if really:
                trash.discard(view.machine, view.layout, view.layout.job(*key).directory)
            acted.append(JobActed(key, outcome, size=len(record)))
        except OSError as error:  # it has two places then, which say the same
            acted.append(impossible(key, error, "taken out of its directory"))
    return acted


def _unlink(view: JobsView, gone: set[JobKey]) -> None:
    """Removes the links of runs, for people who look there, that lead to jobs that are packed."""
    files, layout = view.machine.files, view.layout
    for experiment in entries(files, layout.experiments) if gone else ():
        for run in entries(files, f"{layout.experiments}/{experiment}"):
            folder = f"{layout.experiments}/{experiment}/{run}/jobs"
            for key in [key for key in job_keys(files, folder) if key in gone]:
                with contextlib.suppress(OSError):
                    files.remove(f"{folder}/{directory_name(key.task_id)}/{key.job_id}")
