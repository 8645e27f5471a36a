"""Whose a data directory is: its lock, and the file `owner`, which holds the id of its one database.
Refuses the data of another database before anything in it is touched; touches no job.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, insert, select, text

from tenuto.database import SQLITE, Database, Migrations, database_url, shown
from tenuto.errors import DataInUse, ForeignData
from tenuto.service.tables import meta, opened
from tenuto.workspace.ports import LockHandle, Machine

OWNER = "owner"
DATABASE_ID = "database_id"
IS_MARKED = "data"
"""In `meta`: a data directory has the id of the database."""
_LONGEST = 200


class DataDirectory(NamedTuple):
    """A directory that is to belong to a database."""

    path: str
    jobs: str
    """The directory below it that holds one directory for each job."""
    user: str
    """The process that works in it: server or node."""


class OwnedData(NamedTuple):
    """A database, and that the data directory is its own."""

    database: Database
    database_id: str
    lock: LockHandle | None
    """None where several servers share the data."""


def open_data(
    machine: Machine, data: DataDirectory, url: str | Path, migrations: Migrations, patience_s: float
) -> OwnedData:
    """A database and its data directory, which is made and locked; both are closed again if they do not fit.

    Raises `ForeignData` if they do not belong together, and `DataInUse`.
    """
    found = database_url(url)
    is_sqlite = found.drivername == SQLITE
    if is_sqlite and not os.path.exists(str(found.database)):
        owner = _owner(data)
        if owner is not None or _holds_jobs(data):
            raise ForeignData(
                f"{data.path} belongs to the database {owner or 'of other jobs'}, and {shown(found)} does "
                "not exist: give the --db of this data, or another --data; nothing was changed"
            )
    with ExitStack() as held:
        lock = _locked(machine, data) if is_sqlite else None
        if lock is not None:
            held.callback(lock.close)
        database = opened(url, migrations, patience_s)
        held.callback(database.close)
        owned = OwnedData(database, claim_data(machine, data, database), lock)
        held.pop_all()
        return owned


def claim_data(machine: Machine, data: DataDirectory, database: Database) -> str:
    """The id of a database, which its data directory holds from now on.

    Raises `ForeignData` if the directory is another's, or not the one that was claimed before.
    """
    database_id = database.write(partial(_identified, machine.randomness.nonce()))
    database.write(partial(_claimed, machine, data, database.shown_url, database_id))
    return database_id


def _locked(machine: Machine, data: DataDirectory) -> LockHandle:
    os.makedirs(data.path, mode=0o700, exist_ok=True)
    lock = machine.locks.try_lock(os.path.join(data.path, f"{data.user}.lock"))
    if lock is None:
        raise DataInUse(
            f"another {data.user} works in {data.path}: stop it first, or give this one another --data"
        )
    return lock


def _identified(fresh: str, connection: Connection) -> str:
    """What tells this database from every other; `fresh` becomes it if there is none yet."""
    _take_turns(connection)
    known = _known(connection, DATABASE_ID)
    if known is None:
        connection.execute(insert(meta).values(key=DATABASE_ID, value=fresh))
    return known or fresh


def _claimed(
    machine: Machine, data: DataDirectory, shown_url: str, database_id: str, connection: Connection
) -> None:
    """Writes the owner of a new directory, while no other server can; refuses another database's."""
    _take_turns(connection)
    is_marked = _known(connection, IS_MARKED) is not None
    owner = _owner(data)
    remedy = f"if it is the data of this database all the same, write {database_id} into {data.path}/{OWNER}"
    if owner is not None and owner != database_id:
        raise ForeignData(
            f"{data.path} belongs to the database {owner}, and {shown_url} is {database_id}: give the --db "
            "of this data, or another --data; nothing was changed"
        )
    if owner is None and is_marked:
        raise ForeignData(
            f"{data.path} is not the data of the database {shown_url} ({database_id}), which has this id in "
            f"the file {OWNER}: the data is not shared between the servers, or a disk is not mounted. Give "
            f"the right --data; {remedy}"
        )
    if owner is None and _holds_jobs(data):
        raise ForeignData(
            f"{data.path} holds jobs, and {shown_url} ({database_id}) is new: give the --db of this data, or "
            f"another --data; {remedy}"
        )
    if owner is None:
        os.makedirs(data.path, mode=0o700, exist_ok=True)
        machine.files.replace(os.path.join(data.path, OWNER), f"{database_id}\n".encode(), durable=True)
    if not is_marked:
        connection.execute(insert(meta).values(key=IS_MARKED, value="marked"))


def _take_turns(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("LOCK TABLE meta IN EXCLUSIVE MODE"))


def _known(connection: Connection, key: str) -> str | None:
    return connection.execute(select(meta.c.value).where(meta.c.key == key)).scalar()


def _owner(data: DataDirectory) -> str | None:
    """The id that a directory has; None if it has none."""
    try:
        with open(os.path.join(data.path, OWNER), encoding="utf-8", errors="replace") as file:
            return file.read(_LONGEST).strip()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _holds_jobs(data: DataDirectory) -> bool:
    try:
        with os.scandir(data.jobs) as found:
            return any(found)
    except (FileNotFoundError, NotADirectoryError):
        return False
