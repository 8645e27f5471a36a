"""SQL shared by the service and the search: engine, transactions, migrations, members, their rows, wake-ups.
Knows no door's table; the only one of its own is `members`.
"""

from tenuto.database.engine import Prepared, clean, now_ms
from tenuto.database.migration import Migrations, migrate, refuse_unusable
from tenuto.database.row_table import RowTable
from tenuto.database.transactions import Database
from tenuto.database.wakeups import announce

__all__ = [
    "Database",
    "Migrations",
    "Prepared",
    "RowTable",
    "announce",
    "clean",
    "migrate",
    "now_ms",
    "refuse_unusable",
]
