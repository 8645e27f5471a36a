"""The plain launcher: the task of each job has a fresh interpreter of the environment to itself.
Slower than a warm one, and right for everything.
"""

from __future__ import annotations

from tenuto.launchers.forking_launcher import ForkingLauncher


class SpawnLauncher(ForkingLauncher):
    """Forks each runner from a parent with nothing of the user's loaded; its payload begins afresh."""

    name = "spawn"
