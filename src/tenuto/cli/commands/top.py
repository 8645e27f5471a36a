"""`tenuto top`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from tenuto import __version__
from tenuto.cli import exit_codes
from tenuto.cli.chosen_jobs import job_options
from tenuto.cli.console import person, print_json
from tenuto.cli.options import LOOPBACK, open_catalogue
from tenuto.errors import Ambiguous, NotFound
from tenuto.jobs.query import read_question
from tenuto.lifecycle.owner_names import Door
from tenuto.light import late
from tenuto.monitor.provider import LocalProvider
from tenuto.monitor.remote import RemoteProvider
from tenuto.monitor.state_provider import StateProvider
from tenuto.monitor.web.registrations import Registration, new_code, registrations
from tenuto.settings import load_settings, process_environment, state_directory

if TYPE_CHECKING:
    from tenuto.monitor.tui import app
else:
    app = late("tenuto.monitor.tui.app")

LOAD_S = 60.0
"""How long an overview waits until all is known."""
MOST_GROUPS = 1_000


@click.command()
@click.argument("run", required=False)
@click.option("--filter", "filter_", metavar="FILTER", default="", help="Show the jobs that match.")
@click.option("--read-only", is_flag=True, help="Show, and do nothing.")
@click.option("--url", metavar="URL", help="Show the jobs of a `tenuto ui` elsewhere; needs --code.")
@click.option("--code", metavar="CODE", help="The code of that server's link.")
@job_options
@click.pass_context
def command(
    ctx: click.Context,
    run: str | None,
    filter_: str,
    read_only: bool,
    url: str | None,
    code: str | None,
    kind: str | None,
    workspace: str | None,
    as_json: bool,
) -> int:
    """Watch running, waiting and failed jobs of all kinds, and act on them.

    RUN is the run, service or search to show first: its name, or NAME/RUN. `?` lists the keys, `q` ends.
    With --json it prints one overview and ends.
    """
    if url is not None and code is None and "#code=" in url:
        url, _, code = url.partition("#code=")
    if (url is None) != (code is None):
        raise click.UsageError("--url and --code go together", ctx)
    if not as_json:
        _check_terminal(ctx)
    read_question(filter_, words=True)
    if kind is not None and run is None:
        filter_ = f"({filter_}) and kind={kind}" if filter_.strip() else f"kind={kind}"
    with _provider(url, code, workspace, read_only) as (provider, groups):
        group = _chosen(run, kind, groups) if run is not None else None
        if as_json:
            if isinstance(provider, LocalProvider):
                provider.wait_until_loaded(LOAD_S)
            print_json(provider.overview())
            return exit_codes.OK
        try:
            make = app.Top
        except ModuleNotFoundError as error:
            raise click.UsageError(f"{error.name} is missing: pip install 'tenuto[tui]'", ctx) from error
        login = provider.login if isinstance(provider, RemoteProvider) else None
        top = make(provider, group=group, filter=filter_, read_only=read_only, by=person(), login=login)
        top.run(mouse=False)
    return exit_codes.OK


def _check_terminal(ctx: click.Context) -> None:
    """A view needs a terminal on all three ends: Textual reads the first and draws on the third."""
    has_terminal = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    if not has_terminal or process_environment().get("TERM", "dumb") == "dumb":
        raise click.UsageError(
            "tenuto top needs a terminal: use tenuto status, or tenuto top --json in a program", ctx
        )


@contextmanager
def _provider(
    url: str | None, code: str | None, workspace: str | None, read_only: bool
) -> Iterator[tuple[StateProvider, Sequence[str]]]:
    """The watched workspace, here or elsewhere, and the names of its groups, the newest first."""
    if url is not None and code is not None:
        remote = RemoteProvider(url, code, _code_of(url))
        try:
            yield remote, [group["group"] for group in remote.groups(limit=MOST_GROUPS)["groups"]]
        finally:
            remote.close()
        return
    settings = load_settings()
    catalogue = open_catalogue(workspace, settings)
    groups = [group.group for group in catalogue.groups()]
    root = catalogue.view.layout.root
    local = LocalProvider(catalogue.sources, workspace=root, version=__version__, read_only=read_only)
    try:
        yield local, groups
    finally:
        local.close()


def _code_of(url: str) -> Callable[[], str | None] | None:
    """Asks the server of this port for a code; None if no server of this user on this machine has it."""
    parts = urlsplit(url)
    if parts.hostname not in LOOPBACK:
        return None
    registry = state_directory() / "ui"

    def found() -> Registration | None:
        return next((one for one in registrations(registry) if one.port == parts.port), None)

    def code() -> str | None:
        server = found()
        return new_code(server) if server is not None else None

    return code if found() is not None else None


def _chosen(run: str, kind: str | None, groups: Sequence[str]) -> str:
    """The newest group of a name; `NotFound` if there is none, `Ambiguous` if it may be of two kinds."""
    found: dict[str, str] = {}
    for group in groups:
        door, _, name = group.partition(":")
        if run in (group, name, name.rpartition("/")[0], name.rpartition("/")[2]):
            found.setdefault(Door(door).kind, group)
    kinds = found.keys() if kind is None else found.keys() & {kind}
    if len(kinds) > 1:
        raise Ambiguous(f"{run!r} is a {' and a '.join(kinds)}: add --kind {' or --kind '.join(kinds)}")
    if kinds:
        return found[min(kinds)]
    known = ", ".join(group.partition(":")[2] for group in groups[:5]) or "none"
    raise NotFound(f"no run, service or search is called {run!r}; the newest: {known}")
