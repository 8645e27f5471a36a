"""The launchers of this machine keep the contract of launchers."""

from __future__ import annotations

import pytest

from tenuto.testing.contracts.launchers import LocalLauncherContract


@pytest.mark.parametrize("launcher", ["direct", "spawn", "warm"], indirect=True)
class TestLocalLaunchers(LocalLauncherContract):
    pass
