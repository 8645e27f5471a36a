"""Workspaces written file by file, as experiments would write them."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

from tenuto.experiments.run_record import RunState, RunStatus, write_run_status
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.key import JobKey
from tenuto.jobs.view import JobsView
from tenuto.launchers.instructions import Instructions
from tenuto.lifecycle.states import JobFailureStatus, TransientMode
from tenuto.workspace import job_directory
from tenuto.workspace.jobslist import JobLine, JobLinks, JobsList
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine
from tenuto.workspace.markers import Marker, write_marker

MACHINE = this_machine()
NOW = MACHINE.clock.now()
RUN = "20260101_120000"


class Builder:
    """Writes a workspace as experiments would, file by file."""

    def __init__(self, root: Path) -> None:
        self.layout = Layout(str(root))
        self.view = WorkspaceView(self.layout, MACHINE)
        self.jobs = JobsView(self.layout, MACHINE)
        """What a door sees that has no experiments."""
        MACHINE.files.make_directory(self.layout.jobs)
        MACHINE.files.make_directory(self.layout.experiments)

    def run(
        self,
        *lines: JobLine,
        run_id: str = RUN,
        state: RunState = RunState.DONE,
        experiment: str = "sweep",
        pid: int | None = None,
        started: datetime = NOW,
    ) -> None:
        paths = self.layout.run(experiment, run_id)
        MACHINE.files.make_directory(paths.jobs)
        listed = JobsList(MACHINE.files, paths)
        for line in lines:
            listed.append(line)
            JobLinks(MACHINE.files, paths).add(line.task_id, line.job_id)
        listed.close()
        own = MACHINE.processes.own()
        status = RunStatus(experiment, run_id, state, started, own.host, own.pid if pid is None else pid)
        write_run_status(MACHINE.files, paths, status)

    def job(
        self,
        job_id: str,
        task_id: str = "my.Train",
        *,
        ended: datetime | None = NOW,
        reason: JobFailureStatus | None = None,
        params: str | None = None,
    ) -> JobKey:
        """A job with one attempt, which has ended unless `ended` is None."""
        paths = self.layout.job(task_id, job_id)
        lock = job_directory.take_lock(MACHINE, paths)
        assert lock is not None
        found = job_directory.look(MACHINE, paths)
        launch = job_directory.open_attempt(
            MACHINE,
            paths,
            lock,
            found,
            launcher="spawn",
            job_name=job_id,
            instructions=Instructions(task_id, job_id).encode(),
        )
        if params is not None:
            Path(paths.params).write_text(params)
        if ended is not None:
            marker = Marker(launch.attempt, launch.nonce, reason, starttime=ended, endtime=ended)
            write_marker(MACHINE.files, paths, marker)
        lock.close()
        return JobKey(task_id, job_id)

    def unstarted(self, job_id: str) -> JobKey:
        """A job that was submitted, and never started: its directory has no more than a lock."""
        lock = job_directory.take_lock(MACHINE, self.layout.job("my.Train", job_id))
        assert lock is not None
        lock.close()
        return JobKey("my.Train", job_id)

    def states(self, run: str = "sweep") -> dict[str, str]:
        return {job.id: job.state.name for job in self.view.jobs(self.view.run(run))}


def line(job_id: str, *depends_on: str, transient: TransientMode = TransientMode.NONE) -> JobLine:
    return JobLine(job_id, "my.Train", NOW, depends_on=depends_on, transient=transient)


def params(**values: object) -> str:
    objects = [{"type": "my.Train", "class": ["my", "Train", "/my.py"], "values": values}]
    return json.dumps({"format": "tenuto-config", "version": 1, "objects": objects, "value": {"$ref": 0}})


def document(objects: str, value: int) -> str:
    return (
        f'{{"format": "tenuto-config", "version": 1, "objects": [{objects}], "value": {{"$ref": {value}}}}}'
    )
