"""`tenuto demo`."""

from __future__ import annotations

import shlex
from importlib import resources
from pathlib import Path

import click

from tenuto.cli import exits
from tenuto.cli.commands.run import run_request
from tenuto.cli.session import Request, short_path

SCRIPT = "sweep.py"
DIRECTORY = "tenuto-demo"


@click.command()
@click.option(
    "--dir",
    "directory",
    default=DIRECTORY,
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the demo is put; made if need be.",
)
@click.option("--json", is_flag=True, help="Print the summary as JSON to standard output.")
@click.pass_context
def command(ctx: click.Context, directory: Path, json: bool) -> None:
    """Run a small sweep: eight trainings, an evaluation of each, and a comparison of all.

    Writes the script sweep.py into a directory, yours to change, and runs it. Run the demo again, and
    everything is reused; change the script, and only what is new runs. Two cores need some ten seconds.

    Exit codes are those of `tenuto run`.
    """
    script = directory / SCRIPT
    if not script.exists():
        directory.mkdir(parents=True, exist_ok=True)
        script.write_text(resources.files("tenuto.examples").joinpath(SCRIPT).read_text("utf-8"), "utf-8")
    again = ["tenuto", "demo", *([] if str(directory) == DIRECTORY else ["--dir", str(directory)])]
    code = run_request(Request(str(script)), again, json=json)
    if code == exits.OK and not json:
        _say_where_to_look(script, again)
    ctx.exit(code)


def _say_where_to_look(script: Path, again: list[str]) -> None:
    shown, workspace = shlex.quote(short_path(script)), shlex.quote(short_path(script.parent / "workspace"))
    click.echo(
        f"\nWhere to look next:\n"
        f"  {shlex.join(again)}: once more, and nothing has to run\n"
        f"  {shown}: the experiment, on one page; change a value in GRID, then\n"
        f"  tenuto plan {shown}: what would run now, and why\n"
        f"  tenuto run {shown}: run that, and only that\n"
        f"  tenuto jobs -w {workspace}: every job, with its tags and times\n"
        f"  {workspace}/jobs: where the jobs keep what they made",
        err=True,
    )
