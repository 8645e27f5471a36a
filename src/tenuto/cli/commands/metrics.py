"""`tenuto metrics`."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

import click

from tenuto.cli.chosen_jobs import all_option, job_options, meant, run_option
from tenuto.cli.completions import complete_jobs
from tenuto.cli.console import note, print_json, say, table, window_width
from tenuto.cli.options import open_catalogue
from tenuto.errors import NotFound
from tenuto.jobs.drawing import Cell, Column, PlotPoint, scatter, spark_line
from tenuto.jobs.metrics import is_wanted, last_point, metric_rows
from tenuto.jobs.row import Row
from tenuto.workspace.points import Points

PLOT_COLUMNS = 80
SPARK_COLUMNS = 24

Logged = list[tuple[Row, Points]]


@click.command()
@click.argument("words", metavar="[JOB|GROUP|FILTER]...", nargs=-1, shell_complete=complete_jobs)
@click.option(
    "-m",
    "--metric",
    "names",
    multiple=True,
    help="This metric only; repeatable. Runners measure system/cpu and its like.",
)
@run_option
@all_option
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV: one line for each point.")
@job_options
def command(
    words: tuple[str, ...],
    names: tuple[str, ...],
    run: str | None,
    every: bool,
    as_csv: bool,
    kind: str | None,
    workspace: str | None,
    as_json: bool,
) -> None:
    """Show the metrics that jobs logged over time: of one job as plots, of several as a table.

    JOB is as of `tenuto why`; FILTER such as: lr<0.1 and state=running.
    """
    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other")
    if run is not None and every:
        raise click.UsageError("--run and --all exclude each other")
    catalogue = open_catalogue(workspace)
    rows = meant(catalogue, words, run=run, every=every, kind=kind).rows
    logged = [(row, points) for row in rows if (points := catalogue.points(row.key))]
    _check(names, logged, len(rows))
    logged = [(row, wanted) for row, points in logged if (wanted := _wanted(points, names))]
    if as_json:
        print_json(list(metric_rows(logged, names)))
    elif as_csv:
        click.echo(_csv(logged, names), nl=False)
    elif not logged:
        note(f"none of {len(rows)} jobs logged a metric: log_metrics() in execute() keeps them")
    elif len(logged) == 1 and len(rows) == 1:
        _plot(logged[0][1])
    else:
        _show(logged)


def _check(names: Sequence[str], logged: Logged, jobs: int) -> None:
    there = dict.fromkeys(name for _, points in logged for name in points)
    for name in names:
        if name not in there:
            raise NotFound(f"none of {jobs} jobs logged {name!r}; there are: {', '.join(there) or 'none'}")


def _wanted(points: Points, names: Sequence[str]) -> Points:
    return {name: curve for name, curve in points.items() if is_wanted(name, names)}


def _csv(logged: Logged, names: Sequence[str]) -> str:
    written = io.StringIO()
    rows = list(metric_rows(logged, names))
    writer = csv.DictWriter(written, list(rows[0]) if rows else ["id", "metric", "step", "value"])
    writer.writeheader()
    writer.writerows(rows)
    return written.getvalue()


def _plot(points: Points) -> None:
    for name, curve in points.items():
        drawn = [PlotPoint(one.step, one.value) for one in curve if math.isfinite(one.value)]
        if drawn:
            for line in scatter(drawn, "step", name, window_width() or PLOT_COLUMNS):
                say(line)
        if len(drawn) < len(curve):
            note(f"{len(curve) - len(drawn)} points of {name} are no finite numbers and are left out")


def _show(logged: Logged) -> None:
    rows: list[list[Cell]] = []
    for row, points in logged:
        tags = " ".join(f"{name}={value}" for name, value in row.tags.items())
        for name, curve in points.items():
            finite, last = [one.value for one in curve if math.isfinite(one.value)], last_point(curve)
            rows.append(
                [
                    row.name,
                    tags,
                    name,
                    str(last.step),
                    f"{last.value:.4g}",
                    f"{min(finite):.4g}" if finite else "–",
                    f"{max(finite):.4g}" if finite else "–",
                    spark_line(finite, SPARK_COLUMNS),
                ]
            )
    table(
        [
            Column("id"),
            Column("tags", least=6, rank=3),
            Column("metric", least=6),
            Column("step", right=True),
            Column("last", right=True),
            Column("min", right=True, rank=2),
            Column("max", right=True, rank=2),
            Column("course", least=8, rank=1),
        ],
        rows,
    )
