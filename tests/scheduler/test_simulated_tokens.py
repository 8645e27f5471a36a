"""Tokens on a pretended machine: several schedulers, killed at will, in virtual time."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator, Sequence
from random import Random

import pytest

from tenuto.errors import TokenError
from tenuto.launchers.clusters import Clusters
from tenuto.launchers.protocols import StartOrder
from tenuto.lifecycle.states import JobState, TransientMode
from tenuto.scheduler.decisions import RetryLimits
from tenuto.scheduler.entries import JobDependency
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.tokens import (
    GPU_TOKEN,
    MOST_OVERTAKINGS,
    CounterToken,
    GpuToken,
    TokenDependency,
    declare,
)
from tenuto.testing.cluster import FakeCluster, FakeClusterLauncher
from tenuto.testing.host import FakeHost
from tenuto.testing.jobs import FakeOwner
from tenuto.testing.launcher import FakeLauncher, FakePayload, Step
from tenuto.workspace import job_directory
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import Machine
from tenuto.workspace.token_files import TokenFiles, TokenPlace
from tests.parts.simulation import SimulatedScheduler, VirtualLoop
from tests.scheduler.worlds import NoWork

HOUR_S = 3600.0
PLACE = TokenPlace("/tokens")


class World:
    """A host whose jobs report themselves, and an eye on the units of each token."""

    def __init__(self, **tokens: int) -> None:
        self.host = FakeHost(seed=3)
        self.loop = VirtualLoop(self.host.clock)
        self.begun: list[str] = []
        self.durations: dict[str, float] = {}
        self.dies_at: dict[str, Step] = {}
        self.launcher = self.make_launcher()
        self.clusters = Clusters()
        self.files = TokenFiles(self.host.machine(), PLACE)
        self.tokens = {name: self.token(name, count) for name, count in tokens.items()}

    def make_launcher(self, name: str = "fake", slots: int = 8) -> FakeLauncher:
        return FakeLauncher(
            self.host,
            lambda order: FakePayload(self.durations.get(name_of(order), 5.0), on_start=self._begins),
            name=name,
            slots=slots,
            dies_at=lambda order: self.dies_at.pop(name_of(order), None),
        )

    def make_cluster(self) -> FakeClusterLauncher:
        """An external launcher, whose cluster all schedulers made from now on ask."""
        cluster = FakeCluster(self.host, pending_s=lambda: 0.1, poll_s=0.2)
        view = cluster.seen_by(self.host.machine())
        self.clusters = Clusters({"cluster": view})
        return FakeClusterLauncher(
            cluster,
            view,
            lambda order: FakePayload(self.durations.get(name_of(order), 5.0), on_start=self._begins),
        )

    def token(self, name: str, count: int) -> CounterToken:
        token = CounterToken(name, count, PLACE.directory)
        declare(self.host.machine(), token)
        return token

    def _begins(self, machine: Machine, order: StartOrder) -> None:
        self.begun.append(name_of(order))
        for name in self.tokens:
            state = self.files.state(name)
            assert state.capacity is not None
            assert len(state.held) <= state.capacity, f"{name} is over-committed"

    def scheduler(self) -> SimulatedScheduler:
        return SimulatedScheduler(self.host, self.loop, lambda machine: self.clusters)

    def job(
        self, name: str, *tokens: TokenDependency, launcher: FakeLauncher | None = None, lost_retries: int = 3
    ) -> Job:
        return Job(
            "sim.Task",
            name,
            layout=Layout("/ws"),
            launcher=launcher or self.launcher,
            work=NoWork(),
            clock=self.host.clock,
            tokens=tokens,
            retry=RetryLimits(max_lost_retries=lost_retries),
        )

    def held(self) -> dict[str, int]:
        return {name: len(self.files.state(name).held) for name in self.tokens}

    def sleep(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))


def name_of(order: StartOrder) -> str:
    return order.paths.directory.rpartition("/")[2]


def states(jobs: Sequence[Job]) -> set[JobState]:
    return {job.state for job in jobs}


@pytest.fixture
def world() -> Iterator[World]:
    made = World(a=2, b=1)
    yield made
    made.loop.close()


def test_jobs_run_as_far_as_units_go_and_free_them(world: World) -> None:
    owner, scheduler = FakeOwner(), world.scheduler()
    a = world.tokens["a"]
    jobs = [scheduler.submit(world.job(f"j{n}", a.dependency()), owner) for n in range(5)]
    world.sleep(1.0)
    assert world.held() == {"a": 2, "b": 0}
    assert [job.state for job in jobs] == [JobState.RUNNING] * 2 + [JobState.WAITING] * 3
    assert "token a (2 of 2 units busy)" in (jobs[2].state_record.message or "")
    scheduler.wait(owner, HOUR_S)
    assert states(jobs) == {JobState.DONE}
    assert world.begun == [f"j{n}" for n in range(5)]
    assert world.held() == {"a": 0, "b": 0}
    assert JobState.WAITING in owner.history["j4"][1:]


def test_two_that_want_the_same_two_tokens_do_not_block_each_other(world: World) -> None:
    owner, scheduler = FakeOwner(), world.scheduler()
    a, b = world.token("a", 1), world.tokens["b"]
    first = scheduler.submit(world.job("ab", a.dependency(), b.dependency()), owner)
    second = scheduler.submit(world.job("ba", b.dependency(), a.dependency()), owner)
    scheduler.wait(owner, HOUR_S)
    assert states([first, second]) == {JobState.DONE}


def test_a_job_that_waits_for_a_busy_token_delays_no_other_and_has_no_slot(world: World) -> None:
    owner, scheduler = FakeOwner(), world.scheduler()
    launcher = world.make_launcher("narrow", slots=2)
    a, b = world.tokens["a"], world.tokens["b"]
    world.durations = {"long": 1000.0}
    scheduler.submit(world.job("long", b.dependency(), launcher=launcher), owner)
    for n in range(5):
        scheduler.submit(world.job(f"stuck{n}", a.dependency(), b.dependency(), launcher=launcher), owner)
    free = [
        scheduler.submit(world.job(f"free{n}", a.dependency(), launcher=launcher), owner) for n in range(3)
    ]
    plain = scheduler.submit(world.job("plain", launcher=launcher), owner)
    world.sleep(60.0)
    assert states([*free, plain]) == {JobState.DONE}
    scheduler.wait(owner, 10 * HOUR_S)


def test_a_job_that_waited_gets_its_slot_before_those_that_came_later(world: World) -> None:
    owner, scheduler = FakeOwner(), world.scheduler()
    launcher = world.make_launcher("narrow", slots=2)
    b = world.tokens["b"]
    world.durations = {"first": 7.0}
    scheduler.submit(world.job("first", b.dependency(), launcher=launcher), owner)
    scheduler.submit(world.job("second", b.dependency(), launcher=launcher), owner)
    for n in range(20):
        scheduler.submit(world.job(f"plain{n}", launcher=launcher), owner)
    scheduler.wait(owner, HOUR_S)
    assert world.begun.index("second") < 6


@pytest.mark.parametrize("count", [1, 2])
def test_a_large_request_is_overtaken_at_most_ten_times(world: World, count: int) -> None:
    schedulers = [world.scheduler() for _ in range(count)]
    owners = [FakeOwner() for _ in schedulers]
    a = world.tokens["a"]
    world.durations = {f"small{n}": 5.0 + n % 3 for n in range(60)}
    for n in range(2):
        schedulers[n % count].submit(world.job(f"small{n}", a.dependency()), owners[n % count])
    world.sleep(1.0)
    large = schedulers[0].submit(world.job("large", a.dependency(2)), owners[0])
    world.sleep(1.0)
    for n in range(2, 60):
        schedulers[n % count].submit(world.job(f"small{n}", a.dependency()), owners[n % count])
    for scheduler, owner in zip(schedulers, owners, strict=True):
        scheduler.wait(owner, HOUR_S)
    assert large.state is JobState.DONE
    overtakings = world.begun.index("large") - 2
    assert overtakings == MOST_OVERTAKINGS if count == 1 else overtakings <= MOST_OVERTAKINGS


def test_first_come_first_served_also_between_schedulers(world: World) -> None:
    owners = [FakeOwner(), FakeOwner()]
    schedulers = [world.scheduler(), world.scheduler()]
    b = world.tokens["b"]
    order = [0, 1, 1, 0, 1, 0, 0, 1]
    for n, who in enumerate(order):
        schedulers[who].submit(world.job(f"j{n}", b.dependency()), owners[who])
        world.sleep(0.1)
    for scheduler, owner in zip(schedulers, owners, strict=True):
        scheduler.wait(owner, HOUR_S)
    assert world.begun == [f"j{n}" for n in range(len(order))]


@pytest.mark.parametrize("damage", ["removed", "unreadable", "of another shape"])
def test_a_lost_queue_is_made_again(world: World, damage: str) -> None:
    owners = [FakeOwner(), FakeOwner()]
    schedulers = [world.scheduler(), world.scheduler()]
    b = world.tokens["b"]
    for n in range(6):
        schedulers[n % 2].submit(world.job(f"j{n}", b.dependency()), owners[n % 2])
    world.sleep(1.0)
    assert len(world.files.queue().tickets) == 5
    disk = world.host.disk
    if damage == "removed":
        disk.remove(PLACE.queue)
        disk.remove(PLACE.schedulers)
        disk.remove(PLACE.capacity("b"))
    else:
        disk.write(PLACE.queue, b"{" if damage == "unreadable" else b'{"next": 1, "tickets": [3]}')
    for scheduler, owner in zip(schedulers, owners, strict=True):
        scheduler.wait(owner, HOUR_S)
    assert sorted(world.begun) == [f"j{n}" for n in range(6)]
    assert [name for name in world.begun if name in ("j1", "j3", "j5")] == ["j1", "j3", "j5"]
    assert world.host.clock.monotonic() < 60


def test_a_full_disk_delays_waiting_jobs_and_ends_none(world: World) -> None:
    owner, scheduler = FakeOwner(), world.scheduler()
    b = world.tokens["b"]
    scheduler.submit(world.job("first", b.dependency()), owner)
    world.sleep(1.0)
    world.host.disk.capacity = 0
    second = scheduler.submit(world.job("second", b.dependency()), owner)
    world.sleep(1.0)
    assert second.state is JobState.WAITING
    assert "waits until the machine recovers" in (second.state_record.message or "")
    world.host.disk.capacity = None
    scheduler.wait(owner, HOUR_S)
    assert second.state is JobState.DONE


def test_tickets_of_a_killed_scheduler_vanish(world: World) -> None:
    first, second = world.scheduler(), world.scheduler()
    owner = FakeOwner()
    a = world.tokens["a"]
    world.durations = {"holder": 20.0}
    second.submit(world.job("holder", a.dependency()), owner)
    world.sleep(1.0)
    for n in range(5):
        first.submit(world.job(f"dead{n}", a.dependency(2)), FakeOwner())
    world.sleep(1.0)
    assert len(world.files.queue().tickets) == 5
    first.kill()
    second.submit(world.job("alive", a.dependency(2)), owner)
    second.wait(owner, HOUR_S)
    assert world.begun == ["holder", "alive"]
    assert world.files.queue().tickets == ()


def test_a_killed_scheduler_leaves_the_units_of_what_runs_to_its_runners(world: World) -> None:
    first = world.scheduler()
    a = world.tokens["a"]
    for n in range(2):
        first.submit(world.job(f"j{n}", a.dependency()), FakeOwner())
    world.sleep(1.0)
    first.kill()
    assert world.held()["a"] == 2
    owner, second = FakeOwner(), world.scheduler()
    jobs = [second.submit(world.job(f"j{n}", a.dependency()), owner) for n in range(3)]
    world.sleep(1.0)
    assert world.begun == ["j0", "j1"]
    second.wait(owner, HOUR_S)
    assert states(jobs) == {JobState.DONE}
    assert world.begun == ["j0", "j1", "j2"]


@pytest.mark.parametrize("step", list(Step))
def test_a_killed_runner_frees_its_units(world: World, step: Step) -> None:
    world.dies_at = {"j0": step}
    owner, scheduler = FakeOwner(), world.scheduler()
    b = world.tokens["b"]
    jobs = [scheduler.submit(world.job(f"j{n}", b.dependency()), owner) for n in range(3)]
    scheduler.wait(owner, HOUR_S)
    assert states(jobs) == {JobState.DONE}
    assert world.held() == {"a": 0, "b": 0}


@pytest.mark.parametrize("step", list(Step))
def test_a_job_that_is_tried_again_at_once_keeps_what_it_gets(world: World, step: Step) -> None:
    """Its new units came before the slot of the attempt before was given back, which then closed them."""
    world.dies_at = {"alone": step}
    owner, scheduler = FakeOwner(), world.scheduler()
    job = scheduler.submit(world.job("alone", world.tokens["b"].dependency()), owner)
    scheduler.wait(owner, HOUR_S)
    assert job.state is JobState.DONE
    assert world.held() == {"a": 0, "b": 0}


def test_a_stopped_scheduler_is_waited_for_a_while_and_then_passed(world: World) -> None:
    """Its ticket could start, and does not: a scheduler that lives but never looks again."""
    owner, scheduler = FakeOwner(), world.scheduler()
    b = world.tokens["b"]
    stopped = world.scheduler()
    world.durations = {"holder": 5.0}
    scheduler.submit(world.job("holder", b.dependency()), owner)
    world.sleep(0.1)
    stopped.submit(world.job("never", b.dependency()), FakeOwner())
    world.sleep(0.1)
    stopped._runner.close()
    jobs = [scheduler.submit(world.job(f"j{n}", b.dependency()), owner) for n in range(3)]
    scheduler.wait(owner, HOUR_S)
    assert states(jobs) == {JobState.DONE}
    assert world.host.clock.monotonic() < 60


def test_a_larger_capacity_counts_at_once_and_a_smaller_one_as_units_fall_free(world: World) -> None:
    owner, scheduler = FakeOwner(), world.scheduler()
    a = world.tokens["a"]
    world.durations = {f"j{n}": 10.0 + n for n in range(12)}
    jobs = [scheduler.submit(world.job(f"j{n}", a.dependency()), owner) for n in range(12)]
    world.sleep(1.0)
    assert world.held()["a"] == 2
    world.token("a", 4)
    world.sleep(3.0)
    assert world.held()["a"] == 4
    world.token("a", 1)
    world.tokens.pop("a")  # more are held than it has, until they fall free
    world.sleep(4.0)
    assert len(world.files.state("a").held) == 4
    world.sleep(16.0)
    assert len(world.files.state("a").held) == 1
    scheduler.wait(owner, HOUR_S)
    assert states(jobs) == {JobState.DONE}


def test_a_job_that_waits_for_more_than_is_left_of_a_token_ends_with_a_message(world: World) -> None:
    owner, scheduler = FakeOwner(), world.scheduler()
    a = world.tokens["a"]
    scheduler.submit(world.job("holder", a.dependency()), owner)
    both = scheduler.submit(world.job("both", a.dependency(2)), owner)
    world.sleep(1.0)
    world.token("a", 1)
    scheduler.wait(owner, HOUR_S)
    assert both.state is JobState.ERROR
    assert "only 1" in (both.state_record.message or "")
    assert world.files.queue().tickets == ()


def test_a_request_beyond_the_capacity_is_refused_at_submit(world: World) -> None:
    owner, scheduler = FakeOwner(), world.scheduler()
    asked = world.tokens["a"].dependency(2)
    world.token("a", 1)
    with pytest.raises(TokenError, match="has only 1"):
        scheduler.submit(world.job("both", asked), owner)
    assert scheduler.counts(owner).unfinished == 0


def test_a_cancelled_job_leaves_the_queue(world: World) -> None:
    owner, scheduler = FakeOwner(), world.scheduler()
    b = world.tokens["b"]
    jobs = [scheduler.submit(world.job(f"j{n}", b.dependency()), owner) for n in range(3)]
    world.sleep(1.0)
    scheduler.cancel(jobs[1])
    world.sleep(0.5)
    assert len(world.files.queue().tickets) == 1
    scheduler.wait(owner, HOUR_S)
    assert [job.state for job in jobs] == [JobState.DONE, JobState.ERROR, JobState.DONE]


def test_a_job_without_an_owner_is_not_started_until_it_has_one(world: World) -> None:
    scheduler = world.scheduler()
    holder, gone, later = FakeOwner(), FakeOwner(), FakeOwner()
    b = world.tokens["b"]
    scheduler.submit(world.job("holder", b.dependency()), holder)
    scheduler.submit(world.job("unwanted", b.dependency()), gone)
    world.sleep(1.0)
    scheduler.stop_starting(gone)
    scheduler.wait(holder, HOUR_S)
    world.sleep(10.0)
    assert world.begun == ["holder"]
    assert world.files.queue().tickets == ()
    again = scheduler.submit(world.job("unwanted", b.dependency()), later)
    scheduler.wait(later, HOUR_S)
    assert again.state is JobState.DONE


def test_a_transient_job_that_nobody_needs_any_more_gives_up_its_ticket(world: World) -> None:
    owner, scheduler = FakeOwner(), world.scheduler()
    b = world.tokens["b"]
    scheduler.submit(world.job("holder", b.dependency()), owner)
    transient = world.job("transient", b.dependency())
    transient.transient = TransientMode.TRANSIENT
    transient = scheduler.submit(transient, owner)
    needs_it = world.job("needs-it")
    needs_it.dependencies = (JobDependency(transient),)
    needs_it = scheduler.submit(needs_it, owner)
    world.sleep(1.0)
    assert len(world.files.queue().tickets) == 1
    scheduler.cancel(needs_it)
    scheduler.wait(owner, HOUR_S)
    world.sleep(10.0)
    assert transient.state is JobState.UNSCHEDULED
    assert world.begun == ["holder"]
    assert world.files.queue().tickets == ()
    again = world.job("needs-it-after-all")
    again.dependencies = (JobDependency(transient),)
    again = scheduler.submit(again, owner)
    scheduler.wait(owner, HOUR_S)
    assert states([transient, again]) == {JobState.DONE}


@pytest.mark.slow
def test_many_waiting_jobs_have_few_tickets_and_keep_their_order(world: World) -> None:
    owner, scheduler = FakeOwner(), world.scheduler()
    b = world.tokens["b"]
    world.durations = {f"j{n}": 0.5 for n in range(250)}
    for n in range(250):
        scheduler.submit(world.job(f"j{n}", b.dependency()), owner)
    world.sleep(0.4)
    assert len(world.files.queue().tickets) == 100
    free = scheduler.submit(world.job("free", world.tokens["a"].dependency()), owner)
    world.sleep(6.0)
    assert free.state is JobState.DONE
    scheduler.wait(owner, HOUR_S)
    assert [name for name in world.begun if name != "free"] == [f"j{n}" for n in range(250)]


def test_a_job_holds_the_lock_of_its_launcher(world: World) -> None:
    owner, scheduler = FakeOwner(), world.scheduler()
    launcher = world.make_launcher("exclusive")
    launcher.lock_path = "/ws/exclusive.lock"
    world.host.disk.make_directory("/ws")
    jobs = [scheduler.submit(world.job(f"j{n}", launcher=launcher), owner) for n in range(3)]
    world.sleep(1.0)
    assert [job.state for job in jobs] == [JobState.RUNNING, JobState.WAITING, JobState.WAITING]
    assert world.host.locks.is_locked("/ws/exclusive.lock")
    scheduler.wait(owner, HOUR_S)
    assert states(jobs) == {JobState.DONE}
    assert 15 <= world.host.clock.monotonic() < 25


def test_locks_json_names_what_a_job_holds_and_a_gpu_job_is_told_its_devices(world: World) -> None:
    owner, scheduler = FakeOwner(), world.scheduler()
    gpus = GpuToken({2: "2", 3: "GPU-abc", 5: "5"}, PLACE.directory)
    declare(world.host.machine(), gpus)
    job = scheduler.submit(world.job("train", gpus.dependency(2), world.tokens["a"].dependency()), owner)
    other = scheduler.submit(world.job("other", gpus.dependency()), owner)
    world.sleep(1.0)
    locks = job_directory.read_locks(world.host.disk, job.paths, 1)
    assert locks is not None
    assert locks.directory == PLACE.directory
    assert [tuple(units) for units in locks.tokens] == [("a", (0,)), (GPU_TOKEN, (2, 3))]
    launches = [job_directory.read_launch(world.host.disk, found.paths) for found in (job, other)]
    devices = [launch.instructions["environment"]["CUDA_VISIBLE_DEVICES"] for launch in launches if launch]
    assert devices == ["2,GPU-abc", "5"]
    scheduler.wait(owner, HOUR_S)


def test_processes_that_see_different_gpus_share_one_token(world: World) -> None:
    owner, scheduler = FakeOwner(), world.scheduler()
    low, high, every = ({0: "0", 1: "1"}, {2: "2", 3: "3"}, {n: str(n) for n in range(4)})
    tokens = [GpuToken(devices, PLACE.directory) for devices in (low, high, every)]
    for token in (tokens[1], tokens[0], tokens[2]):
        declare(world.host.machine(), token)
    jobs = [
        scheduler.submit(world.job(f"j{n}", token.dependency(2)), owner) for n, token in enumerate(tokens)
    ]
    world.sleep(1.0)
    assert [job.state for job in jobs] == [JobState.RUNNING, JobState.RUNNING, JobState.WAITING]
    assert world.files.state(GPU_TOKEN).held == {0, 1, 2, 3}
    scheduler.wait(owner, HOUR_S)


def test_the_tokens_of_external_jobs_are_held_by_the_scheduler_and_taken_again_by_the_next(
    world: World,
) -> None:
    launcher = world.make_cluster()
    a = world.tokens["a"]
    world.durations = {"far": 100.0}
    first = world.scheduler()
    first.submit(world.job("far", a.dependency(2), launcher=launcher), FakeOwner())
    world.sleep(1.0)
    assert world.held()["a"] == 2
    first.kill()
    assert world.held()["a"] == 0
    owner, second = FakeOwner(), world.scheduler()
    far = second.submit(world.job("far", a.dependency(2), launcher=launcher), owner)
    near = second.submit(world.job("near", a.dependency()), owner)
    world.sleep(10.0)
    assert world.held()["a"] == 2
    assert near.state is JobState.WAITING
    second.wait(owner, HOUR_S)
    assert states([far, near]) == {JobState.DONE}
    assert world.held()["a"] == 0


def test_the_tokens_of_an_external_job_are_free_once_it_ended(world: World) -> None:
    launcher = world.make_cluster()
    a = world.tokens["a"]
    owner, scheduler = FakeOwner(), world.scheduler()
    jobs = [
        scheduler.submit(world.job(f"far{n}", a.dependency(2), launcher=launcher), owner) for n in range(3)
    ]
    world.sleep(2.0)
    assert world.held()["a"] == 2
    assert [job.state for job in jobs] == [JobState.RUNNING, JobState.WAITING, JobState.WAITING]
    scheduler.wait(owner, HOUR_S)
    assert world.begun == ["far0", "far1", "far2"]
    assert states(jobs) == {JobState.DONE}
    assert world.held()["a"] == 0


def test_a_unit_that_another_job_took_meanwhile_is_not_taken_twice(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody held the units of a job on a cluster after its scheduler died: it runs on, and that is said."""
    launcher = world.make_cluster()
    a = world.tokens["a"]
    world.durations = {"far": 30.0, "thief": 100.0}
    first, second = world.scheduler(), world.scheduler()
    first.submit(world.job("far", a.dependency(2), launcher=launcher), FakeOwner())
    world.sleep(1.0)
    first.kill()
    second.submit(world.job("thief", a.dependency()), FakeOwner())
    world.sleep(1.0)
    owner, third = FakeOwner(), world.scheduler()
    far = third.submit(world.job("far", a.dependency(2), launcher=launcher), owner)
    world.sleep(1.0)
    assert world.held()["a"] == 2
    assert "unit 0 of token a is another job's" in caplog.text
    third.wait(owner, HOUR_S)
    assert far.state is JobState.DONE
    assert world.held()["a"] == 1
    second.kill()
    world.sleep(0.1)


@pytest.mark.parametrize(
    "seed", [*range(5), *(pytest.param(n, marks=pytest.mark.slow) for n in range(5, 25))]
)
def test_a_killed_process_leaks_no_unit_and_no_unit_is_given_out_twice(world: World, seed: int) -> None:
    random = Random(seed)
    world.tokens |= {"c": world.token("c", 3)}
    names = sorted(world.tokens)

    def submit(scheduler: SimulatedScheduler, owner: FakeOwner) -> list[Job]:
        jobs = []
        for n in range(15):
            of = Random(f"{seed} {n}")
            wanted = of.sample(names, of.randint(0, 2))
            needs = [
                world.tokens[name].dependency(of.randint(1, world.tokens[name].count)) for name in wanted
            ]
            world.durations[f"j{n}"] = of.uniform(0.1, 8.0)
            jobs.append(scheduler.submit(world.job(f"j{n}", *needs, lost_retries=50), owner))
        return jobs

    for _ in range(6):
        schedulers = [world.scheduler() for _ in range(random.randint(1, 3))]
        for scheduler in schedulers:
            submit(scheduler, FakeOwner())
        world.sleep(random.uniform(0.0, 6.0))
        for runner in list(world.launcher.runners.values()):
            if random.random() < 0.3:
                runner.kill()
        world.sleep(random.uniform(0.0, 1.0))
        for scheduler in schedulers:
            scheduler.kill()
    owner, last = FakeOwner(), world.scheduler()
    jobs = submit(last, owner)
    last.wait(owner, 10 * HOUR_S)
    assert states(jobs) == {JobState.DONE}
    world.sleep(60.0)
    assert world.held() == {"a": 0, "b": 0, "c": 0}
    living = world.files.living()
    assert [ticket for ticket in world.files.queue().tickets if ticket.scheduler in living] == []


def test_a_scheduler_that_asks_for_tokens_of_a_job_that_another_runs_watches_it_at_once(world: World) -> None:
    """It was seen only at the next poll, two seconds later."""
    owners, schedulers = (FakeOwner("first"), FakeOwner("second")), (world.scheduler(), world.scheduler())
    b = world.tokens["b"]
    world.durations = {"before": 1.0, "shared": 10.0}
    before = schedulers[0].submit(world.job("before"), owners[0])
    watched = world.job("shared", b.dependency())
    watched.dependencies = (JobDependency(before),)
    watched = schedulers[0].submit(watched, owners[0])
    runs = schedulers[1].submit(world.job("shared", b.dependency()), owners[1])
    world.sleep(1.5)
    assert (runs.state, before.state, watched.state) == (JobState.RUNNING, JobState.DONE, JobState.RUNNING)
    schedulers[0].wait(owners[0], HOUR_S)
    assert watched.state is JobState.DONE
    assert world.begun == ["before", "shared"]


@pytest.mark.parametrize("units", [1, 2])
def test_a_job_cancelled_and_submitted_again_while_starts_were_paused_is_started_once(
    world: World, units: int
) -> None:
    """It was in the queue of ready jobs twice, got its tokens twice, and waited for itself for ever."""
    owner, scheduler = FakeOwner(), world.scheduler()
    a = world.tokens["a"]
    world.launcher.errors.append(OSError(errno.EAGAIN, "no process left"))
    scheduler.submit(world.job("refused"), owner)
    world.sleep(0.1)
    job = scheduler.submit(world.job("twice", a.dependency(units)), owner)
    world.sleep(0.1)
    scheduler.cancel(job)
    scheduler.submit(world.job("twice", a.dependency(units)), owner)
    world.sleep(0.1)
    assert job.state is JobState.READY
    scheduler.wait(owner, HOUR_S)
    assert (job.state, sorted(world.begun)) == (JobState.DONE, ["refused", "twice"])
    assert world.held() == {"a": 0, "b": 0}
