"""Rows and groups as plain JSON values: what every face and every script reads.
Pure: the instant and the counts are given.
"""

from __future__ import annotations

from datetime import datetime

from tenuto.jobs.causes import FailureGroup
from tenuto.jobs.row import plain_row
from tenuto.jobs.source import Acted
from tenuto.monitor import shapes

MOST_FAILED_JOBS = 20
"""How many jobs of one cause are named."""


def plain_failure(failure: FailureGroup, now: datetime) -> shapes.Failure:
    """Failures of one cause, the first of them named."""
    return {
        "reason": failure.reason.name.lower(),
        "error": failure.error,
        "place": failure.place,
        "jobs": [plain_row(row, now) for row in failure.rows[:MOST_FAILED_JOBS]],
        "total": len(failure.rows),
    }


def plain_acted(acted: Acted) -> shapes.Outcome:
    """What became of an action on one job."""
    return {
        "key": acted.key,
        "outcome": acted.outcome.value,
        "detail": acted.detail,
        "attempt": acted.attempt,
    }
