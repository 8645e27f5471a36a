"""SQL shared by the service and the search: engine, transactions, migrations, members, their rows, wake-ups.
Knows no door's table; the only one of its own is `members`.
"""

from tenuto.database.engine import SQLITE, Prepared, clean, database_url, now_ms, shown
from tenuto.database.members import (
    Member,
    MemberKind,
    be_seen,
    dismiss,
    join,
    leave,
    listed,
    see,
    unseen,
)
from tenuto.database.migration import Migrations, migrate, refuse_unusable
from tenuto.database.row_table import LateIds, RowTable
from tenuto.database.transactions import Database
from tenuto.database.wakeups import announce

__all__ = [
    "SQLITE",
    "Database",
    "LateIds",
    "Member",
    "MemberKind",
    "Migrations",
    "Prepared",
    "RowTable",
    "announce",
    "be_seen",
    "clean",
    "database_url",
    "dismiss",
    "join",
    "leave",
    "listed",
    "migrate",
    "now_ms",
    "refuse_unusable",
    "see",
    "shown",
    "unseen",
]
