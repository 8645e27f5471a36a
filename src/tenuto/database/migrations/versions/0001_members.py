"""The members of a database: servers, nodes, schedulers, workers."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "members",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("process", sa.Text, nullable=False),
        sa.Column("workspace", sa.Text),
        sa.Column("slots", sa.Integer),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("seen_at", sa.BigInteger, nullable=False),
        sa.CheckConstraint("kind IN ('server', 'node', 'scheduler', 'worker')", name="members_kind"),
    )
    op.create_index("members_seen", "members", ["kind", "seen_at"])


def downgrade() -> None:
    op.drop_table("members")
