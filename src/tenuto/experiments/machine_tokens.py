"""The tokens that an experiment declares: resources of this machine, shared by all that name them.
Takes no unit: the scheduler does, for a job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from tenuto.experiments.run_mode import RunMode
from tenuto.launchers.devices import visible_devices
from tenuto.scheduler.tokens import CounterToken, GpuToken, declare
from tenuto.settings import Settings
from tenuto.workspace.layout import directory_name
from tenuto.workspace.ports import Machine

T = TypeVar("T", bound=CounterToken)


class MachineTokens:
    """Makes tokens; their files are written only where jobs are run."""

    def __init__(self, machine: Machine, settings: Settings, mode: RunMode) -> None:
        self._machine = machine
        self._path = settings.tokens_path
        self._mode = mode

    def counter(self, name: str, count: int) -> CounterToken:
        """A token of `count` units."""
        return self._declared(CounterToken(name, count, self._directory))

    def gpus(self, devices: Mapping[int, str] | None = None) -> GpuToken:
        """A token with a unit for each GPU, by default for each GPU that this process sees."""
        return self._declared(GpuToken(visible_devices() if devices is None else devices, self._directory))

    @property
    def _directory(self) -> str:
        return f"{self._path}/{directory_name(self._machine.processes.own().host)}"

    def _declared(self, token: T) -> T:
        if self._mode is RunMode.NORMAL:
            declare(self._machine, token)
        return token
