"""The duties of every `Launcher`, and of each kind of launcher.

Subclass the suite of its kind, and give the fixtures `launcher`, `bench` (a `JobBench` on the launcher's
machine) and `run` (runs a coroutine, with a deadline). The launcher must be able to run the four programs
below, or pretend to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tenuto.launchers.instructions import Limits
from tenuto.launchers.protocols import Launcher, Process
from tenuto.launchers.requirements import Alternative
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.testing.jobs import JobBench, ReadyJob
from tenuto.workspace.claims import Claimer, claim, is_claimed
from tenuto.workspace.job_directory import read_pid, read_status, request_stop
from tenuto.workspace.ports import DESCENDANTS_BYTE, RUNNER_BYTE
from tenuto.workspace.records import StopRecord
from tenuto.workspace.token_files import TokenPlace

SUCCEEDS = ("true",)
FAILS_WITH_3 = ("sh", "-c", "exit 3")
ENDLESS = ("sleep", "1000000")
STUBBORN = ("sh", "-c", "trap '' TERM; : > stubborn; while :; do sleep 1; done")
"""Makes the file `stubborn` in its directory once it ignores TERM."""
PROGRAMS = (SUCCEEDS, FAILS_WITH_3, ENDLESS, STUBBORN)

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def played(test: Callable[[Any, Launcher, JobBench], Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine, which the fixture `run` runs."""

    def play(self: Any, launcher: Launcher, bench: JobBench, run: Run) -> None:
        run(test(self, launcher, bench))

    play.__name__, play.__doc__ = test.__name__, test.__doc__
    return play


class LauncherContract:
    """What holds for every launcher."""

    # Ending by itself.

    @played
    async def test_a_job_runs_and_leaves_its_marker(self, launcher: Launcher, bench: JobBench) -> None:
        job = bench.command(*SUCCEEDS)
        await finished(launcher, job)
        marker = job.marker()
        assert (marker.reason, marker.exit_code, marker.signal) == (None, 0, None)
        assert marker.starttime is not None
        assert marker.endtime is not None
        assert marker.starttime <= marker.endtime
        assert job.derived().state is JobState.DONE

    @played
    async def test_the_exit_code_of_a_failure_is_recorded(self, launcher: Launcher, bench: JobBench) -> None:
        job = bench.command(*FAILS_WITH_3)
        await finished(launcher, job)
        assert job.marker().reason is JobFailureStatus.FAILED
        assert job.marker().exit_code == 3

    @played
    async def test_the_status_follows_the_marker(self, launcher: Launcher, bench: JobBench) -> None:
        job = bench.command(*FAILS_WITH_3)
        await finished(launcher, job)
        status = read_status(bench.machine.files, job.paths)
        assert status is not None
        assert (status.state_record.state, status.attempt, status.exit_code) == (JobState.ERROR, 1, 3)

    @played
    async def test_no_lock_is_left_behind(self, launcher: Launcher, bench: JobBench) -> None:
        job = bench.command(*SUCCEEDS)
        await finished(launcher, job)
        assert not locked(job)

    @played
    async def test_a_second_attempt_takes_over_the_directory(
        self, launcher: Launcher, bench: JobBench
    ) -> None:
        job = bench.command(*FAILS_WITH_3)
        await finished(launcher, job)
        job.open_attempt()
        await finished(launcher, job)
        assert job.marker().attempt == 2

    # While it runs.

    @played
    async def test_the_end_is_told_to_all_waiting_callers_and_to_a_late_one(
        self, launcher: Launcher, bench: JobBench
    ) -> None:
        job = bench.command(*ENDLESS)
        process = await started(launcher, job)
        given_up = asyncio.ensure_future(process.wait())
        waiting = [asyncio.ensure_future(process.wait()) for _ in range(3)]
        await asyncio.sleep(0)
        given_up.cancel()
        await stopped(job, process)
        await asyncio.gather(*waiting)
        await process.wait()
        assert await process.confirmed()

    # Being stopped.

    @played
    async def test_a_job_is_stopped_for_the_reason_given(self, launcher: Launcher, bench: JobBench) -> None:
        job = bench.command(*ENDLESS)
        await stopped(job, await started(launcher, job), message="no longer wanted")
        assert job.marker().reason is JobFailureStatus.CANCELLED
        assert job.marker().message == "no longer wanted"

    @played
    async def test_a_job_that_does_not_stop_is_killed_after_its_grace(
        self, launcher: Launcher, bench: JobBench
    ) -> None:
        job = bench.command(*STUBBORN, limits=Limits(grace_s=0.3))
        process = await started(launcher, job)
        while bench.machine.files.stat(f"{job.paths.directory}/stubborn") is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await stopped(job, process)
        assert job.marker().reason is JobFailureStatus.CANCELLED
        assert "killed" in (job.marker().message or "")
        assert not locked(job)

    @played
    async def test_a_job_that_exceeds_its_walltime_is_stopped(
        self, launcher: Launcher, bench: JobBench
    ) -> None:
        job = bench.command(*ENDLESS, limits=Limits(walltime_s=0.2, grace_s=5.0))
        await finished(launcher, job)
        assert job.marker().reason is JobFailureStatus.TIMEOUT

    @played
    async def test_signals_after_the_end_are_harmless(self, launcher: Launcher, bench: JobBench) -> None:
        job = bench.command(*SUCCEEDS)
        process = await started(launcher, job)
        await process.wait()
        process.signal_stop()
        process.kill()
        await process.wait()
        process.close()
        process.close()
        assert job.marker().reason is None

    # Being found by another scheduler.

    @played
    async def test_another_scheduler_can_wait_for_a_job_and_stop_it(
        self, launcher: Launcher, bench: JobBench
    ) -> None:
        job = bench.command(*ENDLESS)
        first = await started(launcher, job)
        pid = read_pid(bench.machine.files, job.paths, job.launch.attempt)
        adopted = launcher.find(job.paths, job.launch, pid)
        assert adopted is not None
        assert await adopted.confirmed()
        assert adopted.describe() == first.describe()
        await stopped(job, adopted)
        adopted.close()
        await first.wait()
        assert job.marker().reason is JobFailureStatus.CANCELLED

    @played
    async def test_letting_go_of_a_process_does_not_harm_it(
        self, launcher: Launcher, bench: JobBench
    ) -> None:
        job = bench.command(*ENDLESS)
        process = await started(launcher, job)
        process.close()
        pid = read_pid(bench.machine.files, job.paths, job.launch.attempt)
        adopted = launcher.find(job.paths, job.launch, pid)
        assert adopted is not None
        await stopped(job, adopted)

    @played
    async def test_a_launcher_that_is_closed_harms_no_job_and_can_be_used_again(
        self, launcher: Launcher, bench: JobBench
    ) -> None:
        job = bench.command(*ENDLESS)
        process = await started(launcher, job)
        launcher.close()
        launcher.close()
        await finished(launcher, bench.command(*SUCCEEDS))
        assert job.derived().state is JobState.RUNNING
        await stopped(job, process)
        assert job.marker().reason is JobFailureStatus.CANCELLED

    # What a job needs.

    @played
    async def test_a_launcher_that_is_adapted_runs_jobs_in_the_same_slots(
        self, launcher: Launcher, bench: JobBench
    ) -> None:
        adapted = launcher.adapted(Alternative(duration_s=600.0))
        assert (adapted.name, adapted.external, adapted.pool) == (
            launcher.name,
            launcher.external,
            launcher.pool,
        )
        job = bench.command(*SUCCEEDS)
        await finished(adapted, job)
        assert job.marker().reason is None

    # Being late.

    @played
    async def test_a_runner_of_a_stale_attempt_touches_nothing(
        self, launcher: Launcher, bench: JobBench
    ) -> None:
        job = bench.command(*SUCCEEDS)
        stale = job.order._replace(launch=job.launch._replace(nonce="f" * 32))
        process = await launcher.start(stale)
        assert not await process.confirmed()
        await process.wait()
        process.close()
        job.release()
        assert not job.has_marker()
        assert read_pid(bench.machine.files, job.paths, 1) is None


class LocalLauncherContract(LauncherContract):
    """What a launcher of this machine must do besides: its runners inherit the locks."""

    @played
    async def test_a_confirmed_runner_has_its_pid_record_and_holds_the_lock_alone(
        self, launcher: Launcher, bench: JobBench
    ) -> None:
        job = bench.command(*ENDLESS)
        process = await started(launcher, job)
        pid = read_pid(bench.machine.files, job.paths, job.launch.attempt)
        assert pid is not None
        assert bench.machine.locks.is_locked(job.paths.lock, RUNNER_BYTE)
        assert job.derived().state is JobState.RUNNING
        described = process.describe()
        assert described["pid"] == pid.identity.pid
        assert described["attempt"] == 1
        assert described["launcher"] == launcher.name
        assert described["host"] == pid.identity.host
        await stopped(job, process)

    @played
    async def test_a_runner_holds_its_tokens_until_it_ends(self, launcher: Launcher, bench: JobBench) -> None:
        place = TokenPlace(f"{bench.layout.root}/tokens")
        bench.machine.files.make_directory(place.directory)
        token = place.units("gpu")
        units = bench.machine.locks.try_lock_all(token, range(2))
        assert units is not None
        job = bench.command(*ENDLESS, tokens=units)
        process = await started(launcher, job)
        assert [bench.machine.locks.is_locked(token, unit) for unit in range(3)] == [True, True, False]
        await stopped(job, process)
        assert not any(bench.machine.locks.is_locked(token, unit) for unit in range(2))

    @played
    async def test_a_killed_runner_leaves_no_marker_and_no_lock(
        self, launcher: Launcher, bench: JobBench
    ) -> None:
        job = bench.command(*ENDLESS)
        process = await started(launcher, job)
        process.kill()
        await process.wait()
        # A payload forked a moment ago may have the lock still; it dies with its runner.
        while bench.machine.locks.is_locked(job.paths.lock, RUNNER_BYTE):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert await launcher.sweep(job.paths, job.launch) == ()
        assert not job.has_marker()
        assert not locked(job)
        assert job.derived().reason is JobFailureStatus.LOST

    @played
    async def test_only_the_living_runner_of_the_attempt_is_found(
        self, launcher: Launcher, bench: JobBench
    ) -> None:
        job = bench.command(*ENDLESS)
        process = await started(launcher, job)
        pid = read_pid(bench.machine.files, job.paths, job.launch.attempt)
        assert pid is not None
        assert launcher.find(job.paths, job.launch, None) is None
        assert launcher.find(job.paths, job.launch._replace(attempt=2), pid) is None
        reused = pid._replace(identity=pid.identity._replace(start_time=pid.identity.start_time + 1))
        assert launcher.find(job.paths, job.launch, reused) is None
        rebooted = pid._replace(identity=pid.identity._replace(boot_id="another"))
        assert launcher.find(job.paths, job.launch, rebooted) is None
        await stopped(job, process)
        assert launcher.find(job.paths, job.launch, pid) is None


class ExternalLauncherContract(LauncherContract):
    """What a launcher must do besides whose runners another system starts.

    `bench` makes external jobs with the name of the launcher.
    """

    @played
    async def test_a_confirmed_runner_has_made_its_claim_and_written_its_pid_record(
        self, launcher: Launcher, bench: JobBench
    ) -> None:
        job = bench.command(*ENDLESS)
        process = await started(launcher, job)
        assert is_claimed(bench.machine, job.paths, job.launch.nonce)
        assert read_pid(bench.machine.files, job.paths, job.launch.attempt) is not None
        assert process.describe().items() >= {"attempt": 1, "launcher": launcher.name}.items()
        await stopped(job, process)
        assert job.marker().reason is JobFailureStatus.CANCELLED

    @played
    async def test_an_attempt_is_found_without_a_pid_record(
        self, launcher: Launcher, bench: JobBench
    ) -> None:
        job = bench.command(*SUCCEEDS)
        await launcher.start(job.order)
        found = launcher.find(job.paths, job.launch, None)
        assert found is not None
        await found.wait()
        assert await found.confirmed()
        found.close()
        assert job.marker().reason is None

    @played
    async def test_tokens_stay_with_the_scheduler(self, launcher: Launcher, bench: JobBench) -> None:
        place = TokenPlace(f"{bench.layout.root}/tokens")
        bench.machine.files.make_directory(place.directory)
        token = place.units("gpu")
        units = bench.machine.locks.try_lock_all(token, range(2))
        assert units is not None
        job = bench.command(*ENDLESS, tokens=units)
        assert job.order.tokens == ()
        process = await started(launcher, job)
        assert all(bench.machine.locks.is_locked(token, unit) for unit in range(2))
        for unit in units:
            unit.close()
        # A program that the launcher starts at this moment has them until it is executed.
        while any(bench.machine.locks.is_locked(token, unit) for unit in range(2)):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert job.derived().state in (JobState.SCHEDULED, JobState.RUNNING)
        await stopped(job, process)

    @played
    async def test_an_order_may_be_started_twice(self, launcher: Launcher, bench: JobBench) -> None:
        job = bench.command(*SUCCEEDS)
        for process in [await launcher.start(job.order), await launcher.start(job.order)]:
            await process.wait()
        assert job.marker().reason is None

    @played
    async def test_a_revoked_attempt_never_begins(self, launcher: Launcher, bench: JobBench) -> None:
        job = bench.command(*SUCCEEDS)
        assert claim(bench.machine, job.paths, job.launch.nonce, Claimer.SCHEDULER)
        process = await launcher.start(job.order)
        assert not await process.confirmed()
        await process.wait()
        assert not job.has_marker()
        assert read_pid(bench.machine.files, job.paths, 1) is None

    @played
    async def test_a_killed_runner_leaves_no_marker(self, launcher: Launcher, bench: JobBench) -> None:
        job = bench.command(*ENDLESS)
        process = await started(launcher, job)
        process.kill()
        await process.wait()
        assert not job.has_marker()


# What a scheduler does.


async def started(launcher: Launcher, job: ReadyJob) -> Process:
    """Start a job and, once its runner is up, let go of its locks."""
    process = await launcher.start(job.order)
    assert await process.confirmed(), f"the runner of {job.paths.directory} ended before it began"
    job.release()
    return process


async def finished(launcher: Launcher, job: ReadyJob) -> Process:
    """Run a job to its end."""
    process = await started(launcher, job)
    await process.wait()
    process.close()
    return process


async def stopped(job: ReadyJob, process: Process, *, message: str = "enough") -> None:
    """Stop a job and wait for its end."""
    stop = StopRecord(job.launch.attempt, JobFailureStatus.CANCELLED, job.machine.clock.now(), message)
    request_stop(job.machine.files, job.paths, stop)
    process.signal_stop()
    process.signal_stop()
    await process.wait()


def locked(job: ReadyJob) -> bool:
    locks = job.machine.locks
    return locks.is_locked(job.paths.lock, RUNNER_BYTE) or locks.is_locked(job.paths.lock, DESCENDANTS_BYTE)
