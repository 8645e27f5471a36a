"""The opening of a run: the workspace's root, the experiment's lock, a free id, the recorded environment.
Says what is wrong with a disk that does not take it, and what a person can do about that.
Submits nothing.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tenuto.errors import DirectoryUnusable, ParameterError
from tenuto.experiments.environment import DirtyGitAction, capture, check_dirty_git, forget
from tenuto.experiments.reporter import say
from tenuto.experiments.run import Run
from tenuto.experiments.run_record import free_run_id, wait_for_lock
from tenuto.experiments.workspace import Workspace, make_root, remember_workspace
from tenuto.scheduler.base import Scheduler
from tenuto.settings import Settings, process_environment
from tenuto.workspace.layout import RunPaths

if TYPE_CHECKING:
    from tenuto.experiments.experiment import experiment

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM)


class RunOpening(NamedTuple):
    """What an experiment opens its run with."""

    scheduler: Scheduler
    settings: Settings
    workspace: Workspace
    name: str
    """The experiment's."""
    project_paths: Sequence[Path]
    """Directories whose git state is recorded."""
    dirty_git: DirtyGitAction
    wait_for_lock_s: float

    def open(self, held: contextlib.ExitStack, *, fails_fast: bool) -> Run:
        """The new run; `held` closes the experiment's lock. A run that cannot be made leaves no directory."""
        machine, layout = self.scheduler.machine, self.workspace.layout
        make_root(machine.files, layout.root, self.settings.workspace_group)
        lock = wait_for_lock(machine, layout, self.name, self.wait_for_lock_s, say)
        held.callback(lock.close)
        run_id = str(free_run_id(machine.clock.now(), machine.files.list(layout.experiment(self.name))))
        paths = layout.run(self.name, run_id)
        with contextlib.ExitStack() as undo:
            undo.callback(machine.files.remove_tree, paths.directory)
            self._record_environment(paths)
            run = Run(self.scheduler, layout, self.name, run_id, fails_fast=fails_fast)
            undo.pop_all()
        remember_workspace(machine.files, self.workspace.path)
        self.scheduler.experiments[self.name] = run
        return run

    def _record_environment(self, run: RunPaths) -> None:
        forget()
        state = capture(self.project_paths, process_environment(), self.settings.environment.allow)
        files = self.scheduler.machine.files
        files.make_directory(run.directory)
        files.replace(run.environment, json.dumps(state.as_json(), indent=1).encode(), durable=False)
        warning = check_dirty_git(state, self.dirty_git)
        if warning is not None:
            say(warning)


@contextlib.contextmanager
def disk_explained(root: str, consequence: str) -> Iterator[None]:
    """Words an error of a disk: which directory cannot be used, and what follows for the run."""
    try:
        yield
    except OSError as error:
        raise DirectoryUnusable(
            f"{worded_error(error, root)} ({error.strerror or error}); {consequence}"
        ) from error


def worded_error(error: OSError, directory: str) -> str:
    """What an error says of a directory that was to be used."""
    place = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else directory
    if error.errno in _FULL:
        return (
            f"DISK_FULL: {place} cannot be written: {_disk(directory)} is full, or your quota of it. Remove "
            f"what is not needed, as by `tenuto clean --orphans -w {directory}`, and run it again"
        )
    if error.errno == errno.EROFS:
        disk = _disk(directory)
        return f"{place} cannot be written: {disk} is read-only: use another workspace, or have it remounted"
    if error.errno in _FORBIDDEN:
        return (
            f"{place} cannot be written: {_rights(place)}: use another workspace, or have its "
            f"owner share it with a group of yours, see workspace_group in docs/settings.md"
        )
    return f"{place} cannot be used: {error.strerror}: use another workspace"


def _disk(path: str) -> str:
    """The disk that a path lies on, by where it is mounted, and what it has left."""
    known = _existing(path)
    mounted = known
    while not os.path.ismount(mounted) and mounted != "/":
        mounted = os.path.dirname(mounted)
    with contextlib.suppress(OSError):
        found = os.statvfs(known)
        free = found.f_bavail * found.f_frsize
        return f"the disk at {mounted} ({free // 2**20} MiB and {found.f_favail} files left)"
    return f"the disk at {mounted}"


def _rights(path: str) -> str:
    known = _existing(path)
    with contextlib.suppress(OSError):
        found = os.stat(known)
        mode = stat.filemode(found.st_mode)
        return f"{known} belongs to user {found.st_uid} ({mode}), and you are user {os.geteuid()}"
    return "you have no right to"


def _existing(path: str) -> str:
    """The nearest directory above a path that is there."""
    known = os.path.abspath(path)
    while not os.path.exists(known) and known != "/":
        known = os.path.dirname(known)
    return known


def check_agreement(xp: experiment, others: Iterable[experiment]) -> None:
    """An experiment that makes identities in another way than an open experiment is refused.

    Whether paths count is a switch of the process: experiments that are open together must agree.
    """
    for other in others:
        if other.settings.count_paths is not xp.settings.count_paths:
            raise ParameterError(
                f"experiments {other.name!r} and {xp.name!r} are open together and do not agree on "
                f"count_paths: leave the first one before, or give both the same setting"
            )
