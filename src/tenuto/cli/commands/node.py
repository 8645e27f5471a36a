"""`tenuto node`: runs the jobs of servers on this machine."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click

from tenuto import __version__
from tenuto.cli.service_options import address_options, arguments_of, log_option, sandbox_option, tls_options
from tenuto.service.configuration import (
    node_address,
    node_limits,
    node_plan,
    node_secret,
    refuse_open_node,
)
from tenuto.service.http_server import ServedApp, run
from tenuto.service.log import log, log_to_stderr
from tenuto.service.node.node import EmbeddedNode
from tenuto.service.node.routes import NodeFront, node_app
from tenuto.settings import load_settings, process_environment
from tenuto.settings.service import NODE_SECTIONS
from tenuto.workspace.machine import this_machine


@click.command("node")
@address_options
@click.option("--data", metavar="DIR", help="Where payloads are kept.")
@click.option("--db", metavar="PATH", help="The node's SQLite file.")
@sandbox_option
@click.option("--token-file", metavar="FILE", help="The secret that servers must give.")
@click.option(
    "--insecure", is_flag=True, help="Take jobs without the secret, as job-orchestrator sends them."
)
@tls_options
@log_option
def command(
    host: str | None,
    port: int | None,
    data: str | None,
    db: str | None,
    sandbox: str | None,
    token_file: str | None,
    insecure: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    log_form: str,
) -> None:
    """Run the jobs of servers on this machine; a server names it under [services.NAME] nodes."""
    if insecure and token_file:
        raise click.UsageError(
            "--token-file names a secret that --insecure does not ask for: give one of them"
        )
    given = {"host": host, "port": port, "data": data, "database": db, "sandbox": sandbox}
    arguments = arguments_of("node", {**given, "token_file": token_file})
    settings = load_settings(arguments, foreign=NODE_SECTIONS)
    address = node_address(settings, (tls_cert, tls_key))
    machine = this_machine()
    exposed = not address.is_loopback
    tls = (tls_cert, tls_key)
    plan = node_plan(settings, process_environment(), under=None, is_exposed=exposed, tls=tls)
    refuse_open_node(plan, is_insecure=insecure)
    secret = None if insecure else node_secret(settings.node, plan.data, machine.randomness)
    node = EmbeddedNode(plan, machine)
    front = NodeFront(node, secret, __version__, machine.clock, node_limits(settings))
    hosts = (address.host, *settings.service.hosts, os.uname().nodename)

    def ready(url: str) -> None:
        log("ready", url=url, node=plan.name)
        if insecure:
            log("insecure", 30, node=plan.name)
        click.echo(f"tenuto: node on {url}")

    log_to_stderr(log_form)
    running = ServedApp(
        node_app(front, hosts, machine.randomness), node.start, ready, front.drain, node.close
    )
    asyncio.run(run(running, address, machine.clock))
