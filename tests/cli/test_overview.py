"""Owns what `tenuto run` knows of jobs while they run: rows from events, each job once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tenuto.experiments.overview import Overview
from tenuto.jobs.model import Counts
from tenuto.lifecycle.events import (
    Event,
    JobExplainedEvent,
    JobProgressEvent,
    JobStateChangedEvent,
    JobSubmittedEvent,
    RunCompletedEvent,
)
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.testing import FakeClock, FakeDisk
from tenuto.workspace.event_writer import EventWriter
from tenuto.workspace.layout import Layout

S = JobState


class FakeLauncher:
    def __init__(self, name: str = "warm", slots: int = 2) -> None:
        self.name, self.slots = name, slots


class FakeJob:
    """As much of a job as an overview asks for."""

    def __init__(self, job_id: str, root: str) -> None:
        self.task_id, self.job_id = "my.Train", job_id
        self.layout = Layout(root)
        self.launcher = FakeLauncher()
        self.tags = {"lr": 0.1}
        self.linked = ()
        self.dependencies = ()
        self.transient = None


class FakeRun:
    """A run whose jobs are wherever they are asked for."""

    def __init__(self, owner: str, root: str = "/ws") -> None:
        self.id = owner
        self.root = root
        self.found_before: set[str] = set()

    def job_of(self, event: Any) -> FakeJob:
        return FakeJob(event.job_id, self.root)


class Scene:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.disk = FakeDisk()
        self.overview = Overview(self.clock, self.disk)
        for owner in ("experiments/one/1", "experiments/two/1"):
            self.overview.add(FakeRun(owner))  # type: ignore[arg-type]
        self.overview.add(FakeRun("experiments/far/1", "/far"))  # type: ignore[arg-type]

    def event(self, kind: type[Event], job_id: str, owner: str = "experiments/one/1", **fields: Any) -> Event:
        now = self.clock.now()
        return kind(timestamp=now, job_id=job_id, task_id="my.Train", owner=owner, **fields)  # type: ignore[call-arg]

    def moves(self, job_id: str, state: JobState, **fields: Any) -> Any:
        return self.overview.hear(self.event(JobStateChangedEvent, job_id, state=state, **fields))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_job_of_two_experiments_is_one_row_and_of_two_workspaces_two(scene: Scene) -> None:
    now = scene.clock.now()
    assert scene.moves("a", S.WAITING, submittime=now) is not None
    assert scene.moves("a", S.WAITING, submittime=now, owner="experiments/two/1") is None
    assert scene.overview.counts() == Counts(waiting=1)
    assert scene.moves("a", S.WAITING, submittime=now, owner="experiments/far/1") is not None
    assert scene.overview.counts() == Counts(waiting=2)
    assert sorted(row.group for row in scene.overview.rows()) == ["/far", "/ws"]


def test_a_job_that_only_another_job_needs_is_known_by_its_state(scene: Scene) -> None:
    """It belongs to the run, which never submitted it."""
    row = scene.moves("needed", S.RUNNING, attempt=1, starttime=scene.clock.now())
    assert (row.tags, row.state) == ({"lr": 0.1}, S.RUNNING)
    assert scene.overview.counts() == Counts(running=1)


def test_a_job_that_was_submitted_and_sleeps_is_not_waited_for(scene: Scene) -> None:
    scene.overview.hear(scene.event(JobSubmittedEvent, "a", tags={"lr": "7"}))
    assert scene.overview.counts() == Counts(unscheduled=1)
    assert scene.overview.counts().known == 0
    assert [row.tags for row in scene.overview.rows()] == [{"lr": "7"}]
    done = RunCompletedEvent(timestamp=scene.clock.now(), owner="experiments/one/1", failed=False)
    assert scene.overview.hear(done) is None


def test_a_new_reason_to_wait_is_in_the_row(scene: Scene) -> None:
    scene.moves("a", S.WAITING, submittime=scene.clock.now())
    row = scene.overview.hear(scene.event(JobExplainedEvent, "a", state=S.WAITING, message="waits for gpu"))
    assert row is not None
    assert row.message == "waits for gpu"


def test_what_a_job_reports_is_in_its_row_while_it_runs(scene: Scene) -> None:
    clock = scene.clock
    began = clock.now()
    scene.moves("a", S.RUNNING, attempt=1, starttime=began)
    clock.advance(30)
    journal = EventWriter(scene.disk, Layout("/ws").job_journal("my.Train", "a"), "ab")
    for attempt, progress in ((1, 0.25), (2, 0.9)):
        fields: dict[str, Any] = {"attempt": attempt, "progress": progress, "desc": "epoch 3"}
        journal.write(JobProgressEvent(timestamp=clock.now(), job_id="a", task_id="my.Train", **fields))
    (row,) = scene.overview.running()
    assert row.progress is None, "nothing was read yet"
    (row,) = scene.overview.running(looks=12)
    assert (row.progress, row.progress_desc, row.left_s(clock.now())) == (0.25, "epoch 3", 90.0)
    assert row.eta_at == began + timedelta(seconds=120)
    scene.moves("b", S.WAITING, submittime=clock.now())
    assert scene.overview.remaining_s() == (90 + 120) / 2, "two slots"
    row = scene.moves("a", S.DONE, attempt=1, submittime=began, starttime=began, endtime=clock.now())
    assert (row.progress, row.eta_at) == (None, None)
    assert scene.overview.running(looks=12) == []
    assert scene.overview.remaining_s() == 15.0, "as long as the one that ended, in two slots"


def test_the_latest_failures_come_first_and_those_that_were_stranded_not_at_all(scene: Scene) -> None:
    for name in "abc":
        scene.moves(name, S.ERROR, reason=JobFailureStatus.FAILED, message=name)
    scene.moves("d", S.ERROR, reason=JobFailureStatus.DEPENDENCY)
    assert [row.id for row in scene.overview.failures()] == ["c", "b", "a"]
    scene.moves("c", S.WAITING, submittime=scene.clock.now())
    assert [row.id for row in scene.overview.failures()] == ["b", "a"]
    assert scene.overview.counts() == Counts(waiting=1, failed=2, stranded=1)
