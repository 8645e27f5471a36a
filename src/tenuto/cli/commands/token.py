"""`tenuto token`: make, list and revoke the tokens of a server's users."""

from __future__ import annotations

import csv
import os
import re
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from tenuto.cli.console import json_text, print_json, table
from tenuto.cli.main import CommandGroup
from tenuto.cli.options import exclusive, json_option
from tenuto.database import SQLITE, Database, database_url
from tenuto.errors import NotFound
from tenuto.jobs.drawing import Column
from tenuto.jobs.text import duration, safe_lines, size_text
from tenuto.service.access import TokenRow, Tokens, scopes_of, services_of
from tenuto.service.configuration import database_of
from tenuto.service.log import log, log_to_stderr
from tenuto.service.rows import UserLimits, instant
from tenuto.service.tables import MIGRATIONS, opened
from tenuto.service.usage import BY, Used, groups_of, used
from tenuto.settings import load_settings
from tenuto.settings.declaration import BYTES, Unfit
from tenuto.settings.service import SERVER_SECTIONS

_DURATION = re.compile(r"([0-9]+)([smhd])")
PATIENCE_S = 10.0
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LONGEST_S = 36525 * 86400
MOST = click.IntRange(1, 2**31 - 1)
"""What a column for a number of jobs or requests holds."""
MOST_BYTES = 2**63 - 1


F = TypeVar("F", bound=Callable[..., Any])


def db_option(command: F) -> F:
    """`--db`."""
    return click.option("--db", metavar="PATH|URL", help="The server's database.")(command)


def _tokens(db: str | None, *, makes: bool = False) -> tuple[Database, Tokens]:
    database = _opened(db, makes=makes)
    return database, Tokens(database)


def _opened(db: str | None, *, makes: bool = False) -> Database:
    """``makes``: a database that is not there is made, for a server that was never started."""
    settings = load_settings({"service.database": db}, foreign=SERVER_SECTIONS)
    url = database_of(settings.service)
    found = database_url(url)
    if not makes and found.drivername == SQLITE and not os.path.exists(str(found.database)):
        raise NotFound(f"there is no database {url}: give the server's --db, or call this in its directory")
    return opened(url, MIGRATIONS, PATIENCE_S)


def _milliseconds(context: click.Context, parameter: click.Parameter, text: str) -> int | None:
    if text == "none":
        return None
    found = _DURATION.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is no duration: give a number and s, m, h or d, or none")
    seconds = int(found[1]) * _UNIT_S[found[2]]
    if seconds > LONGEST_S:
        raise click.BadParameter(f"{text!r} is more than a hundred years: give none")
    return seconds * 1000


def _size(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        if (size := BYTES.take(BYTES.read(text))) <= MOST_BYTES:
            return size
        raise Unfit
    except Unfit:
        raise click.BadParameter(f"{text!r} is no size: give {BYTES.name}") from None


@click.group("token", cls=CommandGroup)
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
@click.option("--queued", type=MOST, help="Jobs of its user that may wait in the queue.")
@click.option("--stored-bytes", metavar="SIZE", callback=_size, help="Size of its user's files, such as 20G.")
@click.option("--connections", type=MOST, help="Requests of its user at once.")
@click.option("--note", default="", help="Its purpose, a note for people.")
@db_option
@json_option
def create(
    user: str,
    scope: str,
    expires: int | None,
    services: str | None,
    queued: int | None,
    stored_bytes: int | None,
    connections: int | None,
    note: str,
    db: str | None,
    as_json: bool,
) -> None:
    """Make a token and print it. It is shown this once: only its digest is kept.

    Its limits hold in place of the server's queued_per_user, stored_bytes_per_user and connections_per_user.
    """
    scopes = scopes_of(scope)
    allowed = None if services is None else services_of(services)
    database, tokens = _tokens(db, makes=True)
    try:
        id, token = tokens.create(
            user, scopes, expires, note, allowed, UserLimits(queued, stored_bytes, connections)
        )
    finally:
        database.close()
    log_to_stderr("text")
    log("token_made", token=id, user=user, scopes=scope)
    click.echo(json_text({"id": id, "token": token}) if as_json else token)


@command.command("list")
@db_option
@json_option
def list_(db: str | None, as_json: bool) -> None:
    """List the tokens, without their secrets."""
    database, tokens = _tokens(db)
    try:
        rows, now_ms = tokens.listed(), tokens.now_ms()
    finally:
        database.close()
    if as_json:
        print_json([_plain(row) for row in rows], None)
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
@json_option
def revoke(id: int, db: str | None, as_json: bool) -> None:
    """Make a token useless, at once."""
    database, tokens = _tokens(db)
    try:
        tokens.revoke(id)
    finally:
        database.close()
    log_to_stderr("text")
    log("token_revoked", token=id)
    if as_json:
        print_json({"id": id, "revoked": True}, None)


def _plain(row: TokenRow) -> dict[str, object]:
    return {
        "id": row.id,
        "user": row.user_id,
        "scopes": row.scopes.split(","),
        "services": None if row.services is None else row.services.split(","),
        "queued": row.queued,
        "stored_bytes": row.stored_bytes,
        "connections": row.connections,
        "note": row.note,
        "created_at": instant(row.created_at),
        "expires_at": instant(row.expires_at),
        "revoked_at": instant(row.revoked_at),
    }


@click.command("usage")
@click.option(
    "--by", default="user,service,month", show_default=True, help="Sum it up by these: user, service, month."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@db_option
@json_option
def usage(by: str, as_csv: bool, db: str | None, as_json: bool) -> None:
    """Show what the users of a service took: jobs that ended, processors, memory, bytes.

    Exit codes: 0 done; 2 wrong usage; 3 no such database.
    """
    groups = groups_of(by)
    exclusive({"--csv": as_csv, "--json": as_json})
    database = _opened(db)
    try:
        found = database.read(lambda connection: used(connection, groups))
    finally:
        database.close()
    names = [*groups, *Used._fields[len(BY) :]]
    rows = [[getattr(row, name) for name in names] for row in found]
    if as_json:
        print_json([dict(zip(names, row, strict=True)) for row in rows], None)
    elif as_csv:
        csv.writer(sys.stdout, lineterminator="\n").writerows([names, *rows])
    else:
        sizes = {"memory_peak", "bytes_in", "bytes_out"}
        shown = [[_cell(name, value, sizes) for name, value in zip(names, row, strict=True)] for row in rows]
        table([Column(name.upper(), right=name not in BY) for name in names], shown)


def _cell(name: str, value: Any, sizes: set[str]) -> str:
    if name in sizes:
        return size_text(value)
    return duration(value) if name == "cpu_s" else str(value)
