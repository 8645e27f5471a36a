"""Owns what is known of a job's progress from its journal."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tenuto.jobs.job_progress import last_progress
from tenuto.lifecycle.events import JobProgressEvent, ProcessStartedEvent
from tenuto.workspace.event_writer import EventWriter

from .workspaces import MACHINE, NOW, Builder


def test_the_last_progress_of_the_attempt_counts(workspace: Builder) -> None:
    place = workspace.layout.job_journal("my.Train", "a")
    writer = EventWriter(MACHINE.files, place, "0" * 32, rotate_bytes=2000)

    def report(attempt: int, value: float, level: int = 0) -> None:
        writer.write(
            JobProgressEvent(
                timestamp=NOW, job_id="a", task_id="my.Train", attempt=attempt, progress=value, level=level
            )
        )

    assert last_progress(MACHINE.files, place, 1) is None
    for number in range(40):
        report(1, number / 40)
    report(1, 0.1, level=1)
    report(2, 7.0)
    found = last_progress(MACHINE.files, place, 1)
    assert found is not None
    assert found.fraction == pytest.approx(39 / 40)
    newest = last_progress(MACHINE.files, place, 2)
    assert newest is not None
    assert newest.fraction == 1.0


def said(workspace: Builder, writer: EventWriter, seconds: float, value: float, level: int = 0) -> None:
    writer.write(
        JobProgressEvent(
            timestamp=NOW + timedelta(seconds=seconds),
            job_id="a",
            task_id="my.Train",
            attempt=1,
            progress=value,
            level=level,
            desc=f"loop {level}",
        )
    )


def test_the_time_that_is_left_counts_from_where_the_attempt_began(workspace: Builder) -> None:
    """A resumed task begins in the middle: what came before says nothing of its speed now."""
    place = workspace.layout.job_journal("my.Train", "a")
    writer = EventWriter(MACHINE.files, place, "0" * 32)
    said(workspace, writer, 0, 0.5)
    begun = last_progress(MACHINE.files, place, 1)
    assert begun is not None
    assert begun.left_s(NOW) is None
    said(workspace, writer, 60, 0.6)
    later = last_progress(MACHINE.files, place, 1)
    assert later is not None
    assert later.left_s(NOW + timedelta(seconds=60)) == pytest.approx(240)
    assert later.left_s(NOW + timedelta(seconds=100)) == pytest.approx(200)
    assert later.left_s(NOW + timedelta(days=1)) == 0


def test_the_first_attempt_began_with_nothing(workspace: Builder) -> None:
    place = workspace.layout.job_journal("my.Train", "a")
    said(workspace, EventWriter(MACHINE.files, place, "0" * 32), 60, 0.25)
    found = last_progress(MACHINE.files, place, 1, NOW)
    assert found is not None
    assert found.left_s(NOW + timedelta(seconds=60)) == pytest.approx(180)


def test_loops_inside_a_loop_are_told_in_words(workspace: Builder) -> None:
    place = workspace.layout.job_journal("my.Train", "a")
    writer = EventWriter(MACHINE.files, place, "0" * 32)
    for level in (0, 1, 2, 1):
        said(workspace, writer, 0, 0.25, level)
    found = last_progress(MACHINE.files, place, 1)
    assert found is not None
    assert found.words == "loop 0 > loop 1 25%"
    said(workspace, writer, 1, 0.5)
    again = last_progress(MACHINE.files, place, 1)
    assert again is not None
    assert again.words == "loop 0"


def test_progress_is_found_though_others_write_into_the_journal_later(workspace: Builder) -> None:
    place = workspace.layout.job_journal("my.Train", "a")
    writer = EventWriter(MACHINE.files, place, "0" * 32)
    for step in range(1001):
        said(workspace, writer, step, step / 2000)
    started = ProcessStartedEvent(
        timestamp=NOW, job_id="a", task_id="my.Train", attempt=1, launcher="spawn", host="here", pid=1
    )
    EventWriter(MACHINE.files, place, "1" * 32).write(started)
    found = last_progress(MACHINE.files, place, 1)
    assert found is not None
    assert found.fraction == 0.5
    assert found.left_s(NOW + timedelta(seconds=1000)) == pytest.approx(1000)
