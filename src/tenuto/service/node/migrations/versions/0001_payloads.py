"""The payloads of a node, and its id."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

KEY = sa.BigInteger().with_variant(sa.Integer, "sqlite")
STATES = "'Prepared', 'Running', 'Completed', 'Failed', 'Invalid', 'Killed', 'Cleaned'"
OPEN = sa.text("state IN ('Prepared', 'Running')")
ENDED = sa.text("state IN ('Completed', 'Failed', 'Invalid', 'Killed')")


def upgrade() -> None:
    op.create_table(
        "meta",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "payloads",
        sa.Column("id", KEY, primary_key=True, autoincrement=True),
        sa.Column("key", sa.Text, nullable=False, unique=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("killed", sa.Boolean, nullable=False, server_default=sa.text("0")),
        sa.Column("message", sa.Text, nullable=False, server_default=""),
        sa.Column("service", sa.Text, nullable=False, server_default=""),
        sa.Column("user_id", sa.Text, nullable=False, server_default=""),
        sa.Column("job_id", sa.Text, nullable=False, server_default=""),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("exit_code", sa.Integer),
        sa.Column("result_bytes", sa.BigInteger),
        sa.Column("result_sha256", sa.Text),
        sa.CheckConstraint(f"state IN ({STATES})", name="payloads_state"),
        sqlite_autoincrement=True,
    )
    op.create_index("payloads_open", "payloads", ["id"], sqlite_where=OPEN)
    op.create_index("payloads_ended", "payloads", ["ended_at"], sqlite_where=ENDED)


def downgrade() -> None:
    op.drop_table("payloads")
    op.drop_table("meta")
