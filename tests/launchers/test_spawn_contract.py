"""The spawn launcher keeps the contract of launchers."""

from __future__ import annotations

from tenuto.testing.contracts.launchers import LauncherContract


class TestSpawnLauncher(LauncherContract):
    pass
