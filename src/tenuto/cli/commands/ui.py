"""`tenuto ui`."""

from __future__ import annotations

import os
import socket
import stat
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tenuto import __version__
from tenuto.cli import exit_codes
from tenuto.cli.console import note, person, print_json
from tenuto.cli.options import LOOPBACK, common_options, open_catalogue, open_workspace
from tenuto.errors import NotFound
from tenuto.jobs.tcp_ports import LOCALHOST
from tenuto.light import late
from tenuto.monitor.provider import LocalProvider
from tenuto.monitor.web.registrations import Address, new_code, registrations
from tenuto.settings import Settings, load_settings, state_directory
from tenuto.settings.urls import Url

if TYPE_CHECKING:
    from tenuto.monitor.web import http_server
else:
    http_server = late("tenuto.monitor.web.http_server")

_LONGEST_CODE = 1_000
_REACHABLE = (
    "{host} can be reached from other machines: add --allow-remote if that is wanted, or go through "
    "ssh -L 8368:localhost:8368"
)
_PLAIN = (
    "this is plain HTTP: every machine between you and this one can read the page and take over its login. "
    "Through an untrusted network use ssh -L 8368:localhost:8368, or a proxy with TLS."
)


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help="Listen here; 0 for a free one. By default 8368.")
@click.option("--host", default=LOCALHOST, show_default=True, metavar="ADDR", help="Listen on this address.")
@click.option("--allow-remote", is_flag=True, help="Let other machines in, by plain HTTP; needs --host.")
@click.option("--allow-host", "allowed", multiple=True, metavar="NAME", help="A name that browsers may use.")
@click.option("--read-only", is_flag=True, help="Show, and do nothing.")
@click.option(
    "--code-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Take the first code from a file, and delete it.",
)
@click.option("--open", "opens", is_flag=True, help="Open a browser.")
@click.option(
    "--service-db", metavar="PATH|URL", help="Show the jobs of the service with this database, too."
)
@click.option("--login", is_flag=True, help="Print a new link of a server that runs.")
@common_options
@click.pass_context
def command(
    ctx: click.Context,
    port: int | None,
    host: str,
    allow_remote: bool,
    allowed: tuple[str, ...],
    read_only: bool,
    code_file: Path | None,
    opens: bool,
    service_db: str | None,
    login: bool,
    workspace: str | None,
    as_json: bool,
) -> int:
    """Serve a page that shows running, waiting and failed jobs, and lets you act on them.

    The link that is printed logs one browser in, once. The server ends with Ctrl-C; jobs continue.
    """
    registry = state_directory() / "ui"
    if login:
        root = None if port is not None else open_workspace(workspace).layout.root
        return _login(registry, port, root, as_json)
    if host not in LOOPBACK and not allow_remote:
        raise click.UsageError(_REACHABLE.format(host=host), ctx)
    if host not in LOOPBACK:
        note(_PLAIN)
    settings = settings_with_service(service_db)
    catalogue = open_catalogue(workspace, settings)
    code = _first_code(code_file, ctx)
    with _listening(host, port, ctx) as listening:
        provider = LocalProvider(
            catalogue.sources,
            workspace=catalogue.view.layout.root,
            version=__version__,
            read_only=read_only,
        )
        server = http_server.WebServer(
            provider, listening, host=host, allowed_hosts=allowed, registry=registry, by=person()
        )
        try:
            _serve(provider, server, code, opens, as_json)
        finally:
            provider.close()
    return exit_codes.OK


def settings_with_service(database: str | None) -> Settings:
    """The settings, with this database of a service; `NotFound` if it is a file that is not there."""
    settings = load_settings({} if database is None else {"service.database": database})
    path = settings.service.database
    if database is not None and not isinstance(path, Url) and not Path(path).exists():
        raise NotFound(f"there is no database {database}: give the file or URL that `tenuto serve --db` has")
    return settings


def _listening(host: str, port: int | None, ctx: click.Context) -> socket.socket:
    """The socket of the server; the first part of `tenuto[web]` that is needed."""
    try:
        return http_server.open_socket(host, port)
    except ModuleNotFoundError as error:
        raise click.UsageError(f"{error.name} is missing: pip install 'tenuto[web]'", ctx) from error


def _serve(
    provider: LocalProvider, server: http_server.WebServer, code: str | None, opens: bool, as_json: bool
) -> None:
    """Say how one browser logs in, by a given code or a new one, and serve until Ctrl-C."""
    if code is None:
        code = server.sessions.new_code()
    else:
        server.sessions.add_code(code)
    link = server.link(code)

    def ready() -> None:
        if as_json:
            _tell(provider, server, code)
        else:
            click.echo(link)
        if opens:
            threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()

    server.run(ready, os.getpid())


def _tell(provider: LocalProvider, server: http_server.WebServer, code: str) -> None:
    """Print, for a program, where the server is and how a browser logs in."""
    about = provider.about()
    print_json(
        {
            "url": server.address.url,
            "login": server.link(code),
            "code": code,
            "host": server.address.host,
            "port": server.address.port,
            "pid": os.getpid(),
            "workspace": about["workspace"],
            "kinds": about["kinds"],
            "read_only": about["read_only"],
        }
    )


def _first_code(path: Path | None, ctx: click.Context) -> str | None:
    """The code that another process made; its file is deleted, since the code works once."""
    if path is None:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, encoding="ascii") as file:
            found = os.fstat(file.fileno())
            is_private = stat.S_ISREG(found.st_mode) and not found.st_mode & 0o077
            code = file.read(_LONGEST_CODE).strip()
        if not is_private or found.st_uid != os.geteuid():
            raise click.UsageError(f"{path} must be a file of yours that nobody else can read (0600)", ctx)
        path.unlink()
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{path} cannot be read: {error}", ctx) from error
    if not code:
        raise click.UsageError(f"{path} holds no code", ctx)
    return code


def _login(registry: Path, port: int | None, workspace: str | None, as_json: bool) -> int:
    for found in registrations(registry):
        if found.port == port if port is not None else found.workspace == workspace:
            code = new_code(found)
            if code is not None:
                url = Address(found.host, found.port).url
                link = f"{url}#code={code}"
                if as_json:
                    print_json({"url": url, "login": link, "code": code, "port": found.port})
                else:
                    click.echo(link)
                return exit_codes.OK
            note(f"the server on port {found.port} does not answer")
    where = f"on port {port}" if port is not None else f"for {workspace}"
    raise NotFound(f"no server of yours runs {where}: start one with tenuto ui")
