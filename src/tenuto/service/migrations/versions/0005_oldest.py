"""The oldest queued job of each user, by which a claim finds whose turn it is."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

NOTED = sa.text("oldest IS NOT NULL")
INDEXES = {"turns_waiting": (["service", "turn", "oldest"], NOTED), "turns_last": (["service", "turn"], None)}


def upgrade() -> None:
    op.add_column("turns", sa.Column("oldest", sa.BigInteger))
    for name, (columns, where) in INDEXES.items():
        op.create_index(name, "turns", columns, sqlite_where=where, postgresql_where=where)
    op.execute(
        "INSERT INTO turns (service, user_id, turn, oldest) "
        "SELECT service, user_id, 0, min(id) FROM jobs WHERE state = 'Queued' GROUP BY service, user_id "
        "ON CONFLICT (service, user_id) DO UPDATE SET oldest = excluded.oldest"
    )


def downgrade() -> None:
    for name in INDEXES:
        op.drop_index(name, "turns")
    op.drop_column("turns", "oldest")
