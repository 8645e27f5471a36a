"""The real scheduler on a pretended machine: killed and started again, the same way every time."""

from __future__ import annotations

import asyncio
import errno
import hashlib

import pytest

from tenuto.lifecycle.states import JobFailureStatus, JobState, TransientMode
from tenuto.scheduler.decisions import RetryLimits
from tenuto.testing.jobs import FakeOwner
from tenuto.testing.launcher import Step

from .worlds import HOUR_S, World, name_of


def test_a_chain_runs_in_order_in_virtual_time(world: World) -> None:
    owner = FakeOwner()
    scheduler = world.scheduler()
    jobs = world.submit_chain(scheduler, owner, 4)
    scheduler.wait(owner, HOUR_S)
    assert [job.state for job in jobs] == [JobState.DONE] * 4
    assert world.ledger == [(what, f"job{n}") for n in range(4) for what in ("begin", "end")]
    assert 20 <= world.host.clock.monotonic() < 21


@pytest.mark.parametrize("killed_after_s", [0.0, 0.0005, 0.003, 2.0, 5.001, 5.01, 7.5, 12.3])
def test_a_killed_scheduler_is_replaced_and_nothing_runs_twice(world: World, killed_after_s: float) -> None:
    first = world.scheduler()
    world.submit_chain(first, FakeOwner("first"), 4)
    world.loop.run_until_complete(asyncio.sleep(killed_after_s))
    first.kill()
    owner = FakeOwner("second")
    second = world.scheduler()
    jobs = world.submit_chain(second, owner, 4)
    second.wait(owner, HOUR_S)
    assert [job.state for job in jobs] == [JobState.DONE] * 4
    assert world.ledger == [(what, f"job{n}") for n in range(4) for what in ("begin", "end")]


@pytest.mark.parametrize("step", list(Step))
def test_a_runner_killed_at_any_step_is_started_again(world: World, step: Step) -> None:
    world.dies_at["job1"] = step
    owner = FakeOwner()
    scheduler = world.scheduler()
    jobs = world.submit_chain(scheduler, owner, 3)
    scheduler.wait(owner, HOUR_S)
    assert [job.state for job in jobs] == [JobState.DONE] * 3
    begun = [name for what, name in world.ledger if what == "begin"]
    assert begun.count("job0") == begun.count("job2") == 1
    assert begun.count("job1") == (2 if step in (Step.CONCLUDE, Step.WRITE_MARKER) else 1)


def test_two_schedulers_share_the_work(world: World) -> None:
    owners = [FakeOwner("a"), FakeOwner("b")]
    schedulers = [world.scheduler(), world.scheduler()]
    for scheduler, owner in zip(schedulers, owners, strict=True):
        world.submit_chain(scheduler, owner, 5)
    for scheduler, owner in zip(schedulers, owners, strict=True):
        scheduler.wait(owner, HOUR_S)
    assert [name for what, name in world.ledger if what == "begin"] == [f"job{n}" for n in range(5)]


def test_a_wish_that_its_writer_did_not_live_to_deliver_is_obeyed_on_adoption(world: World) -> None:
    first = world.scheduler()
    world.submit_chain(first, FakeOwner("first"), 1)
    world.loop.run_until_complete(asyncio.sleep(2.0))
    world.wish_to_stop(first.machine, "job0")
    first.kill()
    owner = FakeOwner("second")
    second = world.scheduler()
    [job] = world.submit_chain(second, owner, 1)
    second.wait(owner, HOUR_S)
    assert (job.state, job.failure_status) == (JobState.ERROR, JobFailureStatus.CANCELLED)
    assert world.ledger == [("begin", "job0")]


def test_a_runner_said_to_have_failed_that_dies_later_is_followed_by_another(world: World) -> None:
    """The scheduler could not read the directory once: the runner lived, and the job was submitted again."""
    world.retry = RetryLimits()
    first, owner, second = world.scheduler(), FakeOwner("second"), world.scheduler()
    world.submit_chain(first, FakeOwner("first"), 1)
    world.loop.run_until_complete(asyncio.sleep(1.0))
    first.kill()
    [job] = world.submit_chain(second, owner, 1)
    world.host.disk.fail_after(0, errno.EIO)
    second.wait(owner, HOUR_S)
    assert job.failure_status is JobFailureStatus.FAILED
    world.submit_chain(second, owner, 1)
    world.loop.run_until_complete(asyncio.sleep(1.0))
    [runner] = [runner for runner in world.launcher.runners.values() if runner.alive()]
    runner.kill()
    second.wait(owner, HOUR_S)
    assert (job.state, job.attempt) == (JobState.DONE, 2)
    assert world.ledger == [("begin", "job0"), ("begin", "job0"), ("end", "job0")]


def test_a_job_that_was_cancelled_as_its_time_was_up_is_not_tried_again(world: World) -> None:
    """The wish came when the runner could not hear it any more: its marker says TIMEOUT."""
    world.retry = RetryLimits(resumable=True, max_retries=3)
    world.payload = world.payload._replace(
        exit_code=1,
        reason=JobFailureStatus.TIMEOUT,
        on_end=lambda machine, order: world.wish_to_stop(machine, name_of(order), order.launch.attempt),
    )
    owner = FakeOwner()
    scheduler = world.scheduler()
    [job] = world.submit_chain(scheduler, owner, 1)
    scheduler.wait(owner, HOUR_S)
    assert (job.state, job.attempt) == (JobState.ERROR, 1)
    assert world.ledger == [("begin", "job0")]


def test_the_same_world_gives_the_same_history() -> None:
    def history() -> str:
        world = World()
        first = world.scheduler()
        world.submit_chain(first, FakeOwner(), 6)
        world.loop.run_until_complete(asyncio.sleep(7.0))
        first.kill()
        owner = FakeOwner()
        second = world.scheduler()
        world.submit_chain(second, owner, 6)
        second.wait(owner, HOUR_S)
        world.loop.close()
        return hashlib.sha256(repr((world.ledger, owner.history)).encode()).hexdigest()

    assert history() == history()


def test_a_job_that_failed_elsewhere_while_it_slept_is_run_when_it_is_needed(world: World) -> None:
    """Found by the simulation (seed 7745): the failure of before counted as the answer."""
    owner, other_owner = FakeOwner(), FakeOwner("other")
    scheduler, other = world.scheduler(), world.scheduler()
    sleeping = scheduler.submit(world.job("a", transient=TransientMode.TRANSIENT), owner)
    scheduler.wait(owner, HOUR_S)
    works, world.payload = world.payload, world.payload._replace(exit_code=3)
    failed = other.submit(world.job("a"), other_owner)
    other.wait(other_owner, HOUR_S)
    assert (sleeping.state, failed.state) == (JobState.UNSCHEDULED, JobState.ERROR)
    world.payload = works
    needing = scheduler.submit(world.job("b", sleeping), owner)
    scheduler.wait(owner, HOUR_S)
    assert (sleeping.state, needing.state) == (JobState.DONE, JobState.DONE)
    assert sleeping.attempt == 2


def test_a_start_that_the_machine_refused_costs_no_retry(world: World) -> None:
    """F41. Found by the simulation (seed 440): the one loss that was allowed was used up by it."""
    world.launcher.errors += [OSError(errno.EAGAIN, "no process left") for _ in range(5)]
    world.dies_at["job0"] = Step.CONCLUDE
    owner = FakeOwner()
    scheduler = world.scheduler()
    (job,) = world.submit_chain(scheduler, owner, 1)
    scheduler.wait(owner, HOUR_S)
    assert (job.state, job.attempt) == (JobState.DONE, 7)
    assert world.ledger == 2 * [("begin", "job0"), ("end", "job0")]


@pytest.mark.parametrize("lost", [b"", None])
def test_the_parameters_of_a_done_job_that_the_power_took_are_written_again(
    world: World, lost: bytes | None
) -> None:
    owner = FakeOwner()
    scheduler = world.scheduler()
    job = scheduler.submit(world.job("job"), owner)
    scheduler.wait(owner, HOUR_S)
    scheduler.kill()
    if lost is None:
        world.host.disk.remove(job.paths.params)
    else:
        world.host.disk.write(job.paths.params, lost)
    second, other = world.scheduler(), FakeOwner("second")
    found = second.submit(world.job("job"), other)
    second.wait(other, HOUR_S)
    assert found.state is JobState.DONE
    assert world.host.disk.read(job.paths.params, 100) == b"{}"
    assert len(world.ledger) == 2


def test_parameters_are_written_again_once_the_disk_has_room(world: World) -> None:
    owner = FakeOwner()
    scheduler = world.scheduler()
    job = scheduler.submit(world.job("job"), owner)
    scheduler.wait(owner, HOUR_S)
    scheduler.kill()
    world.host.disk.write(job.paths.params, b"")
    world.host.disk.capacity = 0
    second, other = world.scheduler(), FakeOwner("second")
    found = second.submit(world.job("job"), other)
    world.loop.run_until_complete(asyncio.sleep(1.0))
    assert found.state is not JobState.DONE
    world.host.disk.capacity = None
    second.wait(other, HOUR_S)
    assert found.state is JobState.DONE
    assert world.host.disk.read(job.paths.params, 100) == b"{}"
