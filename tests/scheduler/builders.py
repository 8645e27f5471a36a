"""What the scheduler's tests build: jobs from tasks, in a workspace, with the real launcher."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tenuto.launchers.spawn import SpawnLauncher
from tenuto.lifecycle.states import TransientMode
from tenuto.scheduler.decisions import RetryLimits
from tenuto.scheduler.entries import JobDependency
from tenuto.scheduler.jobs import Job, TaskWork
from tenuto.scheduler.scheduler import Scheduler
from tenuto.tasks.identity import identity
from tenuto.tasks.live import seal
from tenuto.tasks.schema import schema_of
from tenuto.testing.jobs import FakeOwner
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine

WAIT_S = 60.0


class Bench:
    """A workspace, a scheduler and an owner, closed after the test."""

    def __init__(self, root: Path, slots: int = 2) -> None:
        self.layout = Layout(str(root))
        self.machine = this_machine()
        self.scheduler = Scheduler(self.machine)
        self.launcher = SpawnLauncher(slots=slots)
        self.owner = FakeOwner()

    def job(
        self,
        task: Any,
        *needs: Job,
        transient: TransientMode = TransientMode.NONE,
        retry: RetryLimits | None = None,
        **options: Any,
    ) -> Job:
        seal(task)
        job = Job(
            schema_of(type(task)).id,
            identity(task),
            layout=self.layout,
            launcher=self.launcher,
            work=TaskWork(task),
            clock=self.machine.clock,
            dependencies=[JobDependency(needed) for needed in needs],
            transient=transient,
            retry=retry,
            **options,
        )
        task._state.job = job
        return job

    def submit(self, task: Any, *needs: Job, **options: Any) -> Job:
        job = self.scheduler.submit(self.job(task, *needs, **options), self.owner)
        task._state.job = job
        return job

    def wait(self) -> None:
        self.scheduler.wait(self.owner, WAIT_S)

    def close(self) -> None:
        self.scheduler.close()
        self.launcher.close()


def eventually(condition: Callable[[], Any], what: str = "") -> Any:
    """Returns what the condition gives, once that is true; fails after a minute."""
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited too long for {what or condition}"
        time.sleep(0.005)
    return found


def lines(ledger: Path) -> list[str]:
    return ledger.read_text().splitlines() if ledger.exists() else []
