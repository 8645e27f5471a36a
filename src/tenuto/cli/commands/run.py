"""`tenuto run`."""

from __future__ import annotations

import click

from tenuto.cli.script import run_script


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(script: str, arguments: tuple[str, ...]) -> None:
    """Run an experiment's SCRIPT as `python SCRIPT` would, with the same identities."""
    run_script(script, arguments)
