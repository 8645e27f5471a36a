"""`tenuto node`: runs the jobs of servers on this machine."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click

from tenuto import __version__
from tenuto.cli.console import json_text, print_json
from tenuto.cli.main import CommandGroup
from tenuto.cli.options import json_option
from tenuto.cli.service_options import (
    address_options,
    arguments_of,
    log_option,
    remote_options,
    sandbox_option,
    tls_options,
)
from tenuto.errors import JobServiceError, TenutoError
from tenuto.service.configuration import (
    NODE_SECRET,
    address_of,
    node_limits,
    node_plan,
    node_secret,
    secret_in,
)
from tenuto.service.http_server import ServedApp, run
from tenuto.service.log import log, log_to_stderr
from tenuto.service.node.node import EmbeddedNode
from tenuto.service.node.routes import NodeFront, node_app
from tenuto.settings import load_settings, process_environment
from tenuto.settings.service import NODE_SECTIONS
from tenuto.workspace.machine import this_machine


@click.group("node", cls=CommandGroup, invoke_without_command=True)
@click.pass_context
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
@json_option
def command(
    context: click.Context,
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
    as_json: bool,
) -> None:
    """Run the jobs of servers on this machine; a server names it under [services.NAME] nodes."""
    if context.invoked_subcommand is not None:
        return
    if insecure and token_file:
        raise click.UsageError(
            "--token-file names a secret that --insecure does not ask for: give one of them"
        )
    given = {"host": host, "port": port, "data": data, "database": db, "sandbox": sandbox}
    arguments = arguments_of("node", {**given, "token_file": token_file})
    settings = load_settings(arguments, foreign=NODE_SECTIONS)
    address = address_of(settings.node, settings.service, (tls_cert, tls_key))
    machine = this_machine()
    exposed = not address.is_loopback
    tls = (tls_cert, tls_key)
    planned = partial(
        node_plan,
        variables=process_environment(),
        under=None,
        is_exposed=exposed,
        tls=tls,
        is_insecure=insecure,
    )
    plan = planned(settings)
    secret = None if insecure else node_secret(settings.node, plan.data, machine.randomness)
    node = EmbeddedNode(plan, machine)
    front = NodeFront(node, secret, __version__, machine.clock, node_limits(settings))
    hosts = (address.host, *settings.service.hosts, os.uname().nodename)

    def ready(url: str) -> None:
        log("ready", url=url, node=plan.name)
        if insecure:
            log("insecure", 30, node=plan.name)
        shown = json_text({"url": url, "node": plan.name, "pid": os.getpid()})
        click.echo(shown if as_json else f"tenuto: node on {url}")

    def reload() -> None:
        try:
            again = planned(load_settings(arguments, foreign=NODE_SECTIONS))
        except (TenutoError, OSError) as error:
            log("reload_failed", 40, why=str(error))
            return
        node.reload(again)
        log("reloaded", node=plan.name)

    log_to_stderr(log_form)
    running = ServedApp(
        node_app(front, hosts, machine.randomness), node.start, ready, front.drain, node.close, reload
    )
    asyncio.run(run(running, address, machine.clock))


# Taking a node out, and in again


ASK_S = 10.0
LOOK_S = 0.5


node_options = remote_options("its secret", "The node; by default the one of the settings.")


@command.command("drain")
@node_options
@click.option("--no-wait", is_flag=True, help="Return at once, and not when the node is empty.")
@json_option
def drain(url: str | None, token_file: Path | None, no_wait: bool, as_json: bool) -> None:
    """Let a node take nothing new, also after a restart, and say when it is empty; `resume` ends that."""
    ask = _asking(url, token_file)
    said = ask("POST", "/drain")
    if not as_json:
        click.echo(f"tenuto: node {said['node']} takes no more jobs; {said['payloads']} have not ended")
    while said["payloads"] and not no_wait:
        time.sleep(LOOK_S)
        said = {**said, **ask("GET", "/health")}
    if as_json:
        print_json({"node": said["node"], "drains": True, "payloads": said["payloads"]}, None)
    elif not said["payloads"]:
        click.echo(f"tenuto: node {said['node']} is empty")


@command.command("resume")
@node_options
@json_option
def resume(url: str | None, token_file: Path | None, as_json: bool) -> None:
    """Let a node take jobs again."""
    node = _asking(url, token_file)("POST", "/resume")["node"]
    shown = json_text({"node": node, "drains": False})
    click.echo(shown if as_json else f"tenuto: node {node} takes jobs again")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *asked: Any) -> None:
        """Follows none: the answer is an error, as it is."""


def _asking(url: str | None, token_file: Path | None) -> Callable[[str, str], dict[str, Any]]:
    """Asks a node, with its secret: of the file given, or of the settings of a node on this machine."""
    settings = load_settings({}, foreign=NODE_SECTIONS).node
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    base = (url or f"http://{host}:{settings.port}").rstrip("/")
    path = token_file or settings.token_file or (settings.data or Path("node")) / NODE_SECRET
    headers = {"Authorization": f"Bearer {secret_in(path)}"} if path.exists() else {}
    # The secret goes to this node alone: not to a proxy of the environment, nor where an answer leads.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())

    def ask(method: str, where: str) -> dict[str, Any]:
        request = urllib.request.Request(f"{base}{where}", b"" if method == "POST" else None, headers)
        try:
            with opener.open(request, timeout=ASK_S) as answer:
                said: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            said = {}
            with error, suppress(ValueError, TypeError):
                said = dict(json.load(error))
            if "payloads" not in said:  # a node that drains is not well, and says so
                why = said.get("message") or f"HTTP {error.code}"
                raise JobServiceError(
                    f"the node at {base} refused: {why} (its secret is read in {path})"
                ) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise JobServiceError(f"the node at {base} does not answer: {error}; give its --url") from None
        return said

    return ask
