"""What an error of a driver means: to be repeated, to be told, or a mistake of ours.
Reads codes, never the words of a message.
"""

from __future__ import annotations

import sqlite3
from enum import Enum, unique

from sqlalchemy.exc import DBAPIError


@unique
class Fault(Enum):
    """What happened to a transaction."""

    LOST = "the connection was lost"
    BUSY = "another transaction was in the way"
    FULL = "the disk does not take what is written"
    DAMAGED = "the file is damaged"


_SQLITE = {
    sqlite3.SQLITE_BUSY: Fault.BUSY,
    sqlite3.SQLITE_LOCKED: Fault.BUSY,
    sqlite3.SQLITE_PROTOCOL: Fault.BUSY,
    sqlite3.SQLITE_FULL: Fault.FULL,
    sqlite3.SQLITE_IOERR: Fault.FULL,
    sqlite3.SQLITE_READONLY: Fault.FULL,
    sqlite3.SQLITE_CANTOPEN: Fault.FULL,
    sqlite3.SQLITE_CORRUPT: Fault.DAMAGED,
    sqlite3.SQLITE_NOTADB: Fault.DAMAGED,
}
_BUSY_STATES = {"40001", "40P01", "55P03", "57014"}  # serialization, deadlock, lock and statement timeout
_LOST_STATES = {"57P01", "57P02", "57P03", "57P05", "25P03", "25P04", "53300"}
_LOST_CLASS = "08"
_FULL_STATES = {"53100", "53200"}
_PRIMARY = 0xFF


def fault_of(error: DBAPIError) -> Fault | None:
    """What the error means; None: a mistake of the statement, which repeating does not mend."""
    original = error.orig
    if isinstance(original, sqlite3.Error):
        code = getattr(original, "sqlite_errorcode", None)
        return None if code is None else _SQLITE.get(code & _PRIMARY)
    state = getattr(original, "sqlstate", None)
    if state in _BUSY_STATES:
        return Fault.BUSY
    if state in _FULL_STATES:
        return Fault.FULL
    if state in _LOST_STATES or (state or "").startswith(_LOST_CLASS):
        return Fault.LOST
    if error.connection_invalidated or (state is None and _is_operational(original)):
        return Fault.LOST
    return None


def _is_operational(original: BaseException | None) -> bool:
    """Whether the server or the way to it failed, also in a class of its own: a connection that timed out."""
    return any(one.__name__ == "OperationalError" for one in type(original).__mro__)
