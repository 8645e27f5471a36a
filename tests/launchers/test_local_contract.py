"""The launchers of this machine keep the contract of launchers."""

from __future__ import annotations

from tenuto.testing.contracts.launchers import LauncherContract


class TestLocalLaunchers(LauncherContract):
    pass
