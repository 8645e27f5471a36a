"""The Slurm launcher keeps the contract of external launchers: nodes apart, this host, and in a pilot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tenuto.launchers.cluster.follower import ClusterFollower
from tenuto.launchers.cluster.launcher import SlurmLauncher
from tenuto.launchers.protocols import Launcher
from tenuto.testing.contracts.launchers import ExternalLauncherContract, Run
from tenuto.testing.jobs import JobBench
from tests.parts.slurm import PrivateSlurm
from tests.slurm.conftest import QUICK

PILOTED = replace(QUICK, pilots=1, pilot_cpus=2, pilot_idle_s=2.0)
TWICE = pytest.mark.prove("one kind of cluster is enough for each change")


def left_by_runners(bench: JobBench) -> list[str]:
    """The records and markers that runners have written in the workspace of a test."""
    files = Path(bench.layout.root).glob("jobs/*/*/*")
    return [file.name for file in files if file.suffix in (".pid", ".done", ".failed")]


@pytest.mark.parametrize("slurm", ["apart", pytest.param("beside", marks=TWICE)], indirect=True)
class TestSlurm(ExternalLauncherContract):
    def test_a_runner_of_a_stale_attempt_touches_nothing(
        self, launcher: Launcher, bench: JobBench, run: Run
    ) -> None:
        super().test_a_runner_of_a_stale_attempt_touches_nothing(launcher, bench, run)
        assert left_by_runners(bench) == []


@pytest.mark.parametrize("slurm", ["beside", pytest.param("apart", marks=TWICE)], indirect=True)
class TestPilot(ExternalLauncherContract):
    @pytest.fixture
    def launcher(self, slurm: PrivateSlurm) -> SlurmLauncher:
        return SlurmLauncher(settings=PILOTED, cluster=ClusterFollower(PILOTED))

    def test_a_runner_of_a_stale_attempt_touches_nothing(
        self, launcher: Launcher, bench: JobBench, run: Run
    ) -> None:
        super().test_a_runner_of_a_stale_attempt_touches_nothing(launcher, bench, run)
        assert left_by_runners(bench) == []
