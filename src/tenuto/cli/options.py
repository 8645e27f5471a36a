"""Options that commands share, and the workspace that they lead to."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from tenuto.catalogue import Catalogue, has_databases
from tenuto.cli.console import note
from tenuto.errors import NotFound, SettingsError, TenutoError
from tenuto.experiments.workspace import last_workspace
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.directories import job_keys
from tenuto.jobs.notify import given_on_command_line
from tenuto.settings import Settings, load_settings
from tenuto.settings.search import SEARCH_FILE
from tenuto.settings.tree import imposed_notify
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine

LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""Hosts that only this machine reaches."""
MOST_LOOKED_AT = 1000
"""Entries of a directory called `jobs` that are looked at to see whether jobs are kept there."""

F = TypeVar("F", bound=Callable[..., Any])


def _complete_workspaces(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The workspaces that the settings name, and directories."""
    try:
        named = [name for name in load_settings().workspaces if name.startswith(incomplete)]
    except TenutoError:
        named = []  # a person is just typing
    return [*map(CompletionItem, named), CompletionItem(incomplete, type="dir")]


def workspace_option(command: F) -> F:
    """`-w`, `--workspace`."""
    return click.option(
        "-w",
        "--workspace",
        metavar="NAME|PATH",
        shell_complete=_complete_workspaces,
        help="The workspace: a name from the settings, or a path. By default the one around the working "
        "directory, the one that the settings name, the only one inside, or the last used from there.",
    )(command)


def json_option(command: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(command)


def notify_option(command: F) -> F:
    """`--notify`."""
    text = "Tell of the end, the first failure and a better best: POST there, or run a command."
    return click.option("--notify", metavar="URL|COMMAND", help=text)(command)


def impose_notify(given: str | None) -> None:
    """Has notices sent to where the command line says, in place of the settings."""
    settings = given_on_command_line(given)
    if settings is not None:
        imposed_notify.set(settings)


def given_without(
    arguments: Sequence[str], *, flags: Collection[str] = (), options: Collection[str] = ()
) -> list[str]:
    """What this program was called with, but for some flags, and some options with their values.

    `arguments`: a script's own, at the end of the command line, which may have options of the same names.
    """
    given = sys.argv[1:]
    end = len(given) - len(arguments)
    kept, left = [], iter(given[:end])
    for one in left:
        if one in options:
            next(left, None)
        elif one not in flags and one.partition("=")[0] not in options:
            kept.append(one)
    return [*kept, *given[end:]]


def exclusive(given: Mapping[str, object]) -> None:
    """Refuses options of which one at most may be given; `given`: name -> its value."""
    if sum(map(bool, given.values())) > 1:
        *names, last = given
        raise click.UsageError(f"{', '.join(names)} and {last} exclude each other")


def common_options(command: F) -> F:
    """`-w`, `--workspace` and `--json`, which nearly all commands have."""
    return workspace_option(json_option(command))


def yes_option(command: F) -> F:
    """`-y`, `--yes`."""
    return click.option("-y", "--yes", is_flag=True, help="Do it; without this, only say what would happen.")(
        command
    )


def looks_like_workspace(path: Path) -> bool:
    """Whether jobs were run there: by an experiment, a search or a node of the service.

    A directory that is called `jobs` is not enough: many have one.
    """
    if (path / SEARCH_FILE).is_file():
        return True
    if not (path / "jobs").is_dir():  # a run that has begun may have no job yet, or never
        return next(path.glob("experiments/*/*/status.json"), None) is not None
    if (path / "experiments").is_dir():
        return True
    files, layout = this_machine().files, Layout(str(path))
    some = (layout.job(*key) for key in islice(job_keys(files, layout.jobs), MOST_LOOKED_AT))
    # A job that is done may have nothing but its marker, its parameters and its lock.
    return any(files.stat(path) is not None for job in some for path in (job.private, job.done))


def workspace_path(given: str | None, settings: Settings, here: Path) -> Path:
    """The workspace that a command is about: given, around the working directory, from the settings, one
    level down, or the last used from here."""
    if given is None:
        for path in (here, *here.parents):
            if looks_like_workspace(path):
                return path
    try:
        return Path(os.path.abspath(settings.workspace(given)))
    except SettingsError as error:
        return _nearby(here, error)


def _nearby(here: Path, error: SettingsError) -> Path:
    """The only workspace in a directory, or the last used from there."""
    inside = [path for path in _directories(here) if looks_like_workspace(path)]
    if len(inside) == 1:
        return inside[0]
    last = last_workspace(this_machine().files, here)
    if last is not None and looks_like_workspace(last):
        return last
    if inside:
        names = ", ".join(path.name for path in inside[:10])
        raise NotFound(f"{len(inside)} workspaces are here ({names}): choose one, as in -w {inside[0].name}")
    raise NotFound(
        f"no workspace here ({here}): use -w or TENUTO_DEFAULT_WORKSPACE=./path, go into one, or "
        'write default_workspace = "main" and [workspaces.main] path = "..." into tenuto.toml'
    ) from error


def _directories(here: Path) -> list[Path]:
    try:
        with os.scandir(here) as entries:
            names = [entry.name for entry in islice(entries, MOST_LOOKED_AT) if entry.is_dir()]
    except OSError:
        return []
    return [here / name for name in sorted(names)]


def open_workspace(given: str | None, settings: Settings | None = None) -> WorkspaceView:
    """A view of that workspace; `NotFound` if there is none."""
    settings = settings or load_settings()
    path = workspace_path(given, settings, Path.cwd())
    if not looks_like_workspace(path):
        known = ", ".join(settings.workspaces) or "none"
        raise NotFound(
            f"{path} is not a workspace: no job was ever run there; give another with -w "
            f"(named in the settings: {known}), or run an experiment there first"
        )
    return WorkspaceView(Layout(str(path)), this_machine())


def open_catalogue(given: str | None, settings: Settings | None = None) -> Catalogue:
    """The jobs of that workspace, and of the services and searches that the settings name.

    `NotFound` if there is neither. It is closed with the command.
    """
    settings = settings or load_settings()
    try:
        view = open_workspace(given, settings)
    except NotFound as error:
        database = settings.service.database
        if not has_databases(settings):
            if isinstance(database, Path) and database.exists():
                raise NotFound(
                    f"{error}; for the jobs of the service of {database}, write [service] database = "
                    f'"{database}" into tenuto.toml'
                ) from None
            raise
        path = Path.cwd() if given is None else Path(settings.workspace(given))
        view = WorkspaceView(Layout(os.path.abspath(path)), this_machine())
    catalogue = Catalogue(view, settings=settings)
    click.get_current_context().call_on_close(catalogue.close)
    for kind, package in catalogue.missing.items():
        note(f"jobs of a {kind} are not shown: {package} is missing: pip install 'tenuto[{kind}]'")
    return catalogue
