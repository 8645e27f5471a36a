"""The Slurm launcher keeps the contract of launchers, on nodes apart and on this host."""

from __future__ import annotations

import asyncio

import pytest

from tenuto.launchers.slurm.launcher import SlurmLauncher
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.testing.contracts.launchers import ENDLESS, LauncherContract, Run, started, stopped
from tenuto.testing.jobs import JobBench
from tests.conftest import PROFILE


class TestSlurm(LauncherContract):
    """Four tests are other ones for a launcher whose runners another system starts."""

    def test_a_runner_holds_its_tokens_until_it_ends(self) -> None:  # type: ignore[override]
        """Tokens of an external job stay with its scheduler."""

    def test_a_killed_runner_leaves_no_marker_and_no_lock(  # type: ignore[override]
        self, launcher: SlurmLauncher, bench: JobBench, run: Run
    ) -> None:
        job = bench.command(*ENDLESS)

        async def scenario() -> None:
            process = await started(launcher, job)
            process.kill()
            await process.wait()

        run(scenario())
        assert not job.has_marker()
        report = launcher.cluster.report(job.paths, job.launch)
        assert report.reason in (JobFailureStatus.LOST, JobFailureStatus.CANCELLED)

    def test_only_the_living_runner_of_the_attempt_is_found(  # type: ignore[override]
        self, launcher: SlurmLauncher, bench: JobBench, run: Run
    ) -> None:
        job = bench.command(*ENDLESS)

        async def scenario() -> None:
            process = await started(launcher, job)
            found = launcher.find(job.paths, job.launch, None)
            assert found is not None, "no pid is needed to find it"
            await stopped(job, process)
            async with asyncio.timeout(5):
                await found.wait()
            found.close()

        run(scenario())

    @pytest.mark.skipif(PROFILE != "prove", reason="its runner waits a minute for a disk that may be late")
    def test_a_runner_of_a_stale_attempt_touches_nothing(  # type: ignore[override]
        self, launcher: SlurmLauncher, bench: JobBench, run: Run
    ) -> None:
        super().test_a_runner_of_a_stale_attempt_touches_nothing(launcher, bench, run)
