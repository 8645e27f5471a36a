"""`tenuto jobs`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import click

from tenuto.catalogue import Catalogue
from tenuto.cli.chosen_jobs import all_option, job_options, limit_option, meant, run_option, shown_limit
from tenuto.cli.completions import complete_jobs
from tenuto.cli.console import ago, note, print_json, state_cell, table
from tenuto.cli.options import open_catalogue
from tenuto.jobs.drawing import Cell, Column
from tenuto.jobs.result_table import ResultRow, cell_text, result_text, varying_parameters
from tenuto.jobs.row import Row, plain_row
from tenuto.jobs.text import duration
from tenuto.lifecycle.owner_names import Door
from tenuto.tasks.tags import tag_text

MOST_TAG_COLUMNS = 12
MOST_NAMES = 3
MOST_NAMED_JOBS = 1000
"""For more jobs the parameters of each are not read."""


@click.command()
@click.argument("words", metavar="[JOB|GROUP|FILTER]...", nargs=-1, shell_complete=complete_jobs)
@run_option
@all_option
@click.option(
    "-s", "--sort", metavar="FIELD", help="Sort by a field, tag, parameter or result; -FIELD: largest first."
)
@limit_option
@job_options
def command(
    words: tuple[str, ...],
    run: str | None,
    every: bool,
    sort: str | None,
    limit: int | None,
    kind: str | None,
    workspace: str | None,
    as_json: bool,
) -> None:
    """List jobs, the newest first: of the last run of each experiment, of open searches, of services.

    Searches that ended are left out but for the last, jobs of a service after a day; --all shows everything.
    JOB and GROUP are names, such as NAME#N of a search or a service; FILTER is such as: state=running and
    lr<0.1 and task~train. Quote it, since shells know < and >.
    """
    if run is not None and every:
        raise click.UsageError("--run and --all exclude each other")
    catalogue = open_catalogue(workspace)
    most = shown_limit(limit, as_json=as_json)
    if most is not None and run is None and not (every or words or sort or kind):
        shown, total = catalogue.newest(most)
        known = total
    else:
        found = meant(catalogue, words, run=run, every=every, sort=sort, kind=kind, most=most)
        shown, total, known = found.rows[:most], found.total, found.known
    now = catalogue.now()
    if as_json:
        print_json([plain_row(job, now) for job in shown])
        return
    if not shown:
        note(f"none of {known} jobs matches" if known else "there are no jobs; --all shows older ones, too")
        return
    show_jobs(shown, now, varying_names(catalogue, shown))
    if len(shown) < total:
        note(f"{len(shown)} of {total} jobs; raise --limit to see more")


Names = Mapping[str, Mapping[str, str]]
"""Key -> of jobs without tags, the parameters in which they differ."""
_NO_NAMES: Names = {}


def varying_names(catalogue: Catalogue, jobs: list[Row]) -> Names:
    """The parameters that tell jobs without tags from others of their task; none for very many jobs."""
    untagged = [job for job in jobs if not job.tags and job.door is not Door.SERVICE]
    if not 1 < len(untagged) <= MOST_NAMED_JOBS:
        return {}
    read = catalogue.own_parameters()
    rows = [ResultRow(job, read(job), None) for job in untagged]
    names = varying_parameters(rows)[:MOST_NAMES]
    return {row.job.key: {name: cell_text(row.parameters.get(name)) for name in names} for row in rows}


def show_jobs(jobs: list[Row], now: datetime, names: Names = _NO_NAMES) -> None:
    """A table of jobs, with a column for each tag, and for the parameters that `names` gives."""
    tags = list(dict.fromkeys(name for job in jobs for name in job.tags))[:MOST_TAG_COLUMNS]
    tags += [
        name for name in dict.fromkeys(name for one in names.values() for name in one) if name not in tags
    ]
    several_runs = len({job.group for job in jobs}) > 1
    columns = [
        Column("id"),
        Column("task", least=8),
        Column("state"),
        *(Column(tag, least=5, rank=3 + place) for place, tag in enumerate(tags)),
        Column("progress", right=True, rank=2),
        Column("took", right=True, rank=1),
        Column("ended", right=True, rank=40),
        *([Column("group", rank=41)] if several_runs else []),
        Column("result", least=10, rank=2),
        Column("message", least=10, rank=2),
    ]
    table(
        columns, [_row(job, {**names.get(job.key, {}), **job.tags}, tags, now, several_runs) for job in jobs]
    )


def _row(
    job: Row, said: Mapping[str, object], tags: list[str], now: datetime, several_runs: bool
) -> list[Cell]:
    reason = job.reason.name if job.reason else ""
    message = ": ".join(filter(None, (reason, job.alarm or job.message)))
    return [
        job.name,
        job.task,
        state_cell(job.state),
        *(tag_text(said.get(tag, "")) for tag in tags),
        f"{job.progress:.0%}" if job.progress is not None else "",
        duration(job.elapsed_s(now)),
        ago(job.ended, now),
        *([job.group.partition(":")[2]] if several_runs else []),
        result_text(job.result),
        message,
    ]
