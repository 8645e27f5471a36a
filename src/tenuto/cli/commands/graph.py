"""`tenuto graph`."""

from __future__ import annotations

import click

from tenuto.cli.chosen_jobs import job_options, meant, run_option
from tenuto.cli.completions import complete_jobs
from tenuto.cli.console import note, print_json, say
from tenuto.cli.options import open_catalogue
from tenuto.jobs.drawing import graph_dot, graph_lines, graph_svg, job_nodes, task_nodes

MOST_JOBS = 60
"""Jobs that are drawn one by one unless `--all` asks for more."""


@click.command()
@click.argument("words", metavar="[JOB|GROUP|FILTER]...", nargs=-1, shell_complete=complete_jobs)
@run_option
@click.option("--tasks", is_flag=True, help="A node for each task, and not for each job.")
@click.option("-a", "--all", "every", is_flag=True, help="A node for each job, however many there are.")
@click.option("--dot", "as_dot", is_flag=True, help="Print DOT, for Graphviz.")
@click.option("--svg", "as_svg", is_flag=True, help="Print SVG, a picture for a browser.")
@job_options
def command(
    words: tuple[str, ...],
    run: str | None,
    tasks: bool,
    every: bool,
    as_dot: bool,
    as_svg: bool,
    kind: str | None,
    workspace: str | None,
    as_json: bool,
) -> None:
    """Draw which job waits for which: by default the jobs that `tenuto jobs` lists.

    With more than 60 jobs there is a node for each task, unless --all asks for all of them.
    """
    if as_dot + as_svg + as_json > 1:
        raise click.UsageError("--dot, --svg and --json exclude each other")
    if tasks and every:
        raise click.UsageError("--tasks and --all exclude each other")
    catalogue = open_catalogue(workspace)
    jobs = meant(catalogue, words, run=run, kind=kind).rows[::-1]
    by_task = tasks or (len(jobs) > MOST_JOBS and not every)
    nodes = task_nodes(jobs) if by_task else job_nodes(jobs)
    if as_json:
        names = {job.id: job.name for job in jobs}
        print_json(
            [
                {
                    "id": node.id,
                    "name": names.get(node.id, node.id),
                    "title": node.title,
                    "detail": node.detail,
                    "states": {state.name.lower(): number for state, number in node.states.items()},
                    "needs": list(node.needs),
                }
                for node in nodes
            ]
        )
        return
    for line in graph_dot(nodes) if as_dot else graph_svg(nodes) if as_svg else graph_lines(nodes):
        say(line)
    if not nodes:
        note("there are no jobs to draw")
    elif by_task and not tasks:
        note(f"{len(jobs)} jobs, drawn by task; --all draws each of them")
