"""Every dialect that is real here keeps the contract of external launchers."""

from __future__ import annotations

import pytest

from tenuto.testing.contracts.launchers import ExternalLauncherContract

ALIKE = pytest.mark.prove("one dialect is enough for each change; a sample runs over all")


@pytest.mark.parametrize(
    "site", ["sge", *(pytest.param(name, marks=ALIKE) for name in ("generic", "ssh", "pbs"))], indirect=True
)
class TestCluster(ExternalLauncherContract):
    """Over Grid Engine, words of the settings alone, hosts by ssh, and the commands of PBS."""
