"""What an error of a driver means: to be repeated, to be told, or a mistake of ours.
Reads codes, never the words of a message.
"""

from __future__ import annotations

import sqlite3
from enum import Enum, unique

from sqlalchemy.exc import DBAPIError


@unique
class Trouble(Enum):
    """What happened to a transaction."""

    LOST = "the connection was lost"
    BUSY = "another transaction was in the way"
    FULL = "the disk does not take what is written"
    DAMAGED = "the file is damaged"


_SQLITE = {
    sqlite3.SQLITE_BUSY: Trouble.BUSY,
    sqlite3.SQLITE_LOCKED: Trouble.BUSY,
    sqlite3.SQLITE_PROTOCOL: Trouble.BUSY,
    sqlite3.SQLITE_FULL: Trouble.FULL,
    sqlite3.SQLITE_IOERR: Trouble.FULL,
    sqlite3.SQLITE_READONLY: Trouble.FULL,
    sqlite3.SQLITE_CANTOPEN: Trouble.FULL,
    sqlite3.SQLITE_CORRUPT: Trouble.DAMAGED,
    sqlite3.SQLITE_NOTADB: Trouble.DAMAGED,
}
_BUSY_STATES = {"40001", "40P01", "55P03", "57014"}  # serialization, deadlock, lock and statement timeout
_LOST_STATES = {"57P01", "57P02", "57P03", "57P05", "25P03", "25P04", "53300"}
_LOST_CLASS = "08"
_FULL_STATES = {"53100", "53200"}
_PRIMARY = 0xFF


def trouble_of(error: DBAPIError) -> Trouble | None:
    """What the error means; None: a mistake of the statement, which repeating does not mend."""
    original = error.orig
    if isinstance(original, sqlite3.Error):
        code = getattr(original, "sqlite_errorcode", None)
        return None if code is None else _SQLITE.get(code & _PRIMARY)
    state = getattr(original, "sqlstate", None)
    if state in _BUSY_STATES:
        return Trouble.BUSY
    if state in _FULL_STATES:
        return Trouble.FULL
    if state in _LOST_STATES or (state or "").startswith(_LOST_CLASS):
        return Trouble.LOST
    if error.connection_invalidated or (state is None and _is_operational(original)):
        return Trouble.LOST
    return None


def _is_operational(original: BaseException | None) -> bool:
    """Whether the server or the way to it failed, also in a class of its own: a connection that timed out."""
    return any(one.__name__ == "OperationalError" for one in type(original).__mro__)
