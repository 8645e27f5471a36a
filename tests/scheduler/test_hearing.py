"""Owns how the process hears of jobs: frozen events, told in order, to owners, subscribers and listeners."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from tenuto.errors import InvalidName
from tenuto.lifecycle.events import Event, JobExplainedEvent, JobStateChangedEvent, JobSubmittedEvent
from tenuto.lifecycle.states import JobFailureStatus, JobState, StateRecord
from tenuto.scheduler.decisions import RetryLimits
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.listeners import Listener, OwnerJournal, state_record_of
from tenuto.scheduler.owners import PlainOwner
from tenuto.scheduler.workers import call_safely
from tenuto.testing.jobs import FakeOwner
from tenuto.workspace.event_writer import EventWriter
from tenuto.workspace.journal import EventReader
from tenuto.workspace.layout import Layout

from .test_simulation import HOUR_S, World

S = JobState


class Late:
    """A `Worker` whose thread gets its turn only after everything has happened."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []

    def call(self, function: Callable[[], object]) -> None:
        self.calls.append(function)

    def hurry(self) -> None:
        """Never."""

    def close(self) -> None:
        while self.calls:
            call_safely(self.calls.pop(0))


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.loop.close()


def changes(events: list[Event], state: JobState | None = None) -> list[JobStateChangedEvent]:
    found = [event for event in events if isinstance(event, JobStateChangedEvent)]
    return [event for event in found if state in (None, event.state)]


@pytest.mark.parametrize("is_late", [False, True])
def test_each_event_has_the_attempt_of_its_moment(world: World, is_late: bool) -> None:
    """Of 60 SCHEDULED events 3 said attempt 0: another thread read the job, too early or too late."""
    scheduler, worker, owner = world.scheduler(), Late(), FakeOwner()
    if is_late:
        scheduler._announcer._worker = worker
    world.retry = RetryLimits(resumable=True, max_retries=1)
    world.payload = world.payload._replace(reason=JobFailureStatus.TIMEOUT, exit_code=3)
    jobs = [scheduler.submit(world.job(f"job{number}"), owner) for number in range(60)]
    scheduler.wait(owner, HOUR_S)
    worker.close()
    assert {job.state for job in jobs} == {S.ERROR}
    for job in jobs:
        told = changes([event for event in owner.events if getattr(event, "job_id", "") == job.job_id])
        assert [(event.state.name, event.attempt) for event in told] == [
            ("WAITING", 0),
            ("READY", 0),
            ("SCHEDULED", 1),
            ("RUNNING", 1),
            ("WAITING", 1),
            ("READY", 1),
            ("SCHEDULED", 2),
            ("RUNNING", 2),
            ("ERROR", 2),
        ]
        assert [event.retry_count for event in told] == [0, 0, 0, 0, 1, 1, 1, 1, 1]
        assert [event.exit_code for event in told] == [None, None, None, None, 3, None, None, None, 3]
        assert state_record_of(told[-1]) == job.state_record
        assert told[-1].timestamp == job.endtime
        assert [event.timestamp for event in told] == sorted(event.timestamp for event in told)


def test_an_event_names_each_owner_of_its_job(world: World) -> None:
    scheduler = world.scheduler()
    one, two = PlainOwner("search/one"), FakeOwner("two")
    heard: list[Event] = []
    scheduler.subscribe(heard.append)
    for owner in (one, two):
        scheduler.submit(world.job("job"), owner)
    scheduler.wait(two, HOUR_S)
    submitted = [event for event in heard if isinstance(event, JobSubmittedEvent)]
    assert [event.owner for event in submitted] == ["search/one", "search/two"]
    assert [event.owner for event in changes(heard, S.DONE)] == ["search/one", "search/two"]
    assert {event.owner for event in changes(two.events)} == {"search/two"}
    scheduler.unsubscribe(heard.append)
    count = len(heard)
    scheduler.submit(world.job("other"), one)
    scheduler.wait(one, HOUR_S)
    assert len(heard) == count


def test_a_job_that_nobody_owns_any_more_is_still_told_to_subscribers(world: World) -> None:
    scheduler, owner = world.scheduler(), FakeOwner()
    heard: list[Event] = []
    job = scheduler.submit(world.job("job"), owner)
    scheduler.call(scheduler._take_in)
    world.loop.run_until_complete(scheduler._aio_release(owner))
    scheduler.subscribe(heard.append)
    assert scheduler.wait_for_job(job, HOUR_S) is S.DONE
    assert [event.owner for event in changes(heard, S.DONE)] == [""]
    assert owner.history["job"][-1] is not S.DONE


def test_a_new_reason_to_wait_is_an_event_and_the_same_reason_is_none(world: World) -> None:
    scheduler, owner = world.scheduler(), FakeOwner()
    job = scheduler.submit(world.job("job"), owner)
    scheduler.call(scheduler._take_in)
    for message in ("gpu: 2 of 2 busy", "gpu: 2 of 2 busy", "gpu: 1 of 2 busy"):
        scheduler.call(lambda message=message: job.explain(message))  # type: ignore[misc]
    told = [event for event in owner.events if isinstance(event, JobExplainedEvent)]
    assert [event.message for event in told] == ["gpu: 2 of 2 busy", "gpu: 1 of 2 busy"]
    assert {(event.owner, event.state) for event in told} == {("search/owner", job.state)}


def test_subscribers_that_raise_are_logged_and_disturb_nobody(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = world.scheduler()
    heard: list[Event] = []

    def broken(event: Event) -> None:
        raise SystemExit("broken subscriber")

    class Broken(Listener):
        def job_state(self, job: Job, record: StateRecord) -> None:
            raise RuntimeError("broken listener")

    owner = PlainOwner("service/node-1", broken)
    scheduler.subscribe(broken)
    scheduler.subscribe(heard.append)
    scheduler.add_listener(Broken())
    with caplog.at_level(logging.ERROR):
        job = scheduler.submit(world.job("job"), owner)
        assert scheduler.wait_for_job(job, HOUR_S) is S.DONE
    assert [event.state for event in changes(heard)] == [S.WAITING, S.READY, S.SCHEDULED, S.RUNNING, S.DONE]
    assert "broken subscriber" in caplog.text
    assert "broken listener" in caplog.text


def test_a_listener_hears_once_of_a_job_with_two_owners(world: World) -> None:
    class Notes(Listener):
        def __init__(self) -> None:
            self.calls: list[str] = []

        def job_submitted(self, job: Job) -> None:
            self.calls.append(f"submitted {job.job_id}")

        def job_state(self, job: Job, record: StateRecord) -> None:
            self.calls.append(record.state.name)

        def job_explained(self, job: Job, message: str | None) -> None:
            self.calls.append(f"explained {message}")

    scheduler, notes = world.scheduler(), Notes()
    scheduler.add_listener(notes)
    one, two = FakeOwner("one"), FakeOwner("two")
    for owner in (one, two):
        job = scheduler.submit(world.job("job"), owner)
    scheduler.call(lambda: job.explain("no room"))
    scheduler.wait(two, HOUR_S)
    scheduler.remove_listener(notes)
    scheduler.submit(world.job("unheard"), two)
    scheduler.wait(two, HOUR_S)
    assert notes.calls.count("submitted job") == 2, "each owner asked for it"
    assert notes.calls.count("DONE") == 1
    assert notes.calls.count("explained no room") == 1
    assert not any("unheard" in call for call in notes.calls)


def test_the_scheduler_counts_for_each_owner(world: World) -> None:
    scheduler = world.scheduler()
    one, two = PlainOwner("search/one"), PlainOwner("search/two")
    world.payload = world.payload._replace(reason=JobFailureStatus.MEMORY)
    job = scheduler.submit(world.job("job"), one)
    scheduler.submit(world.job("job"), two)
    scheduler.call(scheduler._take_in)
    counts = scheduler.counts(one)
    assert (counts.unfinished, counts.failed, counts.at_rest) == (1, 0, False)
    scheduler.wait(one, HOUR_S)
    assert [scheduler.counts(owner).failed for owner in (one, two)] == [1, 1]
    assert counts is scheduler.counts(one)
    assert counts.at_rest
    late = PlainOwner("search/late")
    scheduler.call(lambda: job.add_owner(late))
    scheduler.call(lambda: job.add_owner(late))
    assert scheduler.counts(late).failed == 1, "the job counts as it stands, and once"
    scheduler.call(lambda: job.remove_owner(late))
    scheduler.call(lambda: job.remove_owner(late))
    assert scheduler.counts(late).failed == 0
    scheduler.submit(world.job("job"), two)
    scheduler.call(scheduler._take_in)
    assert (scheduler.counts(two).unfinished, scheduler.counts(two).failed) == (1, 0)


@pytest.mark.parametrize("name", ["", "packing", "search/", "kitchen/one", "experiments/sweep", "/one"])
def test_an_owner_has_a_door_and_a_name(name: str) -> None:
    with pytest.raises(InvalidName):
        PlainOwner(name)


def test_a_plain_owner_can_have_a_journal(world: World) -> None:
    """The journal of a search lies beside those of experiments, and is written in the same way."""
    scheduler = world.scheduler()
    place = Layout("/ws").owner_journal(PlainOwner("search/packing").name)
    assert place.path(0) == "/ws/.events/search/packing/events-0.jsonl"
    files = scheduler.machine.files
    journal = OwnerJournal(EventWriter(files, place, "ab12"), scheduler.tell)
    heard: list[Event] = []
    journal.subscribe(heard.append)
    owner = PlainOwner("search/packing", journal.write)
    scheduler.submit(world.job("job"), owner)
    scheduler.wait(owner, HOUR_S)
    journal.end()
    written = [entry.event for entry in EventReader(files, place).read()]
    assert written == heard
    assert {event.owner for event in changes(written)} == {"search/packing"}
    assert changes(written)[-1].state is S.DONE
