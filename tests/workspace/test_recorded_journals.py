"""Owns the promise that every journal ever written can still be read: one of each format version is kept.

After a change of the format, raise `EVENT_VERSION`; after a new type of event, add an example below. In both
cases run this file as a script and commit what it wrote. What was recorded before is never changed.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tenuto.lifecycle.events import (
    EVENT_TYPES,
    EVENT_VERSION,
    CarbonMetricsData,
    CarbonMetricsEvent,
    Event,
    JobExplainedEvent,
    JobProgressEvent,
    JobStateChangedEvent,
    JobSubmittedEvent,
    ProcessStartedEvent,
    ProcessStateEvent,
    RunCompletedEvent,
    ServiceAddedEvent,
    ServiceStateChangedEvent,
    UnknownEvent,
    from_record,
    to_record,
)
from tenuto.lifecycle.states import JobFailureStatus, JobState, TransientMode
from tenuto.workspace.event_writer import EventWriter
from tenuto.workspace.files import DiskFiles
from tenuto.workspace.journal import EventReader, replay
from tenuto.workspace.layout import JournalPlace

RECORDED = Path(__file__).parent / "journals"
VERSIONS = sorted(path.name for path in RECORDED.glob("v*"))
CURRENT = [name for name in VERSIONS if name.partition(".")[0] == f"v{EVENT_VERSION}"]
NOW = datetime(2030, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)


def events() -> list[Event]:
    """One of each type, and more of those that have many fields."""
    used = CarbonMetricsData(co2_kg=0.001, energy_kwh=0.02, duration_s=15.0, cpu_power_w=4.8, region="FRA")
    job: dict[str, Any] = {"job_id": "ab12", "task_id": "my.Train"}
    run: dict[str, Any] = {"owner": "experiments/sweep/20300101_120000"}
    waiting: dict[str, Any] = {**job, **run, "state": JobState.WAITING}
    kinds: list[tuple[type[Event], dict[str, Any]]] = [
        (JobSubmittedEvent, {**job, **run, "tags": {"lr": "0.1"}, "depends_on": ("cd34",)}),
        (JobSubmittedEvent, {**job, **run, "transient": TransientMode.REMOVE}),
        (JobStateChangedEvent, {**waiting, "submittime": NOW}),
        (JobExplainedEvent, {**waiting, "message": "waits for 1 of token gpu"}),
        (JobStateChangedEvent, {**job, **run, "state": JobState.RUNNING, "attempt": 1, "starttime": NOW}),
        (ProcessStartedEvent, {**job, "attempt": 1, "launcher": "warm", "host": "here", "pid": 4711}),
        (JobProgressEvent, {**job, "attempt": 1, "progress": 0.5, "level": 1, "desc": "épöch 3 \u2028 \x1b"}),
        (CarbonMetricsEvent, {**job, "attempt": 1, "metrics": used, "final": True}),
        (ProcessStateEvent, {**job, "attempt": 1, "state": "stopping"}),
        (ProcessStateEvent, {**job, "attempt": 1, "state": "ended", "exit_code": 1, "signal": 9}),
        (
            JobStateChangedEvent,
            {
                **job,
                **run,
                "state": JobState.ERROR,
                "attempt": 2,
                "reason": JobFailureStatus.TIMEOUT,
                "message": "it ran longer than 3 s",
                "endtime": NOW,
                "exit_code": 1,
                "retry_count": 1,
            },
        ),
        (ServiceAddedEvent, {**run, "service_id": "board", "state": "running", "description": "a page"}),
        (ServiceStateChangedEvent, {**run, "service_id": "board", "state": "stopped"}),
        (UnknownEvent, {"type_name": "JobDreamtEvent", "unknown": {"of": ["sheep"]}}),
        (RunCompletedEvent, {**run, "failed": True, "done_jobs": 3, "failed_jobs": 1, "carbon": used}),
    ]
    seconds = [NOW + timedelta(seconds=number) for number in range(len(kinds))]
    return [kind(timestamp=when, **fields) for when, (kind, fields) in zip(seconds, kinds, strict=True)]


def record(directory: Path, made: list[Event]) -> None:
    """Writes a journal of the current version: rotated, torn and sealed, with garbage in it."""
    place = JournalPlace(str(directory), "events-")
    writer = EventWriter(DiskFiles(), place, "20300101_120000:00ff", rotate_bytes=1500)
    for event in made[:-1]:
        writer.write(event)
    writer.close()
    last = EventWriter(DiskFiles(), place, "20300101_120000:11ff")
    last.write(made[-1])
    last.close()
    newest = max(directory.glob("events-*.jsonl"), key=lambda path: int(path.stem.split("-")[1]))
    with newest.open("ab") as file:
        file.write(b'not a line of ours\n{"w":"20300101_120000:11ff","s":2,"e":{"type":"Run')
    expected = [to_record(event) for event in made]
    (directory / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


def expected(version: str) -> list[dict[str, Any]]:
    return list(json.loads((RECORDED / version / "expected.json").read_text(encoding="utf-8")))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_recorded_journal_can_be_replayed(version: str) -> None:
    found = [entry.event for entry in replay(DiskFiles(), str(RECORDED / version))]
    assert [json.loads(json.dumps(to_record(event))) for event in found] == expected(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_recorded_journal_can_be_read_in_parts(version: str) -> None:
    place = JournalPlace(str(RECORDED / version), "events-")
    cursor, found = None, []
    while True:
        reader = EventReader(DiskFiles(), place, cursor=cursor)
        part = reader.read(limit=3)
        if not part:
            break
        found += part
        cursor = reader.cursor()
    assert [json.loads(json.dumps(to_record(entry.event))) for entry in found] == expected(version)


def test_there_are_recorded_journals_of_this_version_with_every_type_of_event() -> None:
    recorded = {one["type"] for version in CURRENT for one in expected(version)}
    assert recorded >= EVENT_TYPES.keys(), "run this file as a script, and commit what it wrote"


@pytest.mark.parametrize("version", CURRENT)
def test_a_journal_that_is_written_today_equals_the_recorded_one(tmp_path: Path, version: str) -> None:
    """Byte by byte: who changes the format raises its version."""
    record(tmp_path, [from_record(one) for one in expected(version)])
    kept = {path.name: path.read_bytes() for path in (RECORDED / version).iterdir()}
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept


if __name__ == "__main__":
    name = f"v{EVENT_VERSION}" if not CURRENT else f"v{EVENT_VERSION}.{len(CURRENT) + 1}"
    record(RECORDED / name, events())
    print(f"recorded {name}")
