"""The fake launcher keeps the contract too, in virtual time, and can be killed at any step."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tenuto.launchers.instructions import Instructions
from tenuto.launchers.protocols import Launcher, StartOrder
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.testing.cluster import FakeCluster, FakeClusterLauncher
from tenuto.testing.cluster_job import Fate
from tenuto.testing.contracts.launchers import (
    ENDLESS,
    FAILS_WITH_3,
    PROGRAMS,
    STUBBORN,
    SUCCEEDS,
    ExternalLauncherContract,
    LocalLauncherContract,
    finished,
    locked,
    started,
)
from tenuto.testing.host import FakeHost
from tenuto.testing.jobs import JobBench
from tenuto.testing.launcher import FakeLauncher, FakePayload, Step
from tenuto.workspace.derive import Action
from tenuto.workspace.ports import Machine
from tests.parts.simulation import NothingLeftToHappen, run_virtually

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def pretend(order: StartOrder) -> FakePayload:
    """The four programs of the contract."""
    command = Instructions.of(order.launch).command
    assert command is not None
    assert command.arguments in PROGRAMS

    def make_file(machine: Machine, order: StartOrder) -> None:
        machine.files.write(f"{order.paths.directory}/stubborn", b"")

    return {
        SUCCEEDS: FakePayload(),
        FAILS_WITH_3: FakePayload(exit_code=3),
        ENDLESS: FakePayload(duration_s=1e6),
        STUBBORN: FakePayload(duration_s=1e6, stops_after_s=None, on_start=make_file),
    }[command.arguments]


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


@pytest.fixture
def bench(host: FakeHost) -> JobBench:
    return JobBench("/workspace", host.machine())


@pytest.fixture
def launcher(host: FakeHost) -> FakeLauncher:
    return FakeLauncher(host, pretend)


@pytest.fixture
def run(host: FakeHost) -> Run:
    return lambda coroutine: run_virtually(host.clock, coroutine)


class TestFakeLauncher(LocalLauncherContract):
    pass


@pytest.mark.parametrize("fate", [Fate.ORDINARY, Fate.LATE, Fate.TWICE])
class TestFakeCluster(ExternalLauncherContract):
    @pytest.fixture
    def bench(self, host: FakeHost) -> JobBench:
        return JobBench("/workspace", host.machine(), launcher="cluster", external=True)

    @pytest.fixture
    def launcher(self, host: FakeHost, fate: Fate) -> FakeClusterLauncher:
        cluster = FakeCluster(host, fate=lambda order: fate)
        return FakeClusterLauncher(cluster, cluster.seen_by(host.machine()), pretend)


def test_time_is_the_clocks(host: FakeHost, bench: JobBench, run: Run) -> None:
    launcher = FakeLauncher(host, lambda order: FakePayload(duration_s=3600.0, result={"loss": 0.5}))
    job = bench.command("train")
    run(finished(launcher, job))
    assert 3600 < host.clock.monotonic() < 3601
    assert job.marker().result == {"loss": 0.5}


@pytest.mark.parametrize("step", Step)
def test_a_runner_can_be_killed_at_any_step(host: FakeHost, bench: JobBench, run: Run, step: Step) -> None:
    launcher = FakeLauncher(host, pretend, dies_at=lambda order: step if order.launch.attempt == 1 else None)
    job = bench.command(*SUCCEEDS)

    async def scenario() -> None:
        process = await launcher.start(job.order)
        assert await process.confirmed() is (step > Step.SAY_READY)
        job.release()
        await process.wait()
        assert process.exit_code == -9

    run(scenario())
    assert job.has_marker() is (step is Step.EXIT)
    assert not locked(job)
    if step is not Step.EXIT:
        derived = job.derived()
        assert (derived.reason, derived.action) == (JobFailureStatus.LOST, Action.START)
        assert derived.payload_may_have_run is (step > Step.WRITE_PID)
        job.open_attempt()
        run(finished(launcher, job))
        assert job.marker().attempt == 2


def test_what_a_killed_runner_left_is_swept(host: FakeHost, bench: JobBench, run: Run) -> None:
    launcher = FakeLauncher(host, lambda order: FakePayload(duration_s=1e6, leaves_daemon=True))
    job = bench.command("x")

    async def scenario() -> None:
        process = await started(launcher, job)
        await asyncio.sleep(1.0)
        process.kill()
        await process.wait()
        assert job.derived().action is Action.SWEEP
        await launcher.sweep(job.paths, job.launch)
        assert job.derived().action is Action.START

    run(scenario())


def test_a_power_loss_ends_every_runner(
    host: FakeHost, bench: JobBench, launcher: FakeLauncher, run: Run
) -> None:
    job = bench.command(*ENDLESS)

    async def scenario() -> None:
        process = await started(launcher, job)
        waiting = asyncio.ensure_future(process.wait())
        await asyncio.sleep(1.0)
        assert not waiting.done()
        host.processes.reboot()
        launcher.notice()
        await waiting

    run(scenario())


def test_a_full_disk_is_reported_through_the_reserve(host: FakeHost, bench: JobBench, run: Run) -> None:
    job = bench.command(*SUCCEEDS)
    launcher = FakeLauncher(host, pretend, delay=lambda step: 0.0)

    async def scenario() -> None:
        process = await launcher.start(job.order)
        host.disk.capacity = 0
        assert not await process.confirmed()
        await process.wait()

    run(scenario())
    assert (job.marker().message or "").startswith("DISK_FULL: ")


def test_a_start_can_fail(host: FakeHost, bench: JobBench, launcher: FakeLauncher, run: Run) -> None:
    job = bench.command(*SUCCEEDS)
    launcher.errors.append(OSError(errno.EAGAIN, "no process left"))
    with pytest.raises(BlockingIOError):
        run(finished(launcher, job))
    run(finished(launcher, job))
    assert job.marker().reason is None


def test_a_deadlock_is_an_error_and_not_a_hang(run: Run) -> None:
    async def scenario() -> None:
        await asyncio.Event().wait()

    with pytest.raises(NothingLeftToHappen):
        run(scenario())


def test_the_fake_is_a_launcher(launcher: FakeLauncher) -> None:
    as_launcher: Launcher = launcher
    assert as_launcher.slots > 0
