"""A past run, read without importing any code of its tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from tenuto.experiments.result_rows import Finished, Row, result_rows
from tenuto.experiments.run_record import RunState
from tenuto.experiments.runs import RunView
from tenuto.experiments.workspace import Workspace
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.view import JobView
from tenuto.settings import load_settings
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import Machine


class ExperimentInfo(NamedTuple):
    """One run of an experiment, and its jobs in the order they were submitted."""

    run: RunView
    """When it ran, where, and what became of it."""
    jobs: tuple[JobView, ...]
    """Each with its task, id, state, tags, times and failure."""
    git: dict[str, str]
    """project path -> commit."""
    view: WorkspaceView

    @property
    def run_id(self) -> str:
        """The name of the run."""
        return self.run.run_id

    @property
    def state(self) -> RunState:
        """What became of it."""
        return self.run.state

    @property
    def resultspath(self) -> Path:
        """What the script kept."""
        return Path(self.view.layout.run(self.run.experiment_id, self.run_id).results)

    def path(self, job: JobView) -> Path:
        """The directory of a job."""
        return Path(self.view.layout.job(job.task_id, job.job_id).directory)

    def results(self) -> list[Row]:
        """The rows that `xp.results()` gives; tags are texts here."""
        return result_rows(
            self.view.machine.files,
            [
                Finished(
                    job.task_id,
                    job.job_id,
                    job.state,
                    job.tags,
                    self.view.layout.job(job.task_id, job.job_id),
                    job.marker,
                )
                for job in self.jobs
                if job.state.finished()
            ],
        )


def load_xp_info(workdir: Path | str | Workspace, name: str, run_id: str | None = None) -> ExperimentInfo:
    """What a run of an experiment did; `NotFound` if there is none.

    `workdir`: a workspace, by its path or its name in the settings. `name`: the experiment's. `run_id`: one
    of its runs; by default the last.
    """
    workspace = Workspace.named(workdir, load_settings())
    view = WorkspaceView(workspace.layout, this_machine())
    run = view.run(name if run_id is None else f"{name}/{run_id}")
    return ExperimentInfo(run, tuple(view.jobs(run)), view.commits(run), view)


def saved_in(
    layout: Layout, machine: Machine, experiment_id: str, name: str
) -> tuple[Path | None, list[str]]:
    """Where the newest run that saved something under a name has it, and the names that there are."""
    view = WorkspaceView(layout, machine)
    names: dict[str, Any] = {}
    for run in view.runs(experiment_id):
        data = Path(view.layout.run(experiment_id, run.run_id).data)
        found = sorted(one.name for one in data.iterdir()) if data.is_dir() else []
        names.update(dict.fromkeys(found))
        if name in found:
            return data / name, list(names)
    return None, list(names)
