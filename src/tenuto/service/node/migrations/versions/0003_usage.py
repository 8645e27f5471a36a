"""What payloads used: seconds of processors, and the most memory."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("payloads", sa.Column("cpu_s", sa.Double))
    op.add_column("payloads", sa.Column("memory_peak", sa.BigInteger))


def downgrade() -> None:
    op.drop_column("payloads", "memory_peak")
    op.drop_column("payloads", "cpu_s")
