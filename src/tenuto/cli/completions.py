"""What a shell completes besides commands and options: jobs, runs and files.
It reads names only, and says nothing where something goes wrong: a person is just typing.
"""

from __future__ import annotations

from itertools import islice

import click
from click.shell_completion import CompletionItem

from tenuto.cli.options import open_workspace
from tenuto.errors import TenutoError
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.directories import job_keys

MOST = 200
_SHORT = 12


def complete_jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of jobs that begin so, with their tasks; and tasks, as ``TASK/ID``, where one is begun."""
    view = _view(ctx)
    if view is None:
        return []
    keys = job_keys(view.machine.files, view.layout.jobs)
    if "/" in incomplete or "." in incomplete:
        named = (f"{key.task_id}/{key.job_id[:_SHORT]}" for key in keys)
        return [CompletionItem(name) for name in islice((n for n in named if n.startswith(incomplete)), MOST)]
    fitting = (key for key in keys if key.job_id.startswith(incomplete))
    return [CompletionItem(key.job_id[:_SHORT], help=key.task_id) for key in islice(fitting, MOST)]


def complete_runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Experiments, and the runs of a named one, as ``NAME/RUN``."""
    view = _view(ctx)
    if view is None:
        return []
    names = [one.experiment_id for one in view.experiments()]
    name = incomplete.partition("/")[0]
    if "/" in incomplete and name in names:
        names = [f"{name}/{run.run_id}" for run in view.runs(name)]
    return [CompletionItem(one) for one in names if one.startswith(incomplete)][:MOST]


def complete_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files, as the shell knows them."""
    return [CompletionItem(incomplete, type="file")]


def _view(ctx: click.Context) -> WorkspaceView | None:
    try:
        return open_workspace(ctx.params.get("workspace"))
    except (TenutoError, OSError):
        return None
