"""Which launcher a setting means.
The only place that knows all of them.
"""

from __future__ import annotations

from collections.abc import Callable

from tenuto.launchers.protocols import Launcher
from tenuto.launchers.spawn import SpawnLauncher
from tenuto.launchers.warm.launcher import WarmLauncher

_LAUNCHERS: dict[str, Callable[[int], Launcher]] = {
    "warm": lambda slots: WarmLauncher(slots=slots),
    "spawn": lambda slots: SpawnLauncher(slots=slots),
}


def choose_launcher(name: str, slots: int) -> Launcher:
    """The launcher of this name, for as many jobs at once."""
    return _LAUNCHERS[name](slots)
