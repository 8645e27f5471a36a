"""What running candidates logged, for pruners; how many outcomes lay outside of the ranges of measures."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("searches", sa.Column("clipped", sa.Integer, nullable=False, server_default="0"))
    op.create_table(
        "evolution_points",
        sa.Column(
            "search_id", sa.String(64), sa.ForeignKey("searches.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("step", sa.BigInteger, primary_key=True),
        sa.Column("value", sa.Double, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("evolution_points")
    op.drop_column("searches", "clipped")
