"""`tenuto plan`."""

from __future__ import annotations

from typing import Any

import click

from tenuto.cli.commands.run import FileCommand, file_options, request_of, show_plan


@click.command(cls=FileCommand)
@file_options
@click.option("--all", "everything", is_flag=True, help="List every job, however many there are.")
@click.option("--json", is_flag=True, help="Print the plan as JSON.")
@click.pass_context
def command(ctx: click.Context, /, everything: bool, json: bool, **given: Any) -> None:
    """Say which jobs `tenuto run FILE` would run, which it would reuse, and why; nothing is run or written.

    A job that would run is compared with the earlier jobs of its task, and the parameter that makes it new is
    named. What the script itself prints goes to standard error.

    The predicted time: each job takes the median of the earlier jobs of its task, and as many run at once
    as there are slots, each after its dependencies.

    Exit codes: 0 planned; 1 the script raised in an experiment, so that the plan may be incomplete; 2 wrong
    usage. What a script does with results, after its experiments, does not matter to the plan.
    """
    ctx.exit(show_plan(request_of(**given), json=json, everything=everything))
