"""`tenuto token`: make, list and revoke the tokens of a server's users."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from tenuto.cli.options import json_option
from tenuto.database import Database
from tenuto.database.engine import SQLITE, database_url
from tenuto.errors import NotFound
from tenuto.jobs.text import safe_lines
from tenuto.service.access import TokenRow, Tokens, scopes_of, services_of
from tenuto.service.configuration import database_of
from tenuto.service.log import log, log_to_stderr
from tenuto.service.routes.common import instant
from tenuto.service.tables import MIGRATIONS, opened
from tenuto.settings import load_settings
from tenuto.settings.service import SERVER_SECTIONS

_DURATION = re.compile(r"([0-9]+)([smhd])")
PATIENCE_S = 10.0
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


F = TypeVar("F", bound=Callable[..., Any])


def db_option(command: F) -> F:
    """`--db`."""
    return click.option("--db", metavar="PATH|URL", help="The server's database.")(command)


def _tokens(db: str | None, *, makes: bool = False) -> tuple[Database, Tokens]:
    """``makes``: a database that is not there is made, for a server that was never started."""
    settings = load_settings({"service.database": db}, foreign=SERVER_SECTIONS)
    url = database_of(settings.service)
    found = database_url(url)
    if not makes and found.drivername == SQLITE and not os.path.exists(str(found.database)):
        raise NotFound(f"there is no database {url}: give the server's --db, or call this in its directory")
    database = opened(url, MIGRATIONS, PATIENCE_S)
    return database, Tokens(database)


def _milliseconds(context: click.Context, parameter: click.Parameter, text: str) -> int | None:
    if text == "none":
        return None
    found = _DURATION.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is no duration: give a number and s, m, h or d, or none")
    return int(found[1]) * _UNIT_S[found[2]] * 1000


@click.group("token")
def command() -> None:
    """Make, list and revoke the tokens of a server's users."""


@command.command("create")
@click.option("--user", required=True, metavar="NAME", help="Whose token it is.")
@click.option(
    "--scope", default="submit,read", show_default=True, help="submit, read, front, admin, metrics."
)
@click.option(
    "--expires", default="90d", show_default=True, callback=_milliseconds, help="30m, 12h, 90d, none."
)
@click.option("--services", metavar="A,B", help="The services that it may ask for; by default all.")
@click.option("--note", default="", help="What it is for.")
@db_option
@json_option
def create(
    user: str,
    scope: str,
    expires: int | None,
    services: str | None,
    note: str,
    db: str | None,
    as_json: bool,
) -> None:
    """Make a token and print it. It is shown this once: only its digest is kept."""
    scopes = scopes_of(scope)
    allowed = None if services is None else services_of(services)
    database, tokens = _tokens(db, makes=True)
    try:
        id, token = tokens.create(user, scopes, expires, note, allowed)
    finally:
        database.close()
    log_to_stderr("text")
    log("token_made", token=id, user=user, scopes=scope)
    click.echo(json.dumps({"id": id, "token": token}) if as_json else token)


@command.command("list")
@db_option
@json_option
def list_(db: str | None, as_json: bool) -> None:
    """List the tokens, without what makes them valid."""
    database, tokens = _tokens(db)
    try:
        rows, now_ms = tokens.listed(), tokens.now_ms()
    finally:
        database.close()
    if as_json:
        click.echo(json.dumps([_plain(row) for row in rows]))
        return
    for row in rows:
        end = f"until {instant(row.expires_at) or 'for ever'}"
        if row.expires_at is not None and row.expires_at <= now_ms:
            end = f"expired {instant(row.expires_at)}"
        end = "revoked" if row.revoked_at else end
        scopes = row.scopes if row.services is None else f"{row.scopes} for {row.services}"
        click.echo(safe_lines(f"{row.id}  {row.user_id}  {scopes}  {end}  {row.note}".rstrip()))


@command.command("revoke")
@click.argument("id", type=int)
@db_option
def revoke(id: int, db: str | None) -> None:
    """Make a token useless, at once."""
    database, tokens = _tokens(db)
    try:
        tokens.revoke(id)
    finally:
        database.close()
    log_to_stderr("text")
    log("token_revoked", token=id)


def _plain(row: TokenRow) -> dict[str, object]:
    return {
        "id": row.id,
        "user": row.user_id,
        "scopes": row.scopes.split(","),
        "services": None if row.services is None else row.services.split(","),
        "note": row.note,
        "created_at": instant(row.created_at),
        "expires_at": instant(row.expires_at),
        "revoked_at": instant(row.revoked_at),
    }
