"""`tenuto worker`."""

from __future__ import annotations

import os.path
from pathlib import Path

import click

from tenuto.cli.session import let_go_of_closed_streams, tell
from tenuto.jobs.text import safe
from tenuto.search.opening import default_workspace
from tenuto.search.worker import Worker
from tenuto.settings import load_settings
from tenuto.settings.search import SEARCH_SECTIONS


@click.command()
@click.option(
    "-w",
    "--workspace",
    metavar="NAME|PATH",
    help="Where jobs are kept: by default that of the settings, else `workspace`.",
)
@click.option("--slots", type=click.IntRange(1), help="Candidates evaluated at once.")
@click.option(
    "--search", "searches", multiple=True, metavar="NAME", help="Work only for this search; several times."
)
@click.option("--gpus", is_flag=True, help="Each candidate has a GPU to itself; by default as many slots.")
@click.option("--once", is_flag=True, help="Leave when nothing is left to claim.")
@click.pass_context
def command(
    ctx: click.Context,
    workspace: str | None,
    slots: int | None,
    searches: tuple[str, ...],
    gpus: bool,
    once: bool,
) -> None:
    """Evaluate the candidates of searches, beside other workers, on this machine or others.

    Needs the same database as the searches (`[database] url`, or a workspace on a disk that all share), and
    the same code at the same path. TERM or Ctrl-C once: claims nothing more and ends when what runs has
    ended; twice: stops what runs and gives it back; three times: at once.

    Exit codes: 0 ended; 1 it could not continue; 2 wrong usage; 5 ended at once.
    """
    settings = load_settings(foreign=SEARCH_SECTIONS)
    path = Path(os.path.abspath(settings.workspace(workspace))) if workspace else default_workspace(settings)
    worker = Worker(
        settings,
        path,
        lambda text: tell(safe(text)),
        slots=slots,
        only=searches,
        once=once,
        with_gpus=gpus,
    )
    code = worker.run()
    let_go_of_closed_streams()
    ctx.exit(code)
