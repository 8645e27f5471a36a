"""Rows and groups as plain JSON values: what every face and every script reads.
Pure: the instant and the counts are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from tenuto.jobs import source
from tenuto.jobs.causes import FailureGroup
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobState
from tenuto.monitor import shapes

MOST_FAILED_JOBS = 20
"""How many jobs of one cause are named."""


def iso(instant: datetime | None) -> str | None:
    """An instant as ISO 8601."""
    return None if instant is None else instant.isoformat()


def plain_row(row: source.Row, now: datetime) -> shapes.Job:
    """A row as ``tenuto jobs --json`` prints a job, and where it belongs."""
    experiment, run = experiment_of(row.group)
    return {
        "key": row.key,
        "group": row.group,
        "door": row.door.value,
        "task": row.task,
        "id": row.id,
        "state": row.state.name.lower(),
        "door_state": row.door_state,
        "reason": row.reason.name.lower() if row.reason else None,
        "message": row.message,
        "experiment": experiment,
        "run": run,
        "attempt": row.attempt,
        "tags": dict(row.tags),
        "depends_on": list(row.depends_on),
        "transient": row.transient.name.lower(),
        "owner": row.owner,
        "where": row.where,
        "submitted": iso(row.submitted),
        "started": iso(row.started),
        "ended": iso(row.ended),
        "duration_s": row.elapsed_s(now),
        "progress": row.progress,
        "progress_desc": row.progress_desc,
        "eta_s": row.left_s(now),
        "energy_kwh": row.energy_kwh,
        "alarm": row.alarm,
    }


def experiment_of(group: str) -> tuple[str | None, str | None]:
    """The experiment and the run in the key of a group; None of other doors."""
    door, _, name = group.partition(":")
    if door != Door.EXPERIMENTS.value or not name:
        return None, None
    experiment, between, run = name.rpartition("/")
    return (experiment, run) if between else (name, None)


def plain_group(
    group: source.Group, counts: Mapping[JobState, int], known: int, eta_s: float | None, *, is_loaded: bool
) -> shapes.Group:
    """A group; of one that was not looked at, the counts are what its own record says."""
    total = known if is_loaded else group.total or 0
    counted = {state.name.lower(): counts.get(state, 0) for state in JobState}
    failed = group.failed
    if is_loaded:
        failed = counts.get(JobState.ERROR, 0) if failed is None else failed
    elif group.total:
        counted["done"], counted["error"] = group.total - (failed or 0), failed or 0
    is_run = group.door is Door.EXPERIMENTS
    return {
        "group": group.group,
        "door": group.door.value,
        "name": group.name,
        "experiment": group.name if is_run else None,
        "run": group.run or None,
        "state": group.state,
        "live": group.live,
        "started": iso(group.started),
        "ended": iso(group.ended),
        "host": group.host or None,
        "pid": group.pid or None,
        "jobs": group.total,
        "reused": group.reused,
        "failed": failed,
        "message": group.message,
        "carbon": dict(group.carbon) if group.carbon else None,
        "tags": list(group.tags),
        "counts": counted,
        "total": max(total, group.total or 0),
        "known": known,
        "eta_s": eta_s,
        "services": [
            {
                "id": one.id,
                "state": one.state,
                "url": one.url,
                "description": one.description,
                "message": one.message,
            }
            for one in group.services
        ],
    }


def plain_failure(failure: FailureGroup, now: datetime) -> shapes.Failure:
    """Failures of one cause, the first of them named."""
    return {
        "reason": failure.reason.name.lower(),
        "error": failure.error,
        "place": failure.place,
        "jobs": [plain_row(row, now) for row in failure.rows[:MOST_FAILED_JOBS]],
        "total": len(failure.rows),
    }


def plain_acted(acted: source.Acted) -> shapes.Outcome:
    """What became of an action on one job."""
    return {
        "key": acted.key,
        "outcome": acted.outcome.value,
        "detail": acted.detail,
        "attempt": acted.attempt,
    }
