"""The launchers that the settings name, each made once, when it is first needed.
The only place that knows all of them; which one a job needs is found in `finder`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenuto.launchers.plugins import load_plugin
from tenuto.launchers.protocols import Launcher
from tenuto.launchers.spawn import SpawnLauncher
from tenuto.launchers.warm.launcher import WarmLauncher
from tenuto.light import late
from tenuto.settings import Settings

if TYPE_CHECKING:
    from tenuto.launchers.slurm import launcher as slurm
else:
    slurm = late("tenuto.launchers.slurm.launcher")

AUTO = "auto"
"""The setting by which each job's requirement decides."""
LOCAL = "warm"
"""The launcher of this machine where the requirement decides."""
SLURM = "slurm"
_LOCAL = {"warm": WarmLauncher, "spawn": SpawnLauncher}

# Most programs never meet a cluster.


def choose_launcher(name: str, slots: int, *, shares_slots: bool = False) -> Launcher:
    """A launcher of this machine by its name, for as many slots.

    `shares_slots`: they are those of a workspace, and count for all processes that use it on this machine.
    """
    return _LOCAL[name](slots=slots, shares_slots=shares_slots)


def check_launcher(name: str) -> None:
    """Refuses a name that no launcher has."""
    if name not in (*_LOCAL, AUTO, SLURM):
        load_plugin(name)


class Launchers:
    """The launchers of one set of settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._made: dict[str, Launcher] = {}

    def named(self, name: str) -> Launcher:
        """The launcher of that name; `auto` is the one for jobs that need nothing in particular."""
        name = LOCAL if name == AUTO else name
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def close(self) -> None:
        """Lets go of what the launchers keep; running jobs go on."""
        for launcher in self._made.values():
            launcher.close()

    def _make(self, name: str) -> Launcher:
        if name in _LOCAL:
            return choose_launcher(name, self._settings.slots, shares_slots=True)
        if name != SLURM:
            plugin: Launcher = load_plugin(name)(self._settings)
            return plugin
        return slurm.SlurmLauncher(settings=self._settings.slurm, grace_s=self._settings.grace_s)
