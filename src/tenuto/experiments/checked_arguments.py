"""The arguments of `experiment()` and `submit()`, checked and in one spelling before a run begins.
Looks at arguments, and at what the command line imposes in their place; opens and makes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from enum import Enum, unique
from pathlib import Path
from typing import Any

from tenuto.errors import ParameterError
from tenuto.experiments.workspace import Workspace
from tenuto.launchers.protocols import Launcher
from tenuto.launchers.selection import check_launcher
from tenuto.lifecycle.states import TransientMode
from tenuto.settings import Settings, load_settings
from tenuto.tasks.arguments import check_variable, member, refused, whole_number
from tenuto.tasks.ports import SubmitOptions


@unique
class RunMode(Enum):
    """What `submit()` leads to."""

    NORMAL = "jobs are run"
    DRY_RUN = "nothing is run or written: the plan is printed"
    GENERATE_ONLY = "job directories are written, ready to be run by hand"
    PREPARE = "only `Prepare` work is done, here and now"


imposed_rerun_filter: ContextVar[str | None] = ContextVar("tenuto_rerun", default=None)
"""The jobs that the command line has run again; None: as the script says."""
imposed_mode: ContextVar[RunMode | None] = ContextVar("tenuto_run_mode", default=None)
"""What the command line makes of every experiment that a script opens, whatever the script says."""
imposed_fail_fast: ContextVar[bool | None] = ContextVar("tenuto_fail_fast", default=None)
"""Set by `tenuto run --fail-fast`."""


def settings_of(given: Any) -> Settings:
    """The settings given; a dict is laid over the settings of this process; None means those."""
    if isinstance(given, Settings):
        return given
    if given is not None and not isinstance(given, Mapping):
        raise refused("experiment(settings=)", 'Settings, or a dict such as {"slots": 2}', given)
    return load_settings(dict(_flat(given or {})))


def _flat(given: Mapping[Any, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """``{"history": {"max_done": 3}}`` as ``history.max_done``."""
    for name, value in given.items():
        if not isinstance(name, str):
            raise refused("a key of experiment(settings=)", "the name of a setting", name)
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def workspace_of(given: Any, settings: Settings, what: str) -> Workspace:
    """A workspace, or the one of a name or path; an empty path would be the working directory."""
    if given is not None and not isinstance(given, Workspace | str | os.PathLike):
        raise refused(what, "a path, the name of a workspace, or a Workspace", given)
    if isinstance(given, str) and not given.strip():
        raise ParameterError(f'{what} is empty: give a path such as "workdir", or "." for this directory')
    if isinstance(given, os.PathLike):
        given = Path(os.fspath(given))
    return Workspace.named(given, settings)


def paths_of(given: Any, what: str) -> list[Path]:
    """Paths; a single one need not be in a list."""
    if isinstance(given, str | os.PathLike):
        return [Path(given)]
    try:
        return [Path(path) for path in given]
    except TypeError:
        raise refused(what, "paths", given) from None


def launcher_of(given: Any, what: str) -> Launcher | str | None:
    """A launcher, or the name of one."""
    if given is not None and not isinstance(given, str):
        if isinstance(given, type) or not callable(getattr(given, "start", None)):
            raise refused(what, 'a launcher, or the name of one such as "warm"', given)
        launcher: Launcher = given
        return launcher
    if isinstance(given, str):
        check_launcher(given)
    return given


def variable(name: Any, value: Any) -> str:
    """The text of a variable of a job; a number or a path is written as text."""
    is_written = isinstance(value, int | float | Path) and not isinstance(value, bool)
    try:
        check_variable(name, str(value) if is_written else value)
    except ValueError as error:
        raise ParameterError(f"setenv: {error}") from None
    return str(value)


_USUAL = SubmitOptions()


def checked(submission: SubmitOptions, settings: Settings) -> SubmitOptions:
    """A submission whose parts are what they should be; `ParameterError` names the wrong part."""
    if submission == _USUAL:
        return submission
    mode, transient, retries, workspace = (
        submission.run_mode,
        submission.transient,
        submission.max_retries,
        submission.workspace,
    )
    return submission._replace(
        launcher=launcher_of(submission.launcher, "submit(launcher=)"),
        workspace=None if workspace is None else workspace_of(workspace, settings, "submit(workspace=)"),
        run_mode=None if mode is None else member(RunMode, mode, "submit(run_mode=)"),
        max_retries=None if retries is None else whole_number(retries, "submit(max_retries=)"),
        transient=None if transient is None else member(TransientMode, transient, "submit(transient=)"),
    )
