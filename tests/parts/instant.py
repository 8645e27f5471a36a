"""A launcher without processes: each job ends in the moment it starts, with its records on the real disk.
For tests and proofs of the scheduler itself, which then costs what there is to measure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from tenuto.launchers.instructions import Command, Limits
from tenuto.launchers.protocols import EndedProcess, StartOrder
from tenuto.lifecycle.states import JobFailureStatus, JobState, StateRecord
from tenuto.workspace import job_directory
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.markers import Durability, Marker
from tenuto.workspace.ports import Machine
from tenuto.workspace.records import LaunchRecord, PidRecord, StatusRecord

if TYPE_CHECKING:
    from tenuto.launchers.requirements import Alternative


class NoWork:
    """Work that needs no task: what runs is up to the launcher."""

    environment: Mapping[str, str] = {}

    def params(self, layout: Layout, paths: JobPaths) -> bytes:
        return b"{}"

    def command(self) -> Command | None:
        return None

    def output(self, output: Any, method: Any) -> Any:
        return None


class InstantLauncher:
    """A `Launcher` that writes the marker itself, in the scheduler's loop."""

    name = "instant"
    external = False
    lock_path: str | None = None
    limits: Limits | None = None

    def __init__(
        self,
        machine: Machine,
        slots: int = 4,
        fails: Callable[[StartOrder], bool] = lambda order: False,
        *,
        remembers: bool = True,
    ) -> None:
        """`fails`: whether an attempt ends as FAILED. `remembers`: whether `started` is kept."""
        self.slots = slots
        self.started: list[str] = []
        """The ids of the jobs that were started, in order."""
        self._machine = machine
        self._fails = fails
        self._remembers = remembers

    @property
    def pool(self) -> object:
        return self

    def adapted(self, alternative: Alternative) -> Self:
        """This launcher: the limits of a job on this machine go with the job."""
        return self

    async def start(self, order: StartOrder) -> EndedProcess:
        launch, now = order.launch, self._machine.clock.now()
        if self._remembers:
            self.started.append(launch.job_name)
        reason = JobFailureStatus.FAILED if self._fails(order) else None
        marker = Marker(
            attempt=launch.attempt,
            nonce=launch.nonce,
            reason=reason,
            message=reason and "as it was told to",
            starttime=now,
            endtime=now,
        )
        state = JobState.DONE if reason is None else JobState.ERROR
        state_record = StateRecord(state=state, reason=reason, starttime=now, endtime=now)
        status = StatusRecord(launch.job_name, order.paths.directory, state_record, launch.attempt)
        job_directory.finish(self._machine.files, order.paths, marker, status, Durability.NONE, launch)
        return EndedProcess(self.name)

    def find(self, paths: JobPaths, launch: LaunchRecord, pid: PidRecord | None) -> None:
        return None

    async def sweep(self, paths: JobPaths, launch: LaunchRecord | None) -> tuple[int, ...]:
        return ()

    def close(self) -> None:
        """Nothing is kept."""
