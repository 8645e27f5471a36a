"""The command of a payload, where it is not the upload's own `run.sh`."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("payloads", sa.Column("command", sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("payloads", "command")
