"""`tenuto top`."""

from __future__ import annotations

import click

from tenuto import __version__
from tenuto.cli import exits
from tenuto.cli.console import print_json
from tenuto.cli.doors import open_doors
from tenuto.cli.options import json_option, open_workspace, workspace_option
from tenuto.monitor.provider import LocalProvider
from tenuto.monitor.remote import RemoteProvider
from tenuto.settings import load_settings

LOAD_S = 60.0
"""How long an overview waits until all is known."""


@click.command()
@click.option("--url", metavar="URL", help="Show what a `tenuto ui` elsewhere shows; needs --code.")
@click.option("--code", metavar="CODE", help="The code of that server's link.")
@workspace_option
@json_option
@click.pass_context
def command(
    ctx: click.Context, url: str | None, code: str | None, workspace: str | None, as_json: bool
) -> int:
    """Show what runs, waits and failed, of all doors.

    With --json it prints one overview and ends.
    """
    if (url is None) != (code is None):
        raise click.UsageError("--url and --code go together", ctx)
    if not as_json:
        raise click.UsageError(
            "the terminal view is not there yet: use --json, tenuto status or tenuto ui", ctx
        )
    if url is not None and code is not None:
        remote = RemoteProvider(url, code)
        print_json(remote.overview())
        remote.close()
        return exits.OK
    settings = load_settings()
    view = open_workspace(workspace, settings)
    with open_doors(view, settings) as sources:
        provider = LocalProvider(sources, workspace=view.layout.root, version=__version__)
        try:
            provider.wait_until_loaded(LOAD_S)
            print_json(provider.overview())
        finally:
            provider.close()
    return exits.OK
