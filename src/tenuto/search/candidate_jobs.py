"""The job of a claimed candidate: its stored parameters, its limits, its launcher, and a GPU if it gets one.
Submits nothing.
"""

from __future__ import annotations

from pathlib import Path

from tenuto.clock import Clock
from tenuto.errors import SearchError
from tenuto.jobs.stored_work import StoredWork
from tenuto.launchers.devices import visible_devices
from tenuto.launchers.instructions import Limits
from tenuto.launchers.selection import AUTO, LOCAL, choose_launcher
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.tokens import GpuToken, TokenDependency, declare
from tenuto.search.rows import Claimed
from tenuto.settings import Settings
from tenuto.workspace.layout import Layout, directory_name
from tenuto.workspace.markers import Durability
from tenuto.workspace.ports import Machine

LEASE_FILE = "search.lease"


class CandidateJobs:
    """Makes the jobs of one agent."""

    def __init__(
        self,
        settings: Settings,
        workspace: Path,
        clock: Clock,
        *,
        slots: int,
        is_leased: bool,
        gpus: GpuToken | None = None,
    ) -> None:
        self._settings = settings
        self._layout = Layout(str(workspace))
        self._clock = clock
        self._lease_path = str(workspace / LEASE_FILE) if is_leased else None
        self._tokens = () if gpus is None else (TokenDependency(gpus, 1),)
        self._launcher = choose_launcher(LOCAL if settings.launcher == AUTO else settings.launcher, slots)

    def make(self, row: Claimed, *, once: bool) -> Job:
        """The job of a row; `once`: whatever attempt its directory shows is its answer."""
        return Job(
            row.task_id,
            row.job_id,
            layout=self._layout,
            launcher=self._launcher,
            work=StoredWork(row.params.encode("ascii")),
            clock=self._clock,
            tokens=self._tokens,
            limits=self._limits(row),
            durability=Durability(self._settings.durability),
            once=once,
            priority=row.priority,
        )

    def _limits(self, row: Claimed) -> Limits:
        settings = self._settings
        walltime_s = row.definition.get("walltime_s")
        limits = Limits(
            settings.walltime_s if walltime_s is None else walltime_s,
            settings.memory_bytes,
            settings.log_bytes,
            settings.grace_s,
        )
        if self._lease_path is not None:
            limits = limits._replace(lease_path=self._lease_path, lease_s=settings.search.lease_s)
        return limits

    def close(self) -> None:
        self._launcher.close()


def gpus_of(settings: Settings, machine: Machine) -> GpuToken:
    """The GPUs that this process may use, shared with everything else on the machine that asks for them.

    Raises `SearchError` if none is visible.
    """
    devices = visible_devices()
    if not devices:
        raise SearchError("--gpus: no GPU is visible here; see nvidia-smi, and CUDA_VISIBLE_DEVICES")
    host = machine.processes.own().host
    token = GpuToken(devices, f"{settings.tokens_path}/{directory_name(host)}")
    declare(machine, token)
    return token
