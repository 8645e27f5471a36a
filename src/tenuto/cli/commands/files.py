"""`tenuto files`."""

from __future__ import annotations

import click

from tenuto.cli.chosen_jobs import job_argument, job_options, one_job
from tenuto.cli.console import note, print_json, say, table
from tenuto.cli.options import open_catalogue
from tenuto.cli.program import hint
from tenuto.errors import NotFound
from tenuto.jobs.directories import JobFile, job_files
from tenuto.jobs.drawing import Cell, Column, Styled
from tenuto.jobs.text import safe, size_text
from tenuto.lifecycle.states import JobState
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.packs import is_packed
from tenuto.workspace.ports import FileKind


@click.command()
@job_argument
@click.option("-a", "--all", "every", is_flag=True, help="Also the files that Tenuto keeps there.")
@job_options
def command(
    words: tuple[str, ...], every: bool, kind: str | None, workspace: str | None, as_json: bool
) -> None:
    """List the files that JOB left in its directory.

    JOB is the beginning of its id, TASK/ID, or a task that has one job; NAME#N of a search or a service; or a
    filter that one job matches.
    """
    catalogue = open_catalogue(workspace)
    wanted = one_job(catalogue, words, kind)
    detail = catalogue.source(wanted).detail(wanted)
    directory = detail.fields.get("directory")
    if directory is None:
        raise NotFound(
            f"{detail.row.name} has no directory here: it was not run in this workspace, or is gone"
        )
    try:
        key = catalogue.job_key(detail)
        paths = catalogue.view.layout.job(*key) if key is not None else JobPaths(directory, "")
        found = list(job_files(catalogue.view.machine.files, paths))
    except OSError as error:
        raise NotFound(f"the files of {directory} cannot be listed: {error.strerror}") from None
    shown = [one for one in found if every or one.made_by_task]
    if as_json:
        files = [_plain(one) for one in shown]
        print_json({"id": detail.row.id, "name": detail.row.name, "directory": directory, "files": files})
        return
    say(safe(directory))
    if key is not None and is_packed(catalogue.view.machine.files, directory):
        note(f"it is packed: {hint(f'tenuto clean --unpack {detail.row.name} --yes')} puts it there")
    if shown:
        rows: list[list[Cell]] = [[_size(one), one.path] for one in shown]
        table([Column("size", right=True), Column("file", least=16)], rows)
    if every and detail.row.state is JobState.DONE:
        gone = ", ".join(one for one in paths.made_again() if one not in {file.path for file in found})
        note(f"not kept of a job that is done, and made again if it runs again: {gone}")
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
