"""`tenuto demo`."""

from __future__ import annotations

import shlex
from importlib import resources
from pathlib import Path

import click

from tenuto.cli import exit_codes
from tenuto.cli.commands.run import run_request
from tenuto.cli.program import called_as, short_path
from tenuto.cli.session import Request, tell

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
    everything is reused; change the script, and only new jobs run. Two cores need some ten seconds.

    Exit codes: as for `tenuto run`.
    """
    script = directory / SCRIPT
    if not script.exists():
        directory.mkdir(parents=True, exist_ok=True)
        script.write_text(resources.files("tenuto.examples").joinpath(SCRIPT).read_text("utf-8"), "utf-8")
    program = called_as()
    again = ["demo", *([] if str(directory) == DIRECTORY else ["--dir", str(directory)])]
    code = run_request(Request(str(script)), again, json=json)
    if code == exit_codes.OK and not json:
        _say_where_to_look(script, shlex.join(program), shlex.join(again))
    ctx.exit(code)


def _say_where_to_look(script: Path, program: str, again: str) -> None:
    shown, workspace = shlex.quote(short_path(script)), shlex.quote(short_path(script.parent / "workspace"))
    commands = {
        f"{program} {again}": "once more: nothing has to run",
        shown: "the experiment, on one page; change a value in GRID, then",
        f"{program} plan {shown}": "what would run now, and why",
        f"{program} run {shown}": "run that, and only that",
        f"{program} results -w {workspace}": "what the jobs returned, the best first",
        f"{program} top -w {workspace}": "every job, live, in this terminal; `ui` shows them in a browser",
        f"{workspace}/jobs": "where the jobs keep their files",
    }
    tell("\nWhere to look next:")
    for command, meaning in commands.items():
        tell(f"  {command}\n      {meaning}")
