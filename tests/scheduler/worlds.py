"""A pretended machine for the scheduler's tests: real schedulers in virtual time, killed at will."""

from __future__ import annotations

from typing import Any

from tenuto.launchers.instructions import Command
from tenuto.launchers.protocols import StartOrder
from tenuto.lifecycle.states import JobFailureStatus, TransientMode
from tenuto.scheduler.decisions import RetryLimits
from tenuto.scheduler.entries import JobDependency
from tenuto.scheduler.jobs import Job
from tenuto.testing.host import FakeHost
from tenuto.testing.jobs import FakeOwner
from tenuto.testing.launcher import FakeLauncher, FakePayload, Step
from tenuto.workspace.attempt_files import request_stop
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.ports import Machine
from tenuto.workspace.records import StopRecord
from tests.parts.simulation import SimulatedScheduler, VirtualLoop

HOUR_S = 3600.0


class NoWork:
    """Work that needs no task: what runs is up to the fake launcher."""

    environment: dict[str, str] = {}

    def params(self, layout: Layout, paths: JobPaths) -> bytes:
        return b"{}"

    def command(self) -> Command | None:
        return None

    def output(self, output: Any, method: Any) -> Any:
        return None


class World:
    """A host, its launcher, a ledger of what ran, and any number of schedulers."""

    def __init__(self) -> None:
        self.host = FakeHost(seed=7)
        self.loop = VirtualLoop(self.host.clock)
        self.ledger: list[tuple[str, str]] = []
        self.running: set[str] = set()
        self.dies_at: dict[str, Step] = {}
        self.payload = FakePayload(duration_s=5.0, on_start=self._begins, on_end=self._ends)
        self.retry = RetryLimits(max_lost_retries=1)
        self.launcher = FakeLauncher(
            self.host,
            lambda order: self.payload,
            slots=2,
            dies_at=lambda order: self.dies_at.pop(name_of(order), None),
        )

    def _begins(self, machine: Machine, order: StartOrder) -> None:
        name = name_of(order)
        self.ledger.append(("begin", name))

    def _ends(self, machine: Machine, order: StartOrder) -> None:
        self.ledger.append(("end", name_of(order)))

    def wish_to_stop(self, machine: Machine, name: str, attempt: int = 1) -> None:
        """What `tenuto kill` writes before it sends the signal."""
        stop = StopRecord(attempt, JobFailureStatus.CANCELLED, self.host.clock.now(), "enough")
        request_stop(machine.files, Layout("/ws").job("sim.Task", name), stop)

    def scheduler(self) -> SimulatedScheduler:
        return SimulatedScheduler(self.host, self.loop)

    def job(
        self, name: str, *needs: Job, transient: TransientMode = TransientMode.NONE, **options: Any
    ) -> Job:
        return Job(
            "sim.Task",
            name,
            layout=Layout("/ws"),
            launcher=self.launcher,
            work=NoWork(),
            clock=self.host.clock,
            dependencies=[JobDependency(needed) for needed in needs],
            retry=self.retry,
            transient=transient,
            **options,
        )

    def submit_chain(self, scheduler: SimulatedScheduler, owner: FakeOwner, size: int) -> list[Job]:
        jobs: list[Job] = []
        for number in range(size):
            jobs.append(scheduler.submit(self.job(f"job{number}", *jobs[-1:]), owner))
        return jobs


def name_of(order: StartOrder) -> str:
    return order.paths.directory.rpartition("/")[2]
