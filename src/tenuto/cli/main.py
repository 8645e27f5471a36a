"""The entry point of the `tenuto` command."""

from __future__ import annotations

import click

from tenuto import __version__
from tenuto.cli.script import run_script


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tenuto")
def main() -> None:
    """Run work once, keep what it produced, and pick up where it stopped."""


@main.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(script: str, arguments: tuple[str, ...]) -> None:
    """Run an experiment's SCRIPT as `python SCRIPT` would, with the same identities."""
    run_script(script, arguments)
