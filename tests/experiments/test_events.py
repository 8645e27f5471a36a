"""Owns how the events of a run are heard: in its process, and from files, live, killed or archived."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tenuto.errors import JournalError, NotFound
from tenuto.experiments.run import archive_forsaken
from tenuto.experiments.run_info import RunEvents, run_events
from tenuto.experiments.run_record import run_of, writer_name
from tenuto.lifecycle.events import (
    JobProgressEvent,
    JobStateChangedEvent,
    JobSubmittedEvent,
    ProcessStartedEvent,
    RunCompletedEvent,
)
from tenuto.lifecycle.owner_names import run_owner
from tenuto.testing import Crash, FakeDisk
from tenuto.workspace.event_writer import EventWriter
from tenuto.workspace.journal import EventReader, JournalEntry, replay
from tenuto.workspace.layout import Layout

from .scripts import Place, environment, eventually, python, run

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TASKS = """
import time
from pathlib import Path
from tenuto import *

HERE = Path(__file__).parent

class Train(Task):
    name: Param[str]
    def execute(self):
        (HERE / ("began-" + self.name)).touch()
        end = time.monotonic() + 60
        while not (HERE / "release").exists():
            assert time.monotonic() < end
            progress(0.5, desc=self.name)
            time.sleep(0.01)
"""
MAIN = """
with experiment(HERE / "ws", "sweep") as xp:
    for name in "ab":
        Train.C(name=name).submit()
"""


@pytest.fixture
def started(place: Place) -> Iterator[subprocess.Popen[bytes]]:
    """A run of two jobs that go on until they are released."""
    process = subprocess.Popen(
        python(place.script(MAIN, tasks=TASKS)), cwd=place.directory, env=environment()
    )
    eventually(lambda: all((place.directory / f"began-{name}").exists() for name in "ab"), "the jobs")
    yield process
    place.release.touch()
    if process.poll() is None:
        process.kill()
    process.wait()


def keys(entries: list[JournalEntry]) -> list[tuple[str, int]]:
    return [(entry.writer, entry.sequence) for entry in entries]


def states(entries: list[JournalEntry]) -> list[str]:
    return [entry.event.state.name for entry in entries if isinstance(entry.event, JobStateChangedEvent)]


def test_a_run_is_followed_to_its_end_from_another_process(
    place: Place, started: subprocess.Popen[bytes]
) -> None:
    following = run_events(place.workspace, "sweep", jobs=True)
    seen: list[JournalEntry] = []
    for entry in following.follow(poll_s=0.02):
        seen.append(entry)
        told = {type(one.event) for one in seen}
        if {JobProgressEvent, ProcessStartedEvent} <= told:
            place.release.touch()
    assert isinstance(seen[-1].event, RunCompletedEvent) or seen[-1].writer != seen[0].writer
    assert len(set(keys(seen))) == len(seen)
    assert states(seen).count("DONE") == 2
    assert sum(isinstance(entry.event, JobSubmittedEvent) for entry in seen) == 2
    assert started.wait(30) == 0


def test_a_cursor_goes_on_where_it_was_taken_whatever_happened_to_the_files(
    place: Place, started: subprocess.Popen[bytes]
) -> None:
    """Before the end in one reader, after the archiving in another: each event once."""
    first = run_events(place.workspace, "sweep")
    early: list[JournalEntry] = []

    def read() -> bool:
        early.extend(first.read())
        return states(early).count("RUNNING") == 2

    eventually(read, "the events")
    cursor = json.loads(json.dumps(first.cursor()))
    place.release.touch()
    assert started.wait(30) == 0
    late = run_events(place.workspace, "sweep", cursor=cursor).read()
    assert states(late) == ["DONE", "DONE"]
    whole = run_events(place.workspace, "sweep").read()
    assert keys(early + late) == keys(whole)
    run_id = run_events(place.workspace, "sweep").run_id
    archive = Layout(str(place.workspace)).run("sweep", run_id).events
    from tenuto.workspace.files import DiskFiles

    assert keys(list(replay(DiskFiles(), archive))) == keys(whole)


def test_the_events_of_a_killed_run_are_its_own(place: Place, started: subprocess.Popen[bytes]) -> None:
    """They are left where the next run writes, and must not be taken for that one's."""
    killed = run_events(place.workspace, "sweep")
    seen: list[JournalEntry] = []
    eventually(lambda: seen.extend(killed.read()) or states(seen).count("RUNNING") == 2, "the events")
    started.kill()
    started.wait()
    assert list(killed.follow(poll_s=0.01)) == []
    place.release.touch()
    result = run(python(place.script(MAIN, tasks=TASKS)), place.directory)
    assert result.returncode == 0, result.stderr
    assert killed.read() == []
    again = run_events(place.workspace, f"sweep/{killed.run_id}")
    assert keys(again.read()) == keys(seen)
    second = run_events(place.workspace, "sweep")
    assert second.run_id != killed.run_id
    entries = second.read()
    assert isinstance(entries[-1].event, RunCompletedEvent)
    assert {run_of(entry.writer) for entry in entries} == {second.run_id}


def test_a_subscriber_hears_every_event_that_is_written(place: Place) -> None:
    script = place.script(
        """
heard, worse = [], []
def broken(event):
    worse.append(event)
    raise RuntimeError("not my day")

with experiment(HERE / "ws", "sweep") as xp:
    xp.subscribe(broken)
    xp.subscribe(heard.append)
    Note.C(name="a").submit()
from tenuto.experiments.run_info import run_events
assert [entry.event for entry in run_events(HERE / "ws", "sweep").read()] == heard == worse
print([type(event).__name__ for event in heard])
""",
    )
    result = run(python(script), place.directory)
    assert result.returncode == 0, result.stderr
    assert "not my day" in result.stderr
    names = json.loads(result.stdout.replace("'", '"'))
    assert names[0] == "JobSubmittedEvent"
    assert names[-1] == "RunCompletedEvent"
    assert names.count("JobStateChangedEvent") >= 4


def test_a_run_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="sweep"):
        run_events(tmp_path, "sweep")


@pytest.mark.parametrize("cursor", [{}, {"run": 3, "jobs": []}, {"run": {"a": [1]}, "jobs": []}, {"run": {}}])
def test_a_text_that_is_no_cursor_is_refused(cursor: object) -> None:
    from tenuto.experiments.workspace_view import WorkspaceView
    from tenuto.workspace.machine import this_machine

    view = WorkspaceView(Layout("/nowhere"), this_machine())
    with pytest.raises(JournalError, match="cursor"):
        RunEvents(view, "sweep", "1", cursor=cursor)  # type: ignore[arg-type]


# What a killed run leaves


def left(disk: FakeDisk, layout: Layout, run_id: str, count: int = 1) -> None:
    writer = EventWriter(disk, layout.experiment_journal("sweep"), writer_name(run_id, "ff"), rotate_bytes=1)
    for number in range(count):
        writer.write(
            RunCompletedEvent(timestamp=NOW, owner=run_owner("sweep", run_id), failed=False, done_jobs=number)
        )
    writer.close()


def test_what_killed_runs_left_is_given_to_them_and_nothing_is_lost_in_a_crash() -> None:
    layout = Layout("/ws")
    for moment in range(30):
        disk = FakeDisk()
        for run_id in ("1", "2"):
            disk.make_directory(layout.run("sweep", run_id).directory)
            left(disk, layout, run_id, 3)
        left(disk, layout, "pruned")
        disk.crash_after(moment)
        with contextlib.suppress(Crash):
            archive_forsaken(disk, layout, "sweep")
        disk.heal()
        archive_forsaken(disk, layout, "sweep")
        assert EventReader(disk, layout.experiment_journal("sweep")).read() == []
        for run_id in ("1", "2"):
            found = [entry.event for entry in replay(disk, layout.run("sweep", run_id).events)]
            assert [event.done_jobs for event in found] == [0, 1, 2]  # type: ignore[attr-defined]
