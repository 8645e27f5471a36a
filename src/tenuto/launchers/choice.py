"""The launchers that the settings name, each made once, when it is first needed.
The only place that knows all of them; which one a job needs is found in `finding`.
"""

from __future__ import annotations

from tenuto.launchers.protocols import Launcher
from tenuto.launchers.spawn import SpawnLauncher
from tenuto.launchers.warm.launcher import WarmLauncher
from tenuto.settings import Settings

AUTO = "auto"
"""The setting by which each job's requirement decides."""
LOCAL = "warm"
"""The launcher of this machine where the requirement decides."""
_LOCAL = {"warm": WarmLauncher, "spawn": SpawnLauncher}


def choose_launcher(name: str, slots: int) -> Launcher:
    """A launcher of this machine by its name, for as many slots."""
    return _LOCAL[name](slots=slots)


class Launchers:
    """The launchers of one set of settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._made: dict[str, Launcher] = {}

    def named(self, name: str) -> Launcher:
        """The launcher of that name; `auto` is the one for jobs that need nothing in particular."""
        name = LOCAL if name == AUTO else name
        if name not in self._made:
            self._made[name] = choose_launcher(name, self._settings.slots)
        return self._made[name]

    def close(self) -> None:
        """Lets go of what the launchers keep; running jobs go on."""
        for launcher in self._made.values():
            launcher.close()
