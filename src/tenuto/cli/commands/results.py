"""`tenuto results`."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import click

from tenuto.catalogue import Catalogue
from tenuto.cli.chosen_jobs import all_option, job_options, limit_option, meant, run_option
from tenuto.cli.completions import complete_jobs
from tenuto.cli.console import note, print_json, say, table, window_width
from tenuto.cli.options import open_catalogue
from tenuto.cli.program import hint
from tenuto.errors import NotFound
from tenuto.jobs.drawing import Cell, Column, PlotPoint, bars, histogram, scatter
from tenuto.jobs.metrics import JobUsage, metric_column
from tenuto.jobs.query import order_key
from tenuto.jobs.result_table import (
    ResultRow,
    best_column,
    cell_text,
    exact_text,
    less_is_better,
    number,
    result_columns,
    sorted_rows,
    tag_columns,
    varying_parameters,
)
from tenuto.jobs.row import Row
from tenuto.jobs.text import duration, safe
from tenuto.launchers.requirements import about_size
from tenuto.lifecycle.owner_names import Door

PLOT_COLUMNS = 80
MOST_READ = 5000
"""Jobs whose results are read where nothing was asked for that needs all."""
AGGREGATES: dict[str, Callable[[Sequence[float]], float | None]] = {
    "mean": statistics.fmean,
    "std": lambda sizes: statistics.stdev(sizes) if len(sizes) > 1 else None,
    "min": min,
    "max": max,
    "median": statistics.median,
    "sum": sum,
    "count": len,
}
"""What `--agg` makes of the numbers of a group; std is that of a sample, and none for one number."""


@click.command()
@click.argument("words", metavar="[JOB|GROUP|FILTER]...", nargs=-1, shell_complete=complete_jobs)
@run_option
@all_option
@click.option(
    "-s",
    "--sort",
    metavar="COLUMN",
    help="Sort by a column, such as result.accuracy; -COLUMN: largest first. By default the best are first.",
)
@click.option(
    "-c",
    "--columns",
    metavar="COLUMN,...",
    help="Show these columns: tags, parameters such as model.lr, result or result.accuracy.",
)
@limit_option
@click.option(
    "--plot",
    metavar="COLUMN[,COLUMN]",
    help="Draw a column (how its values lie), or the second over the first.",
)
@click.option(
    "-g",
    "--group",
    "grouped",
    metavar="COLUMN,...",
    help="One line for all jobs with the same values of these.",
)
@click.option(
    "--agg",
    metavar="NAME,...",
    help=f"With --group: what becomes of their numbers, of {', '.join(AGGREGATES)}; mean,std by default.",
)
@click.option(
    "-m",
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME[:last|min|max]",
    help="Add a column of a metric that jobs logged, also of jobs that are not done; repeatable.",
)
@click.option("--usage", is_flag=True, help="Show the use of jobs beside their request, failed ones too.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, with every column.")
@job_options
def command(
    words: tuple[str, ...],
    run: str | None,
    every: bool,
    sort: str | None,
    columns: str | None,
    limit: int | None,
    plot: str | None,
    grouped: str | None,
    agg: str | None,
    metrics: tuple[str, ...],
    usage: bool,
    as_csv: bool,
    kind: str | None,
    workspace: str | None,
    as_json: bool,
) -> None:
    """Show what jobs gave, the best first: by default the jobs that `tenuto jobs` lists.

    JOB and GROUP are names; FILTER is such as: result.accuracy>0.9 and lr<0.1. Quote it, since shells know <
    and >.
    """
    if run is not None and every:
        raise click.UsageError("--run and --all exclude each other")
    if as_json + as_csv + (plot is not None) > 1:
        raise click.UsageError("--json, --csv and --plot exclude each other")
    if grouped is not None and plot is not None:
        raise click.UsageError("--group and --plot exclude each other")
    if agg is not None and grouped is None:
        raise click.UsageError("--agg needs --group, as in --group lr --agg mean,std")
    if usage and any(given is not None for given in (plot, grouped, columns, sort, *metrics)):
        raise click.UsageError("--usage goes with filters, --limit, --csv and --json alone")
    functions, wanted = _aggregates(agg), [metric_column(one) for one in metrics]
    catalogue = open_catalogue(workspace)
    if any((words, every, run, sort, grouped, as_json, as_csv, plot, usage, kind)):
        asked = meant(catalogue, words, run=run, every=every, kind=kind)
        found, known = asked.rows, asked.known
    else:
        found, known = catalogue.newest(MOST_READ)
        if known > MOST_READ:
            note(f"of {known} jobs the newest {MOST_READ}; a filter, --run, --sort and --csv look at all")
    if usage:
        _show_usage(catalogue, found[:limit], as_json=as_json, as_csv=as_csv)
        return
    read = catalogue.result_rows(found[::-1], wanted)
    rows = [row for row in read if row.values]
    for column in wanted:
        if rows and not any(column.name in row.metrics for row in rows):
            raise NotFound(_no_metric(catalogue, found, column.metric))
    if not rows and not (as_json or as_csv):
        note(_nothing(known, found, read))
        return
    if grouped is not None:
        _show_groups(rows, grouped, functions, columns, sort, limit, as_json=as_json, as_csv=as_csv)
        return
    rows, order = _ordered(catalogue, rows, sort)
    shown = rows[:limit]
    names = _chosen(columns, rows)
    if plot is not None:
        _plot(plot, shown)
    elif as_json:
        print_json([_plain(row) for row in shown])
    elif as_csv:
        click.echo(_csv(shown, names), nl=False)
    else:
        _show(shown, names)
        _tell(rows, shown, len(read), order)


def _show_usage(catalogue: Catalogue, jobs: Sequence[Row], *, as_json: bool, as_csv: bool) -> None:
    """One line for each job that ended: time, memory and processors, asked and used."""
    used = [(row, found) for row in jobs if (found := catalogue.usage(row)) is not None]
    lines = [
        {
            "id": row.id,
            "name": row.name,
            "task": row.task,
            "state": row.state.name.lower(),
            **found._asdict(),
            "cpu_share": found.cpu_share,
        }
        for row, found in used
    ]
    if as_json:
        print_json(lines)
    elif as_csv:
        names = ["id", "task", "state", *JobUsage._fields, "cpu_share"]
        click.echo(
            _written([names, *([exact_text(line[name]) for name in names] for line in lines)]), nl=False
        )
    elif not lines:
        note(f"none of {len(jobs)} jobs has an attempt that ended and was measured")
    else:
        heads = [Column("id"), Column("task", least=8), Column("state")]
        heads += [Column(name, right=True) for name in ("time", "asked", "memory", "asked", "cores", "CPU")]
        table(
            heads, [[row.name, row.task, row.state.name.lower(), *_usage_cells(found)] for row, found in used]
        )


def _usage_cells(found: JobUsage) -> list[Cell]:
    return [
        "" if found.used_s is None else duration(found.used_s),
        "" if found.asked_s is None else duration(found.asked_s),
        "" if found.used_bytes is None else about_size(found.used_bytes),
        "" if found.asked_bytes is None else about_size(found.asked_bytes),
        str(found.cores),
        "" if found.cpu_share is None else f"{found.cpu_share:.0%}",
    ]


def _aggregates(given: str | None) -> list[str]:
    names = [name.strip() for name in (given or "mean,std").split(",")]
    for name in names:
        if name not in AGGREGATES:
            raise click.UsageError(f"--agg: {name!r} is none of {', '.join(AGGREGATES)}")
    return names


def _show_groups(
    rows: Sequence[ResultRow],
    grouped: str,
    functions: Sequence[str],
    columns: str | None,
    sort: str | None,
    limit: int | None,
    *,
    as_json: bool,
    as_csv: bool,
) -> None:
    """One line for each group: its values, how many jobs it has, and what became of its numbers."""
    by = _chosen(grouped, rows) or []
    wanted = _chosen(columns, rows) or result_columns(rows)
    wanted = [name for name in wanted if any(number(row.get(name)) is not None for row in rows)]
    groups: dict[tuple[str, ...], list[ResultRow]] = {}
    for row in rows:
        groups.setdefault(tuple(exact_text(row.get(name)) for name in by), []).append(row)
    names = [f"{name}.{function}" for name in wanted for function in functions]
    lines: list[dict[str, Any]] = []
    for members in groups.values():
        line: dict[str, Any] = {name: members[0].get(name) for name in by} | {"jobs": len(members)}
        for name in wanted:
            sizes = [size for row in members if (size := number(row.get(name))) is not None]
            line |= {f"{name}.{f}": AGGREGATES[f](sizes) if sizes else None for f in functions}
        lines.append(line)
    key = (sort or by[0]).removeprefix("-")
    if key not in (*by, "jobs", *names):
        raise NotFound(f"no group has a column {key!r}; there are: {', '.join((*by, 'jobs', *names))}")
    lines.sort(key=lambda line: order_key(line[key]) or (2, ""), reverse=(sort or "").startswith("-"))
    lines = lines[:limit]
    heads = [*by, "jobs", *names]
    if as_json:
        print_json(lines)
    elif as_csv:
        click.echo(
            _written([heads, *([exact_text(line[name]) for name in heads] for line in lines)]), nl=False
        )
    else:
        cells: list[list[Cell]] = [
            [(exact_text if name in by else cell_text)(line[name]) for name in heads] for line in lines
        ]
        table([Column(name, right=name not in by) for name in heads], cells)


def _nothing(jobs: int, found: Sequence[Row], read: Sequence[ResultRow]) -> str:
    if not jobs:
        return "there are no jobs; --all shows older ones, too"
    if not found:
        return f"none of {jobs} jobs matches"
    if all(row.door is Door.SERVICE for row in found):
        return "a service keeps no values: what a job made is a ZIP, which `tenuto fetch N` gets"
    if not read:
        return f"none of {len(found)} jobs is done yet; `{hint('tenuto jobs')}` lists them"
    return f"of the jobs that are done ({len(read)}) none returned a result: what execute() returns is kept"


def _no_metric(catalogue: Catalogue, jobs: Sequence[Row], name: str) -> str:
    there = dict.fromkeys(name for row in jobs for name in catalogue.points(row.key))
    return f"none of {len(jobs)} jobs logged {name!r}; there are: {', '.join(there) or 'none'}"


def _ordered(
    catalogue: Catalogue, rows: list[ResultRow], sort: str | None
) -> tuple[list[ResultRow], str | None]:
    """The rows in the order that was asked for, or the best first, and then that order in words."""
    if sort is not None:
        name = sort.removeprefix("-")
        _known(name, rows)
        return sorted_rows(rows, name, largest_first=sort.startswith("-")), None
    declared = {(group.group, f"result.{name}") for group in catalogue.groups() for name in group.less}
    order, ordered, left = None, list[ResultRow](), rows
    while (by := best_column(left)) is not None:  # tasks that return other things come below, each by its own
        here = [row for row in left if row.get(by) is not None]
        is_less = less_is_better(by) or all((row.job.group, by) in declared for row in here)
        ordered += sorted_rows(here, by, largest_first=not is_less)
        order = order or f"{by}, the {'smallest' if is_less else 'largest'} first"
        left = [row for row in left if row.get(by) is None]
    return ordered + left, order


def _chosen(columns: str | None, rows: Sequence[ResultRow]) -> list[str] | None:
    if columns is None:
        return None
    names = [name.strip() for name in columns.split(",") if name.strip()]
    for name in names:
        _known(name, rows)
    return names


def _known(name: str, rows: Sequence[ResultRow]) -> None:
    """The command refuses a column that no row has, and names the columns of the rows."""
    if not rows or any(row.get(name) is not None for row in rows):
        return
    there = [*tag_columns(rows), *varying_parameters(rows), *result_columns(rows)]
    raise NotFound(f"no result here has a column {name!r}; there are: {', '.join(dict.fromkeys(there))}")


def _show(rows: Sequence[ResultRow], chosen: list[str] | None) -> None:
    several_tasks = len({row.job.task for row in rows}) > 1
    names = chosen or [*tag_columns(rows), *varying_parameters(rows), *result_columns(rows)]
    results = set(result_columns(rows))
    heads = [Column("id"), *([Column("task", least=8)] if several_tasks else [])]
    for place, name in enumerate(names):
        is_number = all(number(row.get(name)) is not None for row in rows if row.get(name) is not None)
        rank = 0 if chosen else 1 + place + (0 if name in results else 100)
        heads.append(Column(name, right=is_number, least=0 if is_number else 5, rank=rank))
    lines: list[list[Cell]] = [
        [
            row.job.name,
            *([row.job.task] if several_tasks else []),
            *(cell_text(row.get(name)) for name in names),
        ]
        for row in rows
    ]
    table(heads, lines)


def _tell(rows: Sequence[ResultRow], shown: Sequence[ResultRow], done: int, order: str | None) -> None:
    if len(shown) < len(rows):
        note(f"{len(rows) - len(shown)} more; raise --limit to see them")
    if done > len(rows):
        note(f"{done - len(rows)} other {'job' if done - len(rows) == 1 else 'jobs'} returned nothing")
    if order is not None and len(rows) > 1:
        note(f"sorted by {order}; --sort COLUMN for another")


def _plain(row: ResultRow) -> dict[str, Any]:
    return {
        "id": row.job.id,
        "name": row.job.name,
        "kind": row.job.door.kind,
        "task": row.job.task,
        "state": row.job.state.name.lower(),
        "experiment": row.job.experiment,
        "run": row.job.run,
        "tags": dict(row.job.tags),
        "parameters": dict(row.parameters),
        "result": row.result,
        **({"metrics": {name: _finite(value) for name, value in row.metrics.items()}} if row.metrics else {}),
    }


def _finite(value: float | None) -> float | str | None:
    """A number for programs: JSON has no NaN and no infinity, which are spelled."""
    return value if value is None or math.isfinite(value) else repr(value)


def _csv(rows: Sequence[ResultRow], chosen: list[str] | None) -> str:
    parameters = dict.fromkeys(name for row in rows for name in row.parameters)
    names = chosen or list(dict.fromkeys([*tag_columns(rows), *parameters, *result_columns(rows)]))
    lines = [[row.job.task, row.job.id, *(exact_text(row.get(name)) for name in names)] for row in rows]
    return _written([["task", "id", *names], *lines])


def _written(lines: Sequence[Sequence[str]]) -> str:
    written = io.StringIO()
    csv.writer(written).writerows(lines)
    return written.getvalue()


def _plot(wanted: str, rows: Sequence[ResultRow]) -> None:
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    if not 1 <= len(names) <= 2:
        raise click.UsageError("--plot takes one or two columns, such as lr,result.accuracy")
    for name in names:
        _known(name, rows)
    room = window_width() or PLOT_COLUMNS
    upright = names[-1]
    measured = [(row, size) for row in rows if (size := number(row.get(upright))) is not None]
    if not measured:
        raise NotFound(f"{upright} has no numbers to draw")
    if len(names) == 1:
        lines = [safe(upright), *histogram([size for _, size in measured], room)]
    else:
        lines = _over(names[0], upright, measured, room)
    for line in lines:
        say(line)
    if len(measured) < len(rows):
        note(f"{len(rows) - len(measured)} without a number in {upright} are left out")


def _over(across: str, upright: str, measured: Sequence[tuple[ResultRow, float]], room: int) -> list[str]:
    """The second column over the first: points, or the mean for each word if the first is none of numbers."""
    points = [PlotPoint(x, size) for row, size in measured if (x := number(row.get(across))) is not None]
    if len(points) == len([row for row, _ in measured if row.get(across) is not None]):
        return scatter(points, across, upright, room)
    groups: dict[str, list[float]] = {}
    for row, size in measured:
        groups.setdefault(cell_text(row.get(across)) or "–", []).append(size)
    means = [(label, sum(sizes) / len(sizes)) for label, sizes in groups.items()]
    return [safe(f"mean of {upright} by {across}"), *bars(means, room)]
