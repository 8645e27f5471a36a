"""`tenuto serve`: the server of the job service, with or without a node inside."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from tenuto import __version__
from tenuto.cli.console import json_text
from tenuto.cli.options import json_option
from tenuto.cli.service_options import address_options, arguments_of, log_option, sandbox_option, tls_options
from tenuto.database import refuse_unusable
from tenuto.errors import TenutoError
from tenuto.service.callbacks import CallbackHosts
from tenuto.service.configuration import (
    address_of,
    database_of,
    node_plan,
    offered,
    refuse_strangers,
    remote_nodes,
    secret_in,
)
from tenuto.service.context import Offered
from tenuto.service.guard import Proxies
from tenuto.service.http_server import ServedApp, run
from tenuto.service.local_node import LocalNode
from tenuto.service.log import log, log_to_stderr
from tenuto.service.node.node import EmbeddedNode, NodePlan
from tenuto.service.nodes import Node
from tenuto.service.server import Server, ServerPlan, server_data
from tenuto.service.tables import MIGRATIONS
from tenuto.settings import Settings, load_settings, process_environment
from tenuto.settings.service import SERVER_SECTIONS
from tenuto.workspace.machine import this_machine


@click.command("serve")
@address_options
@click.option("--data", metavar="DIR", help="Where uploads and results are kept.")
@click.option("--db", metavar="PATH|URL", help="The database: a SQLite file, or postgresql://...")
@click.option("--with-node", is_flag=True, help="Run the jobs here, too.")
@click.option("--service", "services", metavar="NAME", multiple=True, help="Offer this service; repeatable.")
@click.option("--auth", type=click.Choice(["none", "tokens"]), help="Whether requests need a token.")
@click.option("--insecure", is_flag=True, help="Serve every client, also on other machines, without a token.")
@click.option("--compat", type=click.Choice(["hybrid", "v1", "v2"]), help="Version of the status codes.")
@sandbox_option
@tls_options
@log_option
@json_option
def command(
    host: str | None,
    port: int | None,
    data: str | None,
    db: str | None,
    with_node: bool,
    services: tuple[str, ...],
    auth: str | None,
    insecure: bool,
    compat: str | None,
    sandbox: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    log_form: str,
    as_json: bool,
) -> None:
    """Offer services over HTTP: users upload files with a run.sh, and get a ZIP of results."""
    given = {"host": host, "port": port, "data": data, "database": db, "auth": auth, "compat": compat}
    arguments = arguments_of("service", given) | arguments_of("node", {"sandbox": sandbox})
    tls = (tls_cert, tls_key)
    offer = _Offer(arguments, services, with_node)
    settings, found = offer.read()
    address = address_of(settings.service, settings.service, tls)
    refuse_strangers(address, settings.service.auth, is_insecure=insecure)
    log_to_stderr(log_form)
    server, embedded = _assembled(offer, settings, found, tls)

    async def start() -> None:
        if embedded is not None:
            await embedded.start()
        await server.start()
        await server.rehearse()

    def ready(url: str) -> None:
        log("ready", url=url, services=",".join(found))
        shown = json_text({"url": url, "services": list(found), "pid": os.getpid()})
        click.echo(shown if as_json else f"tenuto: serving on {url}")

    reload = partial(_reload, offer, server, embedded, tls)
    served = ServedApp(server.app(), start, ready, server.drain, server.close, reload)
    asyncio.run(run(served, address, this_machine().clock))


class _Offer(NamedTuple):
    """What the command line says of the settings, which are read anew on SIGHUP."""

    arguments: dict[str, Any]
    services: tuple[str, ...]
    with_node: bool

    def read(self) -> tuple[Settings, dict[str, Offered]]:
        settings = load_settings(self.arguments, foreign=SERVER_SECTIONS)
        return settings, offered(settings, self.services, with_node=self.with_node)


def _assembled(
    offer: _Offer, settings: Settings, found: dict[str, Offered], tls: tuple[Path | None, Path | None]
) -> tuple[Server, EmbeddedNode | None]:
    """The server, and the node inside it; refuses settings that cannot work before anything is touched."""
    service, machine = settings.service, this_machine()
    Proxies(service.prefix, service.trusted_proxies)
    CallbackHosts(service.callback_hosts)
    if service.callback_secret_file is not None:
        secret_in(service.callback_secret_file)
    refuse_unusable(database_of(service), MIGRATIONS)
    server_plan = ServerPlan(service, database_of(service), found, __version__)
    plan = _plan_inside(settings, tls) if offer.with_node else None
    owned = server_data(server_plan, machine)  # before a node touches anything there
    nodes: dict[str, Node] = {}
    embedded = None if plan is None else EmbeddedNode(plan, machine)
    if embedded is not None:
        nodes[embedded.name] = LocalNode(embedded)
    nodes |= remote_nodes(settings, found, None if embedded is None else embedded.name)
    return Server(server_plan, nodes, machine, owned), embedded


def _plan_inside(settings: Settings, tls: tuple[Path | None, Path | None]) -> NodePlan:
    """How the node inside the server is to be."""
    service = settings.service
    exposed = service.auth == "tokens" or not address_of(service, service, tls).is_loopback
    under = service.data.absolute()
    return node_plan(settings, process_environment(), under=under, is_exposed=exposed, tls=tls)


def _reload(
    offer: _Offer, server: Server, embedded: EmbeddedNode | None, tls: tuple[Path | None, Path | None]
) -> None:
    """Reads services, nodes and quotas anew; settings that are wrong change nothing."""
    try:
        anew, offers = offer.read()
        named = remote_nodes(anew, offers, None if embedded is None else embedded.name)
        CallbackHosts(anew.service.callback_hosts)
        plan = None if embedded is None else _plan_inside(anew, tls)
        server.reload(offers, named, anew.service)
    except (TenutoError, OSError) as error:
        log("reload_failed", 40, why=str(error))
        return
    if embedded is not None and plan is not None:
        embedded.reload(plan, is_inside=True)
    log("reloaded", services=",".join(offers), nodes=",".join(server.parts.book.nodes))
