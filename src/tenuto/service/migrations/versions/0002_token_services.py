"""The services that a token may ask for; null: all."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("tokens", sa.Column("services", sa.Text))


def downgrade() -> None:
    op.drop_column("tokens", "services")
