"""Owns how a row follows the events of its job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tenuto.jobs.causes import grouped
from tenuto.jobs.row import Row, row_key
from tenuto.jobs.rows import after_event
from tenuto.lifecycle.events import (
    JobExplainedEvent,
    JobProgressEvent,
    JobStateChangedEvent,
    JobSubmittedEvent,
    ProcessStartedEvent,
)
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobFailureStatus, JobState

S = JobState
NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
JOB: dict[str, Any] = {"job_id": "ab12", "task_id": "my.Train"}
OWNER = "experiments/sweep/20300101_120000"
GROUP = "experiments:sweep/20300101_120000"


def at(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


def submitted() -> Row:
    """A row that events tell of, which knows whose it is and nothing else yet."""
    event = JobSubmittedEvent(timestamp=NOW, **JOB, owner=OWNER, tags={"lr": "0.1"}, depends_on=("cd34",))
    key = row_key(Door.EXPERIMENTS, "my.Train", "ab12")
    return after_event(Row(key, GROUP, Door.EXPERIMENTS, "my.Train", "ab12", owner=OWNER), event)


def changed(minutes: float, state: JobState, **fields: Any) -> JobStateChangedEvent:
    return JobStateChangedEvent(timestamp=at(minutes), **JOB, owner=OWNER, state=state, **fields)


def test_a_row_follows_the_events_of_its_job() -> None:
    row = submitted()
    assert (row.key, row.state, row.tags) == ("experiments:my.Train/ab12", S.UNSCHEDULED, {"lr": "0.1"})
    row = after_event(row, changed(0, S.WAITING, submittime=NOW))
    why = JobExplainedEvent(timestamp=at(1), **JOB, owner=OWNER, state=S.WAITING, message="waits for gpu")
    row = after_event(row, why)
    assert row.message == "waits for gpu"
    row = after_event(row, changed(2, S.RUNNING, attempt=1, submittime=NOW, starttime=at(2)))
    assert after_event(row, why) == row, "a reason of another state"
    assert row.message is None
    row = after_event(row, JobProgressEvent(timestamp=at(3), **JOB, attempt=1, progress=1.5, desc="epoch 3"))
    assert (row.progress, row.progress_desc) == (1.0, "epoch 3")
    inner = JobProgressEvent(timestamp=at(3), **JOB, attempt=1, progress=0.1, level=1)
    assert after_event(row, inner) == row
    row = after_event(row, changed(4, S.DONE, attempt=1, starttime=at(2), endtime=at(4)))
    assert (row.state, row.progress, row.progress_desc) == (S.DONE, None, None)
    assert row.elapsed_s(at(99)) == 120
    other = ProcessStartedEvent(timestamp=at(5), **JOB, attempt=1, launcher="warm", host="h", pid=1)
    assert after_event(row, other) == row


def test_an_event_of_an_attempt_before_the_rows_changes_nothing() -> None:
    row = after_event(submitted(), changed(9, S.RUNNING, attempt=2, starttime=at(9)))
    assert after_event(row, changed(3, S.ERROR, attempt=1, reason=JobFailureStatus.TIMEOUT)) == row
    late = changed(10, S.RUNNING, attempt=1, starttime=at(10))
    assert after_event(row, late).attempt == 1, "the directory was removed: attempts are counted from 1 again"


def test_failures_are_grouped_by_error_and_place() -> None:
    def failed(job_id: str, message: str | None, reason: JobFailureStatus = JobFailureStatus.FAILED) -> Row:
        return submitted()._replace(id=job_id, state=S.ERROR, reason=reason, message=message)

    rows = [
        failed("a", None, JobFailureStatus.MEMORY),
        failed("b", "ValueError: 1 (train.py:41)"),
        failed("c", "ValueError: 2 (train.py:41)"),
        failed("d", "ValueError: 2 (train.py:50)"),
        failed("e", "my.Train b failed", JobFailureStatus.DEPENDENCY),
        submitted(),
    ]
    found = grouped(rows)
    assert [([row.id for row in group.rows], group.messages, group.place) for group in found] == [
        (["b", "c"], 2, "train.py:41"),
        (["a"], 1, ""),
        (["d"], 1, "train.py:50"),
    ]
    assert found[0].error == "ValueError: 1"
    assert found[1].error == JobFailureStatus.MEMORY.meaning
