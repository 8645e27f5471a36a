"""`tenuto jobs`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import click

from tenuto.cli.console import Cell, Column, ago, note, print_json, state_cell, table
from tenuto.cli.options import json_option, open_workspace, workspace_option
from tenuto.cli.selection import (
    all_option,
    in_order,
    jobs_of_runs,
    limit_option,
    matching,
    read_filter,
    run_option,
)
from tenuto.jobs.key import JobKey
from tenuto.jobs.result_table import ResultReader, ResultRow, cell_text, result_text, varying_parameters
from tenuto.jobs.text import duration
from tenuto.jobs.view import JobsView, JobView, plain_job

MOST_TAG_COLUMNS = 12
MOST_NAMES = 3
MOST_NAMED_JOBS = 1000
"""For more jobs the parameters of each are not read."""


@click.command()
@click.argument("filter_", metavar="[FILTER]...", nargs=-1)
@run_option
@all_option
@click.option(
    "-s", "--sort", metavar="FIELD", help="Sort by a field, tag, parameter or result; -FIELD: largest first."
)
@limit_option
@workspace_option
@json_option
def command(
    filter_: tuple[str, ...],
    run: str | None,
    every: bool,
    sort: str | None,
    limit: int | None,
    workspace: str | None,
    as_json: bool,
) -> None:
    """List jobs: by default those of the last run of each experiment.

    FILTER is such as: state=running and lr<0.1 and task~train. Quote it, since shells know < and >.
    """
    if run is not None and every:
        raise click.UsageError("--run and --all exclude each other")
    wanted = read_filter(filter_)
    view = open_workspace(workspace)
    jobs = view.all_jobs() if every else jobs_of_runs(view, run)
    found = matching(view, jobs, wanted)
    if sort is not None:
        found = in_order(view, found, sort)
    shown = found[:limit]
    now = view.machine.clock.now()
    if as_json:
        print_json([plain_job(job, now) for job in shown])
        return
    if not shown:
        note(
            f"none of {len(jobs)} jobs matches" if jobs else "there are no jobs; --all shows those of no run"
        )
        return
    show_jobs(shown, now, varying_names(view, shown))
    if len(shown) < len(found):
        note(f"{len(found) - len(shown)} more; raise --limit to see them")


Names = Mapping[JobKey, Mapping[str, str]]
"""Of jobs without tags, the parameters in which they differ."""
_NO_NAMES: Names = {}


def varying_names(view: JobsView, jobs: list[JobView]) -> Names:
    """The parameters that tell jobs without tags from others of their task; none for very many jobs."""
    untagged = [job for job in jobs if not job.tags]
    if not 1 < len(untagged) <= MOST_NAMED_JOBS:
        return {}
    stored = ResultReader(view.machine.files, view.layout)
    rows = [ResultRow(job, stored.parameters(job.key), None) for job in untagged]
    names = varying_parameters(rows)[:MOST_NAMES]
    return {row.job.key: {name: cell_text(row.parameters.get(name)) for name in names} for row in rows}


def show_jobs(jobs: list[JobView], now: datetime, names: Names = _NO_NAMES) -> None:
    """A table of jobs, with a column for each tag, and for the parameters that `names` gives."""
    tags = list(dict.fromkeys(name for job in jobs for name in job.tags))[:MOST_TAG_COLUMNS]
    tags += [
        name for name in dict.fromkeys(name for one in names.values() for name in one) if name not in tags
    ]
    several_runs = len({job.run_id for job in jobs}) > 1
    columns = [
        Column("id"),
        Column("task", least=8),
        Column("state"),
        *(Column(tag, least=5, rank=3 + place) for place, tag in enumerate(tags)),
        Column("progress", right=True, rank=2),
        Column("took", right=True, rank=1),
        Column("ended", right=True, rank=40),
        *([Column("run", rank=41)] if several_runs else []),
        Column("result", least=10, rank=2),
        Column("message", least=10, rank=2),
    ]
    table(
        columns, [_row(job, {**names.get(job.key, {}), **job.tags}, tags, now, several_runs) for job in jobs]
    )


def _row(
    job: JobView, said: Mapping[str, object], tags: list[str], now: datetime, several_runs: bool
) -> list[Cell]:
    reason = job.reason.name if job.reason else ""
    message = ": ".join(filter(None, (reason, job.alarm or job.message)))
    return [
        job.job_id[:8],
        job.task_id,
        state_cell(job.state),
        *(str(said.get(tag, "")) for tag in tags),
        f"{job.progress.fraction:.0%}" if job.progress else "",
        duration(job.duration_s(now)),
        ago(job.endtime, now),
        *([f"{job.experiment_id or ''}/{job.run_id or ''}"] if several_runs else []),
        result_text(job.small_result),
        message,
    ]
