"""Owns that a door without experiments can make a job, run it, look at it, run it again, and remove it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenuto import CommandTask
from tenuto.jobs.key import JobKey
from tenuto.jobs.log import read_tail
from tenuto.jobs.removal import delete, no_keeper
from tenuto.jobs.retry import Retrying, StoredWork, prepare, submit
from tenuto.jobs.source import ActedAs
from tenuto.jobs.submission import Defaults, make_job
from tenuto.jobs.view import JobsView, ReadDepth
from tenuto.launchers.commands import command_of
from tenuto.launchers.instructions import Limits
from tenuto.launchers.spawn import SpawnLauncher
from tenuto.lifecycle.events import JobProgressEvent
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.scheduler import Scheduler
from tenuto.scheduler.tokens import CounterToken, declare
from tenuto.tasks.live import seal
from tenuto.tasks.ports import SubmitOptions
from tenuto.testing.jobs import FakeOwner
from tenuto.workspace.event_writer import file_numbers
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine

WAIT_S = 60.0


class Door:
    """A scheduler and an owner of its own."""

    def __init__(self, root: Path) -> None:
        self.machine = this_machine()
        self.layout = Layout(str(root))
        self.scheduler = Scheduler(self.machine)
        self.launcher = SpawnLauncher(self.machine, slots=2)
        self.view = JobsView(self.layout, self.machine)
        self.owner = FakeOwner()

    def job(self, *command: str, key: str = "", token: CounterToken | None = None) -> Job:
        task = CommandTask.C(command=list(command), key=key)
        if token is not None:
            declare(self.machine, token)
            token(1, task)
        seal(task, to_run=True)
        return make_job(
            task,
            SubmitOptions(),
            layout=self.layout,
            defaults=Defaults(self.launcher, Limits()),
            environment={},
            clock=self.machine.clock,
            once=True,
        )

    def run(self, job: Job) -> JobKey:
        self.scheduler.submit(job, self.owner).wait(WAIT_S)
        self.scheduler.drain()
        return JobKey(job.task_id, job.job_id)

    def close(self) -> None:
        self.scheduler.close()
        self.launcher.close()


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    made = Door(tmp_path / "ws")
    yield made
    made.close()


def test_a_command_is_made_a_job_run_looked_at_and_removed(door: Door) -> None:
    key = door.run(door.job("echo", "hello"))
    paths = door.layout.job(*key)
    assert door.view.find(key.job_id[:8]) == [key]
    assert {door.view.look(key, depth).state for depth in ReadDepth} == {JobState.DONE}
    assert door.view.look(key, ReadDepth.EVIDENCE).evidence is not None
    tail = read_tail(door.machine.files, paths.out)
    assert tail is not None
    assert tail.text == "hello\n"
    assert door.view.detail(key).stored.parameters["command"] == ["echo", "hello"]
    (acted,) = delete(door.view, [key], really=True, used=no_keeper)
    assert acted.outcome is ActedAs.DELETED
    assert not door.view.look(key).is_there


def test_stored_parameters_alone_run_the_same_job(door: Door) -> None:
    first = door.job("sh", "-c", "echo $WHO")
    params = first.work.params(first.layout, first.paths)
    command = command_of(CommandTask.C(command=["sh", "-c", "echo $WHO"]))
    job = Job(
        first.task_id,
        first.job_id,
        layout=door.layout,
        launcher=door.launcher,
        work=StoredWork(params, {"WHO": "stored"}, command),
        clock=door.machine.clock,
    )
    key = door.run(job)
    assert door.view.job(key).state is JobState.DONE
    assert Path(door.layout.job(*key).out).read_text() == "stored\n"


def test_a_failed_job_is_run_again_only_if_its_attempt_is_the_one_that_was_seen(door: Door) -> None:
    key = door.run(door.job("sh", "-c", "test -e again || { touch again; exit 3; }"))
    failed = door.view.job(key)
    assert (failed.state, failed.reason, failed.attempt) == (JobState.ERROR, JobFailureStatus.FAILED, 1)
    (refused,) = prepare(door.view, [key], door.scheduler, door.launcher, seen={key: 7}).refused
    assert (refused.outcome, refused.attempt) == (ActedAs.STALE, 1)
    prepared = prepare(door.view, [key], door.scheduler, door.launcher, seen={key: 1})
    assert prepared.refused == []
    (job,) = submit(door.scheduler, prepared.jobs, Retrying(door.view, lambda event: None))
    assert job.wait(WAIT_S) is JobState.DONE
    (refused,) = prepare(door.view, [key], door.scheduler, door.launcher).refused
    assert (refused.outcome, refused.detail) == (ActedAs.REFUSED, "it is done")


def test_the_events_of_the_last_retries_are_kept(door: Door) -> None:
    """Each retry left a file for ever, in a directory that every follower of a run lists."""
    key = door.run(door.job("false"))
    place = door.layout.retry_journal
    for _ in range(103):
        retrying = Retrying(door.view, lambda event: None)
        now = door.machine.clock.now()
        retrying.hear(
            JobProgressEvent(timestamp=now, job_id=key.job_id, task_id=key.task_id, attempt=1, progress=0.5)
        )
    assert file_numbers(door.machine.files, place) == list(range(2, 103))


def test_a_job_without_a_directory_is_gone(door: Door) -> None:
    key = JobKey("my.Train", "never")
    (refused,) = prepare(door.view, [key], door.scheduler, door.launcher).refused
    assert refused.outcome is ActedAs.GONE


def test_a_retry_of_what_was_cancelled_while_it_waited_for_tokens_waits_for_them(
    door: Door, tmp_path: Path
) -> None:
    """Of an attempt that got no units none were written down, and the next one ran without them."""
    token = CounterToken("licences", 1, str(tmp_path / "tokens"))
    key = door.run(door.job("false", token=token))
    Path(door.layout.job(*key).failed).unlink()  # as if its runner had vanished
    holder = door.scheduler.submit(door.job("sleep", "1000", token=token), door.owner)
    (waiting,) = submit(
        door.scheduler,
        prepare(door.view, [key], door.scheduler).jobs,
        Retrying(door.view, lambda event: None),
    )
    door.scheduler.cancel(waiting)
    assert waiting.wait(WAIT_S) is JobState.ERROR
    door.scheduler.drain()
    assert door.view.look(key).reason is JobFailureStatus.CANCELLED
    assert door.view.look(key).attempt == 2
    (again,) = prepare(door.view, [key], door.scheduler).jobs
    assert [(one.name, amount) for one, amount in again.tokens] == [("licences", 1)]
    door.scheduler.cancel(holder)
    holder.wait(WAIT_S)
