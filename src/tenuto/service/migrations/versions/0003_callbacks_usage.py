"""Callbacks, usage, limits of tokens, and where the nodes are."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

KEY = sa.BigInteger().with_variant(sa.Integer, "sqlite")
WAITING = sa.text("status = 'waiting'")
ADDED: dict[str, dict[str, type[Any]]] = {
    "jobs": {
        "callback": sa.Text,
        "token_id": sa.BigInteger,
        "bytes_in": sa.BigInteger,
        "cpu_s": sa.Double,
        "memory_peak": sa.BigInteger,
    },
    "tokens": {"queued": sa.Integer, "stored_bytes": sa.BigInteger, "connections": sa.Integer},
}


def upgrade() -> None:
    for table, columns in ADDED.items():
        for name, kind in columns.items():
            op.add_column(table, sa.Column(name, kind))
    op.create_table(
        "callbacks",
        sa.Column(
            "job_id", KEY, sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
        ),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("token_id", sa.BigInteger),
        sa.Column("status", sa.Text, nullable=False, server_default="waiting"),
        sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
        sa.Column("message", sa.Text, nullable=False, server_default=""),
        sa.Column("due_at", sa.BigInteger, nullable=False),
    )
    op.create_index("callbacks_due", "callbacks", ["due_at"], sqlite_where=WAITING, postgresql_where=WAITING)
    op.create_table(
        "usage",
        *(sa.Column(name, sa.Text, primary_key=True) for name in ("user_id", "service", "month")),
        sa.Column("jobs", sa.BigInteger, nullable=False),
        sa.Column("cpu_s", sa.Double, nullable=False),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in ("memory_peak", "bytes_in", "bytes_out")
        ),
    )
    op.create_table(
        "nodes",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("token_file", sa.Text),
    )


def downgrade() -> None:
    for table in ("nodes", "usage", "callbacks"):
        op.drop_table(table)
    for table, columns in ADDED.items():
        for name in columns:
            op.drop_column(table, name)
