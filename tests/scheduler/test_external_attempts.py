"""Jobs that a cluster runs, on a pretended one: awaited, cancelled, tried again, never twice at once."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from tenuto.launchers.clusters import Clusters
from tenuto.launchers.instructions import Limits
from tenuto.launchers.observation import ClusterEntry, Seen
from tenuto.launchers.protocols import StartOrder
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.decisions import MAX_BLAMELESS, RetryLimits
from tenuto.scheduler.jobs import Job
from tenuto.testing.cluster import FakeCluster, FakeClusterLauncher
from tenuto.testing.cluster_job import ClusterJob, Fate
from tenuto.testing.disk import Crash
from tenuto.testing.host import FakeHost
from tenuto.testing.jobs import FakeOwner
from tenuto.testing.launcher import FakeLauncher, FakePayload, Step
from tenuto.workspace import job_directory
from tenuto.workspace.claims import Claim, Claimer, claimer
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.ports import Machine
from tenuto.workspace.records import StopRecord
from tests.parts.simulation import SimulatedScheduler, VirtualLoop
from tests.scheduler.worlds import NoWork

HOUR_S = 3600.0


class World:
    """A cluster, and schedulers that hand jobs over to it."""

    def __init__(self) -> None:
        self.host = FakeHost(seed=5)
        self.loop = VirtualLoop(self.host.clock)
        self.cluster = FakeCluster(self.host)
        self.view = self.cluster.seen_by(self.host.machine())
        self.duration_s = 10.0
        self.running = 0
        self.begun = 0
        self.launcher = FakeClusterLauncher(self.cluster, self.view, self._payload)

    def _payload(self, order: StartOrder) -> FakePayload:
        return FakePayload(self.duration_s, on_start=self._begins, on_end=self._ends)

    def _begins(self, machine: Machine, order: StartOrder) -> None:
        self.begun += 1
        self.running += 1
        assert self.running == 1, "the job runs twice at once"

    def _ends(self, machine: Machine, order: StartOrder) -> None:
        self.running -= 1

    def scheduler(self) -> SimulatedScheduler:
        return SimulatedScheduler(self.host, self.loop, lambda machine: Clusters({"cluster": self.view}))

    def job(self, launcher: Any = None, **options: Any) -> Job:
        return Job(
            "sim.Task",
            "far",
            layout=Layout("/ws"),
            launcher=launcher or self.launcher,
            work=NoWork(),
            clock=self.host.clock,
            **options,
        )

    @property
    def paths(self) -> JobPaths:
        return Layout("/ws").job("sim.Task", "far")

    def sleep(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def lose(self, job: Job, attempt: int, how: Callable[[ClusterJob], None]) -> None:
        """Wait until an attempt runs, and end it by force."""
        for _ in range(1000):
            if (job.state, job.attempt) == (JobState.RUNNING, attempt):
                break
            self.sleep(1.0)
        assert (job.state, job.attempt) == (JobState.RUNNING, attempt)
        how(self.cluster.jobs[max(self.cluster.jobs, key=int)])
        self.running = 0


def preempt(job: ClusterJob) -> None:
    """A more urgent job gets the node of a job, which is killed."""
    for runner in job.runners:
        runner.kill()
    job.sighting = ClusterEntry(Seen.ENDED, message="PREEMPTED", blameless=True)


def _cancel(job: ClusterJob) -> None:
    """A person cancels a job with the cluster's own command, and it is killed."""
    preempt(job)
    job.sighting = ClusterEntry(Seen.ENDED, reason=JobFailureStatus.CANCELLED, message="CANCELLED")


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.loop.close()


def test_a_job_is_handed_over_and_awaited_without_a_lock(world: World) -> None:
    world.cluster.pending_s = lambda: 100.0
    owner, scheduler = FakeOwner(), world.scheduler()
    job = scheduler.submit(world.job(), owner)
    world.sleep(50.0)
    assert job.state is JobState.SCHEDULED
    assert not world.host.locks.is_locked(world.paths.lock)
    world.sleep(55.0)
    assert job.state is JobState.RUNNING
    scheduler.wait(owner, HOUR_S)
    assert (job.state, world.begun) == (JobState.DONE, 1)


@pytest.mark.parametrize("dies_after_s", [0.5, 50.0, 105.0])
def test_another_scheduler_waits_for_what_a_dead_one_handed_over(world: World, dies_after_s: float) -> None:
    world.cluster.pending_s = lambda: 100.0
    first = world.scheduler()
    first.submit(world.job(), FakeOwner())
    world.sleep(dies_after_s)
    first.kill()
    owner, second = FakeOwner(), world.scheduler()
    job = second.submit(world.job(), owner)
    world.sleep(0.1)
    assert job.state is (JobState.RUNNING if dies_after_s > 100.0 else JobState.SCHEDULED)
    second.wait(owner, HOUR_S)
    assert (job.state, job.attempt, world.begun) == (JobState.DONE, 1, 1)


def test_a_pending_job_is_cancelled_at_once_and_never_begins(world: World) -> None:
    world.cluster.pending_s = lambda: 100.0
    owner, scheduler = FakeOwner(), world.scheduler()
    job = scheduler.submit(world.job(), owner)
    world.sleep(5.0)
    world.cluster.is_silent = True  # the cluster cannot be asked, either
    scheduler.cancel(job)
    world.sleep(1.0)
    assert (job.state, job.failure_status) == (JobState.ERROR, JobFailureStatus.CANCELLED)
    made = claimer(world.host.machine(), world.paths, world.launcher.cluster.jobs["1"].order.launch.nonce)
    assert isinstance(made, Claim)
    assert made.by is Claimer.SCHEDULER
    world.sleep(HOUR_S)
    assert world.begun == 0


def test_a_job_whose_submission_hangs_is_cancelled_at_once(world: World) -> None:
    world.cluster.fate = lambda order: Fate.UNANSWERED
    world.cluster.pending_s = lambda: 10.0
    owner, scheduler = FakeOwner(), world.scheduler()
    job = scheduler.submit(world.job(), owner)
    world.sleep(5.0)
    scheduler.cancel(job)
    world.sleep(1.0)
    assert (job.state, job.failure_status) == (JobState.ERROR, JobFailureStatus.CANCELLED)
    world.sleep(HOUR_S)
    assert world.begun == 0


def test_another_scheduler_cancels_what_is_pending(world: World) -> None:
    world.cluster.pending_s = lambda: 100.0
    first, second = world.scheduler(), world.scheduler()
    one, two = FakeOwner(), FakeOwner()
    mine = first.submit(world.job(), one)
    world.sleep(5.0)
    theirs = second.submit(world.job(), two)
    world.sleep(1.0)
    second.cancel(theirs)
    world.sleep(10.0)
    assert [job.failure_status for job in (mine, theirs)] == [JobFailureStatus.CANCELLED] * 2
    assert world.begun == 0


def test_a_running_job_is_cancelled_with_its_reason(world: World) -> None:
    world.duration_s = 1000.0
    owner, scheduler = FakeOwner(), world.scheduler()
    job = scheduler.submit(world.job(), owner)
    world.sleep(10.0)
    assert job.state is JobState.RUNNING
    scheduler.cancel(job, "no longer wanted")
    scheduler.wait(owner, 60.0)
    assert (job.failure_status, job.state_record.message) == (JobFailureStatus.CANCELLED, "no longer wanted")


@pytest.mark.parametrize("fate", [fate for fate in Fate if fate is not Fate.NODE_DEAD])
@pytest.mark.parametrize("has_locks", [True, False])
def test_whatever_the_cluster_does_the_payload_begins_once_and_ends_well(
    world: World, fate: Fate, has_locks: bool
) -> None:
    world.cluster.fate = lambda order: fate
    world.cluster.has_locks = has_locks
    world.duration_s = 200.0
    owner, scheduler = FakeOwner(), world.scheduler()
    job = scheduler.submit(world.job(), owner)
    scheduler.wait(owner, HOUR_S)
    assert (job.state, job.attempt, world.begun) == (JobState.DONE, 1, 1)


def test_a_node_that_loses_power_costs_the_job_nothing(world: World) -> None:
    world.duration_s = 1000.0
    owner, scheduler = FakeOwner(), world.scheduler()
    job = scheduler.submit(world.job(), owner)
    lost = 0
    while not job.state.finished():
        world.sleep(30.0)
        for known in list(world.cluster.jobs.values()):
            if known.runners and known.runners[-1].alive():
                world.cluster.lose_node(known)
                world.running = 0
                lost += 1
    assert (job.state, job.failure_status) == (JobState.ERROR, JobFailureStatus.LOST)
    assert lost == world.begun == 1 + MAX_BLAMELESS
    assert "NODE_FAIL" in (job.state_record.message or "")


def test_a_job_preempted_too_often_is_lost_and_says_why(world: World) -> None:
    world.duration_s = 1000.0
    owner, scheduler = FakeOwner(), world.scheduler()
    job = scheduler.submit(world.job(retry=RetryLimits(max_lost_retries=9)), owner)
    for attempt in range(1, MAX_BLAMELESS + 2):
        world.lose(job, attempt, preempt)
    scheduler.wait(owner, HOUR_S)
    assert (job.failure_status, world.begun) == (JobFailureStatus.LOST, 1 + MAX_BLAMELESS)
    assert "PREEMPTED" in (job.state_record.message or "")


def test_preemptions_and_losses_of_its_own_use_up_retries_of_their_own(world: World) -> None:
    world.duration_s = 1000.0
    owner, scheduler = FakeOwner(), world.scheduler()
    job = scheduler.submit(world.job(retry=RetryLimits(max_lost_retries=1)), owner)
    world.lose(job, 1, preempt)
    world.lose(job, 2, preempt)
    world.lose(job, 3, lambda known: known.runners[0].kill())
    world.lose(job, 4, preempt)
    world.sleep(HOUR_S)
    assert (job.state, job.attempt, world.begun) == (JobState.DONE, 5, 5)
    launch = job_directory.read_launch(world.host.machine().files, world.paths)
    assert launch is not None
    assert (launch.lost_count, launch.blameless_count) == (1, 3)


def test_another_scheduler_goes_on_counting_preemptions(world: World) -> None:
    world.duration_s = 1000.0
    for attempt in range(1, MAX_BLAMELESS + 2):
        owner, scheduler = FakeOwner(), world.scheduler()
        job = scheduler.submit(world.job(), owner)
        world.lose(job, attempt, preempt)
        if attempt <= MAX_BLAMELESS:
            scheduler.kill()
    scheduler.wait(owner, HOUR_S)
    assert (job.failure_status, world.begun) == (JobFailureStatus.LOST, 1 + MAX_BLAMELESS)


def test_a_runner_that_dies_is_a_loss_like_any_other(world: World) -> None:
    world.duration_s = 1000.0
    owner, scheduler = FakeOwner(), world.scheduler()
    job = scheduler.submit(world.job(retry=RetryLimits(max_lost_retries=1)), owner)
    for _ in range(2):
        world.sleep(30.0)
        world.cluster.jobs[max(world.cluster.jobs, key=int)].runners[0].kill()
        world.running = 0
    scheduler.wait(owner, HOUR_S)
    assert (job.failure_status, world.begun, job.attempt) == (JobFailureStatus.LOST, 2, 2)
    assert job_directory.look(world.host.machine(), world.paths).derived.reason is JobFailureStatus.LOST


def _said_to_have_failed(world: World, job: Job, scheduler: SimulatedScheduler, owner: FakeOwner) -> None:
    """The disk fails once while the attempt is watched: its owner is told that the job failed."""
    world.host.disk.fail_after(0, errno.EIO)
    scheduler.wait(owner, HOUR_S)
    assert (job.failure_status, job.attempt) == (JobFailureStatus.FAILED, 1)


def test_an_attempt_said_to_have_failed_whose_loss_shows_later_is_tried_again(world: World) -> None:
    """The resubmission finds it not certainly dead and waits for it: its loss is no answer to that."""
    owner, scheduler = FakeOwner(), world.scheduler()
    job = scheduler.submit(world.job(), owner)
    world.lose(job, 1, lambda known: known.runners[0].kill())
    _said_to_have_failed(world, job, scheduler, owner)
    scheduler.submit(world.job(), owner)
    scheduler.wait(owner, HOUR_S)
    assert (job.state, job.attempt, world.begun) == (JobState.DONE, 2, 2)


def test_a_job_that_runs_once_and_was_said_to_have_failed_is_lost_in_the_end(world: World) -> None:
    owner, scheduler = FakeOwner(), world.scheduler()
    job = scheduler.submit(world.job(once=True), owner)
    world.lose(job, 1, lambda known: known.runners[0].kill())
    _said_to_have_failed(world, job, scheduler, owner)
    scheduler.submit(world.job(once=True), owner)
    scheduler.wait(owner, HOUR_S)
    assert (job.failure_status, job.attempt, world.begun) == (JobFailureStatus.LOST, 1, 1)


def test_a_wish_older_than_a_resubmission_does_not_end_it(world: World) -> None:
    """The wish was for the attempt that was said to have failed; a wish that comes later is obeyed."""
    owner, scheduler = FakeOwner(), world.scheduler()
    job = scheduler.submit(world.job(), owner)
    world.lose(job, 1, lambda known: known.runners[0].kill())
    scheduler.cancel(job)
    world.sleep(0.1)
    _said_to_have_failed(world, job, scheduler, owner)
    scheduler.submit(world.job(), owner)
    scheduler.wait(owner, HOUR_S)
    assert (job.state, job.attempt, world.begun) == (JobState.DONE, 2, 2)


def test_a_wish_that_comes_after_a_resubmission_is_obeyed(world: World) -> None:
    owner, scheduler = FakeOwner(), world.scheduler()
    job = scheduler.submit(world.job(), owner)
    world.lose(job, 1, lambda known: known.runners[0].kill())
    scheduler.cancel(job)
    world.sleep(0.1)
    _said_to_have_failed(world, job, scheduler, owner)
    scheduler.submit(world.job(), owner)
    world.sleep(0.1)
    now = world.host.clock.now()
    again = StopRecord(1, JobFailureStatus.CANCELLED, now, "by another process")
    job_directory.request_stop(world.host.machine().files, world.paths, again)
    scheduler.wait(owner, HOUR_S)
    assert (job.failure_status, job.state_record.message) == (
        JobFailureStatus.CANCELLED,
        "by another process",
    )
    assert world.begun == 1


def test_an_attempt_that_a_person_cancels_in_the_cluster_is_not_tried_again(world: World) -> None:
    """Not even if its end was told before: the person may have cancelled it after the resubmission."""
    world.duration_s = 1000.0
    owner, scheduler = FakeOwner(), world.scheduler()
    job = scheduler.submit(world.job(), owner)
    world.sleep(30.0)
    _said_to_have_failed(world, job, scheduler, owner)
    scheduler.submit(world.job(), owner)
    world.lose(job, 1, _cancel)
    scheduler.wait(owner, HOUR_S)
    assert (job.failure_status, job.attempt, world.begun) == (JobFailureStatus.CANCELLED, 1, 1)


def test_a_refused_job_is_rejected_with_the_words_of_the_cluster(world: World) -> None:
    world.launcher.refusals.append("no such partition: gpux")
    owner, scheduler = FakeOwner(), world.scheduler()
    job = scheduler.submit(world.job(), owner)
    scheduler.wait(owner, HOUR_S)
    assert (job.failure_status, job.state_record.message) == (
        JobFailureStatus.REJECTED,
        "no such partition: gpux",
    )
    assert job_directory.look(world.host.machine(), world.paths).derived.reason is JobFailureStatus.REJECTED


def test_a_submission_that_fails_for_now_uses_up_no_try(world: World) -> None:
    world.launcher.errors += [OSError(errno.EAGAIN, "busy") for _ in range(6)]
    owner, scheduler = FakeOwner(), world.scheduler()
    job = scheduler.submit(world.job(), owner)
    scheduler.wait(owner, HOUR_S)
    assert (job.state, world.begun, job.tries.lost_count) == (JobState.DONE, 1, 0)


def test_a_scheduler_that_dies_before_the_submission_costs_a_minute(world: World) -> None:
    first = world.scheduler()
    first.submit(world.job(), FakeOwner())
    start = world.launcher.start

    async def die(order: StartOrder) -> Any:
        first.kill()
        await asyncio.sleep(0)

    world.launcher.start = die  # type: ignore[method-assign]
    world.sleep(1.0)
    world.launcher.start = start  # type: ignore[method-assign]
    owner, second = FakeOwner(), world.scheduler()
    job = second.submit(world.job(), owner)
    world.sleep(30.0)
    assert job.state is JobState.SCHEDULED
    second.wait(owner, HOUR_S)
    assert (job.state, job.attempt, world.begun) == (JobState.DONE, 2, 1)


def test_a_silent_cluster_ends_and_starts_nothing(world: World) -> None:
    owner, scheduler = FakeOwner(), world.scheduler()
    world.duration_s = 100.0
    job = scheduler.submit(world.job(), owner)
    world.sleep(10.0)
    world.cluster.is_silent = True
    world.sleep(60.0)
    assert (job.state, world.begun) == (JobState.RUNNING, 1)
    scheduler.wait(owner, HOUR_S)  # its marker is seen all the same
    assert job.state is JobState.DONE


def test_two_schedulers_one_local_and_one_not_run_a_job_once(world: World) -> None:
    local = FakeLauncher(world.host, world._payload)
    world.cluster.pending_s = lambda: 20.0
    owners, schedulers = [FakeOwner(), FakeOwner()], [world.scheduler(), world.scheduler()]
    jobs = [
        scheduler.submit(world.job(launcher), owner)
        for scheduler, owner, launcher in zip(schedulers, owners, (world.launcher, local), strict=True)
    ]
    for scheduler, owner in zip(schedulers, owners, strict=True):
        scheduler.wait(owner, HOUR_S)
    assert [job.state for job in jobs] == [JobState.DONE] * 2
    assert world.begun == 1


def test_two_launchers_of_one_name_do_not_share_slots(world: World) -> None:
    """A full one kept the jobs of the other waiting."""
    full, free = (FakeLauncher(world.host, world._payload, slots=1) for _ in range(2))
    scheduler, owner = world.scheduler(), FakeOwner()
    world.duration_s = 100.0
    jobs = []
    for n, launcher in enumerate((full, full, free)):
        job = Job(
            "sim.Task",
            f"j{n}",
            layout=Layout("/ws"),
            launcher=launcher,
            work=NoWork(),
            clock=world.host.clock,
        )
        world.running = -10
        jobs.append(scheduler.submit(job, owner))
    world._begins = lambda machine, order: None  # type: ignore[method-assign]
    world.sleep(5.0)
    assert [job.state for job in jobs] == [JobState.RUNNING, JobState.READY, JobState.RUNNING]
    scheduler.wait(owner, HOUR_S)


def test_limits_come_from_the_submission_then_the_job_then_the_launcher(world: World) -> None:
    world.launcher.limits = Limits(walltime_s=5.0)
    assert world.job().limits.walltime_s == 5.0
    assert world.job(limits=Limits(walltime_s=7.0)).limits.walltime_s == 7.0
    owner, scheduler = FakeOwner(), world.scheduler()
    world.duration_s = 60.0
    job = scheduler.submit(world.job(), owner, limits=Limits(walltime_s=100.0))
    scheduler.wait(owner, HOUR_S)
    assert job.state is JobState.DONE


# Kill matrix


@pytest.mark.parametrize("point", range(45))
def test_a_scheduler_killed_at_any_operation_of_a_hand_over_loses_nothing(world: World, point: int) -> None:
    """The driver dies in the middle of one operation on the disk; the next one sees the job through."""
    world.cluster.pending_s = lambda: 5.0
    first = world.scheduler()
    world.host.disk.crash_after(point)
    with suppress(Crash):
        first.submit(world.job(), FakeOwner())
        world.sleep(1.0)
    world.host.disk.heal()
    first.kill()
    owner, second = FakeOwner(), world.scheduler()
    job = second.submit(world.job(), owner)
    second.wait(owner, HOUR_S)
    assert (job.state, world.begun) == (JobState.DONE, 1)


@pytest.mark.parametrize("step", Step)
@pytest.mark.parametrize("has_locks", [True, False])
def test_a_runner_killed_at_any_step_is_followed_by_one_other(
    world: World, step: Step, has_locks: bool
) -> None:
    world.cluster.has_locks = has_locks

    def dies_at(order: StartOrder) -> Step | None:
        return step if order.launch.attempt == 1 else None

    def begins(machine: Machine, order: StartOrder) -> None:
        world.begun += 1

    world.launcher.dies_at = dies_at
    world._begins = begins  # type: ignore[method-assign]
    owner, scheduler = FakeOwner(), world.scheduler()
    job = scheduler.submit(world.job(retry=RetryLimits(max_lost_retries=1)), owner)
    scheduler.wait(owner, HOUR_S)
    assert job.state is JobState.DONE
    assert job.attempt == (1 if step is Step.EXIT else 2)
    assert world.begun == (1 if step <= Step.FORK or step is Step.EXIT else 2)
