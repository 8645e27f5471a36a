"""The Slurm launcher keeps the contract of external launchers: nodes apart, this host, and in a pilot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tenuto.launchers.protocols import Launcher
from tenuto.launchers.slurm.cluster import SlurmCluster
from tenuto.launchers.slurm.launcher import SlurmLauncher
from tenuto.testing.contracts.launchers import ExternalLauncherContract, Run
from tenuto.testing.jobs import JobBench
from tests.parts.slurm import PrivateSlurm
from tests.slurm.conftest import QUICK

PILOTED = replace(QUICK, pilots=1, pilot_cpus=2, pilot_idle_s=2.0)
LATE = pytest.mark.prove("its runner waits a minute for a disk that may be late")
TWICE = pytest.mark.prove("one kind of cluster is enough for each change")


@pytest.mark.parametrize("slurm", ["apart", pytest.param("beside", marks=TWICE)], indirect=True)
class TestSlurm(ExternalLauncherContract):
    @LATE
    def test_a_runner_of_a_stale_attempt_touches_nothing(
        self, launcher: Launcher, bench: JobBench, run: Run
    ) -> None:
        super().test_a_runner_of_a_stale_attempt_touches_nothing(launcher, bench, run)


@pytest.mark.parametrize("slurm", ["beside", pytest.param("apart", marks=TWICE)], indirect=True)
class TestPilot(ExternalLauncherContract):
    @pytest.fixture
    def launcher(self, slurm: PrivateSlurm) -> SlurmLauncher:
        return SlurmLauncher(settings=PILOTED, cluster=SlurmCluster(PILOTED))

    @LATE
    def test_a_runner_of_a_stale_attempt_touches_nothing(
        self, launcher: Launcher, bench: JobBench, run: Run
    ) -> None:
        super().test_a_runner_of_a_stale_attempt_touches_nothing(launcher, bench, run)
