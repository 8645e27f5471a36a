"""The entry point of the `tenuto` command: a table of commands, each loaded when it is called."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from tenuto import __version__
from tenuto.cli import exit_codes
from tenuto.errors import TenutoError
from tenuto.jobs.text import safe_lines

COMMANDS = {
    "run": "Run an experiment: a script, or a YAML file.",
    "plan": "Say what a run would do, and why; do nothing.",
    "status": "Show runs, searches and services, and what runs now.",
    "top": "Watch and steer in the terminal.",
    "ui": "Watch and steer in a browser.",
    "jobs": "List jobs, filtered and sorted.",
    "results": "Show what jobs gave, the best first.",
    "graph": "Draw which job waits for which: as text, DOT or SVG.",
    "files": "List the files that a job left.",
    "logs": "Show what a job printed.",
    "why": "Say why a job is in its state, and why it was not reused.",
    "kill": "Stop running jobs.",
    "retry": "Run failed jobs again, now.",
    "pause": "Let a search start nothing more for a while.",
    "resume": "Let a paused search go on.",
    "clean": "Delete the directories of jobs.",
    "runs": "List, show and prune runs.",
    "evolve": "Run a search, and watch its archive fill.",
    "worker": "Evaluate candidates of searches, on any machine.",
    "search": "What only a search has: its best, its workers, its end.",
    "launchers": "Say which launchers there are, and which one a requirement leads to.",
    "doctor": "Show the settings, and check this machine.",
    "demo": "Run a small sweep, to see what Tenuto does.",
    "serve": "Offer services over HTTP: uploads in, ZIPs of results out.",
    "node": "Run the jobs of servers on this machine.",
    "token": "Make, list and revoke the tokens of a server's users.",
    "completion": "Print the code that lets a shell complete `tenuto`.",
}
"""Name and help of each command; the command itself is `tenuto.cli.commands.NAME:command`."""

EXTRAS = {
    "evolve": "search",
    "search": "search",
    "worker": "search",
    "serve": "service",
    "node": "service",
    "token": "service",
}
"""The extra that a command needs."""


class Commands(click.Group):
    """Loads a command's module only when that command is called: `--help` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        try:
            command: click.Command = import_module(f"tenuto.cli.commands.{cmd_name}").command
        except ModuleNotFoundError as error:
            if cmd_name not in EXTRAS or (error.name or "").partition(".")[0] == "tenuto":
                raise
            extra = EXTRAS[cmd_name]
            raise click.UsageError(
                f"`tenuto {cmd_name}` needs an extra ({error.name} is missing): pip install 'tenuto[{extra}]'"
            ) from None
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tenuto")
def commands() -> None:
    """Run work once, keep what it produced, and pick up where it stopped."""


def main() -> Any:
    """Runs the command line; an error of ours is a sentence, not a traceback.

    A command returns its exit code; none is a success.
    """
    try:
        code = commands(prog_name="tenuto", standalone_mode=False)  # the name also under `python -m`
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(exit_codes.INTERRUPTED)
    except TenutoError as error:
        text = safe_lines(str(error)).replace("\n", f"\n{' ' * len('tenuto: ')}")  # a pointer stays in place
        click.echo(f"tenuto: {text}", err=True)
        sys.exit(exit_codes.exit_code(error))
    except OSError as error:
        if error.filename is None:  # none of a disk's: a bug, whose traceback is wanted
            raise
        sentence = f"{error.filename} cannot be used: {error.strerror}; check its permissions and the disk"
        click.echo(f"tenuto: {safe_lines(sentence)}", err=True)
        sys.exit(exit_codes.USAGE)
    sys.exit(code if isinstance(code, int) else exit_codes.OK)
