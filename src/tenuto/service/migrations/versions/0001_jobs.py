"""The jobs of a server, whose turn it is, their moves, and tokens."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

KEY = sa.BigInteger().with_variant(sa.Integer, "sqlite")
STATES = "'Queued', 'Processing', 'Submitted', 'Running', 'Unknown', "
STATES += "'Completed', 'Failed', 'Invalid', 'Killed', 'Cleaned'"
QUEUED = sa.text("state = 'Queued'")
ACTIVE = sa.text("state IN ('Processing', 'Submitted', 'Running', 'Unknown')")
ENDED = sa.text("state IN ('Completed', 'Failed', 'Invalid', 'Killed')")


def upgrade() -> None:
    op.create_table(
        "meta",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    _jobs()
    _turns_and_moves()
    _tokens()


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", KEY, primary_key=True, autoincrement=True),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("service", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False, server_default=""),
        sa.Column("claim", sa.Integer, nullable=False, server_default="0"),
        sa.Column("server_id", sa.Text),
        sa.Column("node", sa.Text),
        sa.Column("payload_id", sa.BigInteger),
        sa.Column("directory", sa.Text, nullable=False, unique=True),
        sa.Column("idempotency_key", sa.Text),
        sa.Column("body_sha256", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("ready_at", sa.BigInteger, nullable=False),
        sa.Column("tried_at", sa.BigInteger),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("terminate_at", sa.BigInteger),
        sa.Column("exit_code", sa.Integer),
        sa.Column("result_bytes", sa.BigInteger),
        sa.Column("result_sha256", sa.Text),
        sa.CheckConstraint(f"state IN ({STATES})", name="jobs_state"),
        sa.UniqueConstraint("user_id", "idempotency_key", name="jobs_idempotency"),
        sqlite_autoincrement=True,
    )
    for name, columns, where in [
        ("jobs_queued", ["service", "user_id", "id"], QUEUED),
        ("jobs_active", ["service", "user_id"], ACTIVE),
        ("jobs_mine", ["server_id"], ACTIVE),
        ("jobs_ended", ["ended_at"], ENDED),
    ]:
        op.create_index(name, "jobs", columns, sqlite_where=where, postgresql_where=where)
    op.create_index("jobs_listed", "jobs", ["user_id", "id"])


def _turns_and_moves() -> None:
    op.create_table(
        "turns",
        sa.Column("service", sa.Text, primary_key=True),
        sa.Column("user_id", sa.Text, primary_key=True),
        sa.Column("turn", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "moves",
        sa.Column("id", KEY, primary_key=True, autoincrement=True),
        sa.Column("job_id", KEY, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("moves_of_job", "moves", ["job_id", "id"])


def _tokens() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", KEY, primary_key=True, autoincrement=True),
        sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("note", sa.Text, nullable=False, server_default=""),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("revoked_at", sa.BigInteger),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    for name in ("tokens", "moves", "turns", "jobs", "meta"):
        op.drop_table(name)
