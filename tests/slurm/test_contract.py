"""The Slurm launcher keeps the contract of external launchers, on nodes apart and on this host."""

from __future__ import annotations

import pytest

from tenuto.launchers.protocols import Launcher
from tenuto.testing.contracts.launchers import ExternalLauncherContract, Run
from tenuto.testing.jobs import JobBench


class TestSlurm(ExternalLauncherContract):
    @pytest.mark.prove("its runner waits a minute for a disk that may be late")
    def test_a_runner_of_a_stale_attempt_touches_nothing(
        self, launcher: Launcher, bench: JobBench, run: Run
    ) -> None:
        super().test_a_runner_of_a_stale_attempt_touches_nothing(launcher, bench, run)
