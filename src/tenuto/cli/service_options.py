"""Options that the commands of the job service share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from tenuto.settings.declaration import NODE_URL, Unfit

F = TypeVar("F", bound=Callable[..., Any])


def address_options(command: F) -> F:
    """`--host`, `--port`."""
    command = click.option("--port", type=click.IntRange(0, 65535), help="0 takes a free one.")(command)
    return click.option("--host", metavar="ADDRESS", help="The address to listen on.")(command)


def sandbox_option(command: F) -> F:
    """`--sandbox`."""
    return click.option(
        "--sandbox",
        type=click.Choice(["auto", "bwrap", "uid", "none"]),
        help="How the programs of users are kept apart from this machine.",
    )(command)


def tls_options(command: F) -> F:
    """`--tls-cert`, `--tls-key`."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    command = click.option("--tls-key", type=file, help="Its key.")(command)
    return click.option("--tls-cert", type=file, help="The certificate, for https.")(command)


def log_option(command: F) -> F:
    """`--log`."""
    return click.option(
        "--log",
        "log_form",
        type=click.Choice(["text", "json"]),
        default="text",
        help="The form of the log lines, on standard error.",
    )(command)


def remote_options(whose: str, default: str) -> Callable[[F], F]:
    """`--url`, `--token-file`: whose secret the file holds, and the address asked by default."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)

    def add(command: F) -> F:
        command = click.option("--token-file", type=file, help=f"The file that holds {whose}.")(command)
        return click.option("--url", metavar="URL", callback=_server_url, help=default)(command)

    return add


def _server_url(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    try:
        return None if text is None else NODE_URL.take(text).reveal()
    except Unfit:
        raise click.BadParameter(
            f"{text!r} is no URL of a server: give http://HOST:PORT or https://..."
        ) from None


def arguments_of(section: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Options as arguments of the settings, by dotted key."""
    return {f"{section}.{name}": value for name, value in given.items()}
