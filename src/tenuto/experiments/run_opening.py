"""The opening of a run: the workspace's root, the experiment's lock, a free id, the recorded environment.
Submits nothing.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tenuto.errors import DirectoryUnusable, ParameterError
from tenuto.experiments.disk_errors import worded_error
from tenuto.experiments.environment import DirtyGitAction, capture, check_dirty_git, forget
from tenuto.experiments.experiment_lock import wait_for_lock
from tenuto.experiments.reporter import say
from tenuto.experiments.run import Run
from tenuto.experiments.run_id import free_run_id
from tenuto.experiments.workspace import Workspace, make_root, remember_workspace
from tenuto.scheduler.base import Scheduler
from tenuto.settings import Settings, process_environment
from tenuto.workspace.layout import RunPaths

if TYPE_CHECKING:
    from tenuto.experiments.experiment import experiment


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
