"""Owns that `why` says what a job waits for, also if that is the machine."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tenuto import CommandTask, experiment
from tenuto.experiments.job_past import explain_job
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.key import JobKey
from tenuto.launchers.protocols import StartOrder
from tenuto.launchers.spawn import SpawnLauncher
from tenuto.scheduler.scheduler import Scheduler

from .scripts import eventually


class Unwilling(SpawnLauncher):
    """A launcher for which the machine has no process, for a while."""

    is_short = True

    async def start(self, order: StartOrder) -> Any:
        if self.is_short:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return await super().start(order)


def test_why_says_what_the_machine_is_short_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.scheduler.shell.BACK_OFF_S", 0.05)
    launcher = Unwilling(slots=1)

    def reasons(job: Any) -> str:
        view = WorkspaceView(xp.workspace.layout, Scheduler.instance().machine)
        return " ".join(explain_job(view, JobKey(job.task_id, job.job_id)).because)

    with experiment(tmp_path / "ws", "x", launcher=launcher, register_signals=False) as xp:
        jobs = [CommandTask.C(command=["true"], key=key).submit().job for key in "ab"]
        eventually(lambda: Scheduler.instance().snapshot().paused is not None, "a pause")
        for job in jobs:
            eventually(lambda: os.strerror(errno.EAGAIN) in reasons(job), "the reason")  # noqa: B023  called at once
        launcher.is_short = False
    launcher.close()
    assert {job.state.name for job in xp.jobs} == {"DONE"}
    assert "paused" not in reasons(jobs[1])
