"""Searches, their candidates, and the moves of these."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    _searches()
    _jobs()
    _indexes()
    op.create_table(
        "evolution_moves",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True
        ),
        sa.Column(
            "search_id", sa.String(64), sa.ForeignKey("searches.id", ondelete="CASCADE"), nullable=False
        ),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("message", sa.Text),
        sa.Column("at", sa.BigInteger, nullable=False),
    )
    op.create_index("evolution_moves_search", "evolution_moves", ["search_id", "id"])


def _searches() -> None:
    op.create_table(
        "searches",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("definition", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.String(16)),
        sa.Column("message", sa.Text),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("scheduled", sa.Integer, nullable=False, server_default="0"),
        sa.Column("told", sa.Integer, nullable=False, server_default="0"),
        sa.Column("changed", sa.Integer, nullable=False, server_default="0"),
        sa.Column("cost", sa.Double, nullable=False, server_default="0"),
        sa.Column("active_ms", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("active_at", sa.BigInteger),
        sa.Column("best_number", sa.Integer),
        sa.Column("best_objective", sa.Double),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger),
        sa.CheckConstraint("state IN ('RUNNING', 'PAUSED', 'DRAINING', 'ENDED')", name="searches_state"),
        sa.CheckConstraint(
            "reason IN ('TOTAL', 'TIME', 'COST', 'TARGET', 'STALL', 'FAILING', 'EXHAUSTED', 'STOPPED')",
            name="searches_reason",
        ),
    )


def _jobs() -> None:
    op.create_table(
        "evolution_jobs",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column(
            "search_id", sa.String(64), sa.ForeignKey("searches.id", ondelete="CASCADE"), nullable=False
        ),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("priority", sa.Integer, nullable=False, server_default="0"),
        sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
        sa.Column("deaths", sa.Integer, nullable=False, server_default="0"),
        sa.Column("sends", sa.Integer, nullable=False, server_default="0"),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("scheduled_at", sa.BigInteger, nullable=False),
        sa.Column("not_before", sa.BigInteger),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("completed_at", sa.BigInteger),
        sa.Column("lease_until", sa.BigInteger),
        sa.Column("worker", sa.String(64)),
        sa.Column("task_id", sa.Text, nullable=False),
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("job_attempt", sa.Integer, nullable=False, server_default="0"),
        sa.Column("params", sa.Text, nullable=False),
        sa.Column("proposal", sa.Text, nullable=False),
        sa.Column("asked_after", sa.Integer, nullable=False),
        sa.Column("island", sa.Integer, nullable=False, server_default="0"),
        sa.Column("parent", sa.Integer),
        sa.Column("outcome", sa.Text),
        sa.Column("objective", sa.Double),
        sa.Column("cost", sa.Double),
        sa.Column("failure", sa.String(16)),
        sa.Column("message", sa.Text),
        sa.Column("reused", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("told", sa.Integer),
        sa.Column("verdict", sa.String(8)),
        sa.Column("cell", sa.Integer),
        sa.Column("directory", sa.Text),
        sa.CheckConstraint(
            "status IN ('PENDING', 'QUEUED', 'RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELLED')",
            name="evolution_jobs_status",
        ),
        sa.UniqueConstraint("search_id", "number", name="evolution_jobs_number"),
        sa.UniqueConstraint("search_id", "task_id", "job_id", name="evolution_jobs_identity"),
        sa.UniqueConstraint("search_id", "told", name="evolution_jobs_told"),
    )


def _indexes() -> None:
    order: list[Any] = ["search_id", sa.text("priority DESC"), "scheduled_at", "created_at", "number"]
    for name, predicate, columns in (
        ("dispatch", "status = 'PENDING'", order),
        ("claim", "status = 'QUEUED'", order),
        ("unfinished", "status IN ('PENDING', 'QUEUED', 'RUNNING')", ["search_id", "status"]),
        ("lease", "status = 'RUNNING'", ["lease_until"]),
        ("to_tell", "told IS NULL AND completed_at IS NOT NULL", ["search_id", "completed_at", "number"]),
        ("known", "status = 'SUCCEEDED'", ["task_id", "job_id"]),
    ):
        where = sa.text(predicate)
        op.create_index(
            f"evolution_jobs_{name}", "evolution_jobs", columns, sqlite_where=where, postgresql_where=where
        )


def downgrade() -> None:
    op.drop_table("evolution_moves")
    op.drop_table("evolution_jobs")
    op.drop_table("searches")
