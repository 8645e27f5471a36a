"""`tenuto du`."""

from __future__ import annotations

from typing import NamedTuple

import click

from tenuto.cli.console import note, print_json, say, table
from tenuto.cli.options import common_options, open_catalogue
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.directories import entries, job_keys, subdirectories
from tenuto.jobs.drawing import Cell, Column
from tenuto.jobs.key import JobKey
from tenuto.jobs.text import counted, safe, size_text
from tenuto.workspace import packs
from tenuto.workspace.layout import name_of_directory
from tenuto.workspace.ports import FileKind, Files

_PREPARED = "prepared"
MOST_SHOWN = 20


class DiskSpace(NamedTuple):
    """Bytes and files."""

    size: int = 0
    files: int = 0

    def plus(self, other: DiskSpace) -> DiskSpace:
        return DiskSpace(self.size + other.size, self.files + other.files)


class DiskUsage(NamedTuple):
    """The size of a workspace, by purpose."""

    experiments: dict[str, DiskSpace]
    """Of the jobs of all runs of each, and its runs; a job of two experiments counts for both."""
    tasks: dict[str, DiskSpace]
    prepared: dict[str, DiskSpace]
    partials: dict[str, DiskSpace]
    cache: dict[str, DiskSpace]
    logs: DiskSpace
    """What jobs that are not packed printed; it is part of the tasks."""
    total: DiskSpace


@click.command()
@common_options
def command(workspace: str | None, as_json: bool) -> None:
    """Say what a workspace takes on the disk: by experiment and task; prepared and cached data; logs.

    Links are not followed; a packed job counts as its part of the pack. `tenuto clean` frees space.
    """
    view = open_catalogue(workspace).view
    usage = measured(view)
    if as_json:
        print_json(_plain(usage))
        return
    say(f"{safe(view.layout.root)}: {size_text(usage.total.size)} in {counted(usage.total.files, 'file')}")
    for title, found in usage._asdict().items():
        if isinstance(found, dict) and found:
            _show(title, found)
    note(f"{size_text(usage.logs.size)} of the tasks are logs")


def measured(view: WorkspaceView) -> DiskUsage:
    """The present sizes in a workspace."""
    files, layout = view.machine.files, view.layout
    jobs: dict[JobKey, DiskSpace] = {}
    tasks: dict[str, DiskSpace] = {}
    logs = DiskSpace()
    for key in job_keys(files, layout.jobs):
        paths = layout.job(*key)
        jobs[key] = _below(files, paths.directory)
        tasks[key.task_id] = tasks.get(key.task_id, DiskSpace()).plus(jobs[key])
        is_packed = packs.size_of(files, paths.directory) is not None
        for log in (paths.out, paths.err) if not is_packed else ():
            found = files.stat(log)
            logs = logs if found is None else logs.plus(DiskSpace(found.size, 1))
    asked: dict[str, set[JobKey]] = {}
    for run in view.all_runs():
        asked.setdefault(run.experiment_id, set()).update(view.asked_for(run))
    experiments = {
        name: sum_of([jobs.get(key, DiskSpace()) for key in keys], _below(files, layout.experiment(name)))
        for name, keys in asked.items()
    }
    prepared, partials = {}, {}
    for directory in subdirectories(files, layout.partials):
        name = name_of_directory(directory) or directory
        for kind in subdirectories(files, f"{layout.partials}/{directory}"):
            space = _below(files, f"{layout.partials}/{directory}/{kind}")
            if kind == _PREPARED and space.files:
                prepared[name] = space
            elif space.files:
                partials[f"{name}.{kind}"] = space
    cache = {
        name_of_directory(one) or one: _below(files, f"{layout.config}/{one}")
        for one in subdirectories(files, layout.config)
    }
    return DiskUsage(experiments, tasks, prepared, partials, cache, logs, _below(files, layout.root))


def sum_of(spaces: list[DiskSpace], first: DiskSpace) -> DiskSpace:
    """All of them together."""
    for one in spaces:
        first = first.plus(one)
    return first


def _below(files: Files, path: str) -> DiskSpace:
    """The files below a directory; of a packed job its part of the pack, which lies elsewhere."""
    size = count = 0
    pending = [path]
    while pending:
        directory = pending.pop()
        packed = packs.size_of(files, directory)
        if packed is not None:
            size += packed if directory == path else 0
            continue
        for name in entries(files, directory):
            one = files.stat(f"{directory}/{name}")
            if one is None:
                continue
            if one.kind is FileKind.DIRECTORY:
                pending.append(f"{directory}/{name}")
            else:
                size, count = size + one.size, count + 1
    return DiskSpace(size, count)


def _show(title: str, found: dict[str, DiskSpace]) -> None:
    ordered = sorted(found.items(), key=lambda item: -item[1].size)
    rows: list[list[Cell]] = [
        [name, size_text(space.size), str(space.files)] for name, space in ordered[:MOST_SHOWN]
    ]
    heads = [Column(title.rstrip("s"), least=12), Column("size", right=True), Column("files", right=True)]
    say("")
    table(heads, rows)
    if len(ordered) > MOST_SHOWN:
        note(f"and {len(ordered) - MOST_SHOWN} more")


def _plain(usage: DiskUsage) -> dict[str, object]:
    def plain(found: DiskSpace) -> dict[str, int]:
        return {"bytes": found.size, "files": found.files}

    return {
        name: {one: plain(space) for one, space in found.items()} if isinstance(found, dict) else plain(found)
        for name, found in usage._asdict().items()
    }
