"""Every dialect that is real here keeps the contract of external launchers."""

from __future__ import annotations

import pytest

from tenuto.testing.contracts.launchers import ExternalLauncherContract

ALIKE = pytest.mark.prove("one dialect is enough for each change; a sample runs over all")


@pytest.mark.parametrize(
    "site", ["sge", pytest.param("generic", marks=ALIKE), pytest.param("ssh", marks=ALIKE)], indirect=True
)
class TestCluster(ExternalLauncherContract):
    """Over Grid Engine, over words of the settings alone, and over hosts by ssh."""
