"""Jobs in a notebook: how many are where, and a table of the most interesting rows.
Pure: rows in, HTML out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tenuto.jobs.row import Row
from tenuto.lifecycle.states import JobState
from tenuto.scheduler.jobs import state_html
from tenuto.tasks.html import table
from tenuto.tasks.tags import tag_words

_MOST_JOBS = 20


def jobs_html(title: str, rows: Sequence[Row]) -> str:
    """Rows as a table: how many are in which state, failures first, and not too many of them."""
    counts = Counter(row.state for row in rows)
    said = ", ".join(f"{counts[state]} {state.name.lower()}" for state in JobState if counts[state])
    order = {JobState.ERROR: 0, JobState.RUNNING: 1, JobState.SCHEDULED: 1}
    shown = sorted(rows, key=lambda row: order.get(row.state, 2))[:_MOST_JOBS]
    lines: list[tuple[object, ...]] = [
        (state_html(row.state, row.reason), row.task, row.id[:12], _tags(row), row.message or "")
        for row in shown
    ]
    if len(rows) > len(shown):
        lines.append(("", f"and {len(rows) - len(shown)} more", "", "", ""))
    head = ("state", "task", "job", "tags", "") if lines else ()
    return str(table(f"{title}: {said or 'no jobs'}", lines, head))


def _tags(row: Row) -> str:
    return tag_words(row.tags)
