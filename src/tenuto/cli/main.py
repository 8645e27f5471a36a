"""The entry point of the `tenuto` command: a table of commands, each loaded when it is called."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from tenuto import __version__
from tenuto.errors import TenutoError

COMMANDS = {
    "run": "Run an experiment: a script, or a YAML file.",
    "plan": "Say what a run would do, and why; do nothing.",
    "doctor": "Show the settings, and check this machine.",
    "demo": "Run a small sweep, to see what Tenuto does.",
    "completion": "Print the code that lets a shell complete `tenuto`.",
}
"""Name and help of each command; the command itself is `tenuto.cli.commands.NAME:command`."""

EXIT_USAGE = 2


class Commands(click.Group):
    """Loads a command's module only when that command is called: `--help` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"tenuto.cli.commands.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tenuto")
def commands() -> None:
    """Run work once, keep what it produced, and pick up where it stopped."""


def main() -> Any:
    """Runs the command line; an error of ours is a sentence, not a traceback."""
    try:
        return commands(prog_name="tenuto")  # also under `python -m tenuto`
    except TenutoError as error:
        click.echo(f"tenuto: {error}", err=True)
        sys.exit(EXIT_USAGE)
