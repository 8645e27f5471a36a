"""Where a database is: a path, or a URL, and how that is shown to people.
Opens nothing.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from tenuto.errors import InvalidSetting

SQLITE = "sqlite"
POSTGRESQL = "postgresql"
_DRIVERS = {SQLITE: SQLITE, POSTGRESQL: "postgresql+psycopg", "postgres": "postgresql+psycopg"}


def database_url(given: str | Path) -> URL:
    """The URL of a database that was given as a path or as a URL.

    Raises `InvalidSetting` for another kind of database than SQLite and PostgreSQL, without its password.
    """
    if isinstance(given, Path) or "://" not in given:
        return _sqlite(str(given))
    try:
        url = make_url(given)
    except (ArgumentError, ValueError):
        raise InvalidSetting(
            "the URL of the database cannot be read: write postgresql://USER:PASSWORD@HOST/NAME or a path"
        ) from None
    kind = url.drivername.partition("+")[0]
    if kind not in _DRIVERS:
        raise InvalidSetting(
            f"{kind} is no database that Tenuto can use: give postgresql://... or the path of a SQLite file"
        )
    if kind == SQLITE:
        return _sqlite(url.database or "")
    return url.set(drivername=_DRIVERS[kind])


def _sqlite(path: str) -> URL:
    if path in ("", ":memory:"):
        raise InvalidSetting("a SQLite database needs a file: what is in memory does not survive its process")
    return URL.create(SQLITE, database=path)


def shown(url: URL) -> str:
    """The URL for people: a SQLite database by its path, a password as ``***``."""
    if url.drivername == SQLITE:
        return str(url.database)
    return url.set(drivername=POSTGRESQL).render_as_string(hide_password=True)


def without_password(text: str, url: URL) -> str:
    """A message of the driver, with the password of the URL taken out."""
    password = url.password
    return text.replace(str(password), "***") if password else text
