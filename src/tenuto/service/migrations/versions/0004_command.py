"""What a job was accepted for."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("command", sa.Text))


def downgrade() -> None:
    op.drop_column("jobs", "command")
