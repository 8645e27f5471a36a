"""Owns what the scheduler keeps for an owner: the list of its jobs, and that nothing more is to start."""

from __future__ import annotations

import gc
import weakref

from tenuto.lifecycle.states import JobFailureStatus, JobState, TransientMode
from tenuto.scheduler.jobs import Job
from tenuto.testing.jobs import FakeOwner
from tenuto.workspace.ports import LockHandle

from .servers import WAIT_S, Server


class Listed:
    """A list of jobs: what was listed, by id and mode, and what had been started by then."""

    def __init__(self, server: Server) -> None:
        self.jobs: list[tuple[str, TransientMode]] = []
        self.started: list[list[str]] = []
        self._launcher = server.launcher

    def add(self, job: Job) -> None:
        self.jobs.append((job.job_id, job.transient))
        self.started.append(list(self._launcher.started))


def test_a_job_is_listed_before_it_is_started(server: Server) -> None:
    listed = Listed(server)
    server.scheduler.keep_list(server.owner, listed.add)
    for name in ("a", "b"):
        assert server.scheduler.submit(server.job(name), server.owner).wait(WAIT_S) is JobState.DONE
    assert listed.jobs == [("a", TransientMode.NONE), ("b", TransientMode.NONE)]
    assert listed.started == [[], ["a"]]


def test_a_lock_that_a_remover_takes_before_it_reads_the_list_is_seen(server: Server) -> None:
    server.scheduler.submit(server.job("a"), server.owner).wait(WAIT_S)
    server.scheduler.release(server.owner)
    found, later = server.job("a"), FakeOwner("later")
    locks: list[LockHandle | None] = []
    server.scheduler.keep_list(later, lambda job: locks.append(server.machine.locks.try_lock(job.paths.lock)))
    job = server.scheduler.submit(found, later)
    server.scheduler.call(server.scheduler._take_in)
    assert job.state is JobState.WAITING
    (lock,) = locks
    assert lock is not None
    lock.close()
    assert job.wait(WAIT_S) is JobState.DONE
    assert server.launcher.started == ["a"]


def test_what_a_job_depends_on_is_listed_for_its_owner_too(server: Server) -> None:
    needed = server.scheduler.submit(server.job("a"), server.owner)
    needed.wait(WAIT_S)
    server.scheduler.release(server.owner)
    later, listed = FakeOwner("later"), Listed(server)
    server.scheduler.keep_list(later, listed.add)
    assert server.scheduler.submit(server.job("b", needed), later).wait(WAIT_S) is JobState.DONE
    assert [name for name, _ in listed.jobs] == ["b", "a"]
    assert needed.has_owner(later)


def test_every_owner_lists_a_job_again_whose_mode_changes(server: Server) -> None:
    other, lists = FakeOwner("other"), (Listed(server), Listed(server))
    for owner, listed in zip((server.owner, other), lists, strict=True):
        server.scheduler.keep_list(owner, listed.add)
    server.scheduler.submit(server.job("a", transient=TransientMode.TRANSIENT), server.owner)
    wanted = server.scheduler.submit(server.job("a"), other)
    assert wanted.wait(WAIT_S) is JobState.DONE
    assert lists[0].jobs == [("a", TransientMode.TRANSIENT), ("a", TransientMode.NONE)]
    assert lists[1].jobs == [("a", TransientMode.NONE)]
    assert [started for listed in lists for started in listed.started] == [[], [], []]


def test_a_job_that_cannot_be_listed_ends_and_never_starts(server: Server) -> None:
    def refuse(job: Job) -> None:
        raise OSError("no space left")

    server.scheduler.keep_list(server.owner, refuse)
    job = server.scheduler.submit(server.job("a"), server.owner)
    assert job.wait(WAIT_S) is JobState.ERROR
    assert (job.failure_status, job.state_record.message) == (
        JobFailureStatus.FAILED,
        "OSError: no space left",
    )
    assert server.launcher.started == []
    assert server.scheduler.counts(server.owner).failed == 1


def test_an_owner_that_was_released_is_kept_by_nothing(server: Server) -> None:
    owner = FakeOwner("passing")
    server.scheduler.keep_list(owner, lambda job, owner=owner: None)  # type: ignore[misc]
    server.scheduler.stop_starting(owner)
    gone = weakref.ref(owner)
    server.scheduler.release(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_nothing_more_is_started_for_an_owner_that_stops(server: Server) -> None:
    other = FakeOwner("other")
    server.hold_back()
    jobs = {name: server.scheduler.submit(server.job(name), server.owner) for name in ("a", "b")}
    server.scheduler.submit(server.job("b"), other)
    server.scheduler.stop_starting(server.owner)
    server.let_start()
    server.scheduler.wait(other, WAIT_S)
    later = server.scheduler.submit(server.job("c"), server.owner)
    server.scheduler.call(server.scheduler._take_in)
    assert server.launcher.started == ["b"]
    assert {job.state for job in (jobs["a"], later)} == {JobState.READY}
