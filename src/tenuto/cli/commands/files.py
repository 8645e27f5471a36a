"""`tenuto files`."""

from __future__ import annotations

import click

from tenuto.cli.completions import complete_jobs
from tenuto.cli.console import Cell, Column, Styled, note, print_json, say, size_text, table
from tenuto.cli.options import json_option, open_workspace, workspace_option
from tenuto.errors import NotFound
from tenuto.jobs.job_files import JobFile, job_files
from tenuto.jobs.text import safe
from tenuto.workspace.ports import FileKind


@click.command()
@click.argument("job", shell_complete=complete_jobs)
@click.option("-a", "--all", "every", is_flag=True, help="Also the files that Tenuto keeps there.")
@workspace_option
@json_option
def command(job: str, every: bool, workspace: str | None, as_json: bool) -> None:
    """List the files that JOB left in its directory.

    JOB is the beginning of its id, TASK/ID, or a task that has one job.
    """
    view = open_workspace(workspace)
    paths = view.layout.job(*view.find_one(job))
    try:
        found = list(job_files(view.machine.files, paths))
    except OSError as error:
        raise NotFound(f"the files of {paths.directory} cannot be listed: {error.strerror}") from None
    shown = [one for one in found if every or one.made_by_task]
    if as_json:
        print_json({"directory": paths.directory, "files": [_plain(one) for one in shown]})
        return
    say(safe(paths.directory))
    if shown:
        rows: list[list[Cell]] = [[_size(one), one.path] for one in shown]
        table([Column("size", right=True), Column("file", least=16)], rows)
    hidden = len(found) - len(shown)
    if hidden:
        beside = "besides" if shown else "the task left none; there are"
        note(f"{beside} {hidden} files of Tenuto's own, which --all shows")


def _plain(one: JobFile) -> dict[str, object]:
    return {"path": one.path, "kind": one.kind.value, "bytes": one.size, "made_by_task": one.made_by_task}


def _size(one: JobFile) -> Cell:
    if one.kind is FileKind.FILE:
        return size_text(one.size)
    return Styled(one.kind.value, dim=True)
