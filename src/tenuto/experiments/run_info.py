"""A run as a script reads it, also years later: its jobs, the configs that it kept, its events.
Needs nothing of the process that runs the experiment, and no code of its tasks but to load configs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from tenuto.errors import JournalError, NotFound, ParameterError
from tenuto.experiments.run_record import RunState, run_of
from tenuto.experiments.workspace import Workspace
from tenuto.jobs.key import JobKey
from tenuto.jobs.result_table import Cells, Finished, result_of, result_rows
from tenuto.lifecycle.events import JobStateChangedEvent, RunCompletedEvent
from tenuto.lifecycle.states import JobState, TransientMode
from tenuto.light import late
from tenuto.settings import load_settings
from tenuto.tasks.arguments import guarded, text
from tenuto.tasks.graph import configs_in, postorder
from tenuto.tasks.schema import schema_of
from tenuto.tasks.stored_configs import load
from tenuto.tasks.task import Task
from tenuto.workspace.journal import Cursor, EventReader, JournalEntry, Position
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import Machine
from tenuto.workspace.run_paths import RunPaths

if TYPE_CHECKING:
    from tenuto.experiments import workspace_view as views
    from tenuto.experiments.runs import RunView
    from tenuto.jobs.row import Row
    from tenuto.tasks.functions import TaskFunction
else:
    views = late("tenuto.experiments.workspace_view")

POLL_S = 0.5
_MOST = 10_000
_LONGEST_NAME = 200


class ExperimentInfo(NamedTuple):
    """One run of an experiment, and its jobs in the order they were submitted."""

    run: RunView
    """When it ran, where, and what became of it."""
    jobs: tuple[Row, ...]
    """Each with its task, id, state, tags, times and failure."""
    git: dict[str, str]
    """project path -> commit."""
    view: views.WorkspaceView

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

    def path(self, job: Row) -> Path:
        """The directory of a job."""
        return Path(self.view.layout.job(*job.job_key).directory)

    @overload
    def results(self, task: type[Task[Any]] | None = None, *, provenance: bool = ...) -> list[Cells]: ...
    @overload
    def results(self, task: TaskFunction[..., Any], *, provenance: bool = ...) -> list[Cells]: ...
    @guarded  # type: ignore[misc]
    def results(self, task: type[Task[Any]] | None = None, *, provenance: bool = False) -> list[Cells]:
        """The rows that `xp.results()` gives: of one class of tasks, if given.

        `provenance`: also what each was made of.
        """
        given: Any = task
        task_id = None if given is None else schema_of(given).id
        files, layout = self.view.machine.files, self.view.layout

        def made_of(job: Row) -> Mapping[str, Any]:
            paths = layout.job(*job.job_key)
            return self.view.record(paths, self.view.look(job.job_key).marker) if provenance else {}

        return result_rows(
            Finished(
                job.task,
                job.id,
                job.state,
                job.tags,
                result_of(files, layout.job(*job.job_key), job),
                made_of(job),
            )
            for job in self.jobs
            if job.state.finished() and task_id in (None, job.task)
        )


@guarded
def load_xp_info(workdir: Path | str | Workspace, name: str, run_id: str | None = None) -> ExperimentInfo:
    """What a run of an experiment did; `NotFound` if there is none.

    `workdir`: a workspace, by its path or its name in the settings. `name`: the experiment's. `run_id`: one
    of its runs; by default the last.
    """
    workspace = Workspace.named(workdir, load_settings())
    if not workspace.path.is_dir():
        raise NotFound(
            f"there is no workspace at {workspace.path}; `tenuto doctor` shows those of the settings"
        )
    view = views.WorkspaceView(workspace.layout, this_machine())
    run = view.run(name if run_id is None else f"{name}/{run_id}")
    return ExperimentInfo(run, tuple(view.jobs(run)), view.commits(run), view)


# -- configs that a run keeps under a name, in the format of `tasks.stored_configs` --------------------------


def place_of(run: RunPaths, name: str) -> Path:
    """The directory of what a run keeps under a name."""
    return Path(run.data, saved_name(name))


def newest_saved(machine: Machine, layout: Layout, experiment: str, name: str) -> Path:
    """The directory of what the newest run of an experiment kept under a name; `NotFound` if none did."""
    saved_name(name)
    names: dict[str, None] = {}
    for run in views.WorkspaceView(layout, machine).runs(experiment):
        data = Path(layout.run(experiment, run.run_id).data)
        found = sorted(one.name for one in data.iterdir()) if data.is_dir() else []
        names.update(dict.fromkeys(found))
        if name in found:
            return data / name
    known = f"it kept {', '.join(map(repr, names))}" if names else "it kept nothing"
    raise NotFound(f"no run of experiment {experiment!r} kept {name!r}; {known}")


def load_submitted(place: Path) -> Any:
    """The configs kept in a directory; tasks that it came from, or depends on, are submitted as transient."""
    value = load(place)
    for _, root in configs_in(value):
        for node in list(postorder(root, lambda node: node._state.job is not None)):
            if node is not root and isinstance(node, Task):
                init_tasks: Any = node._state.init_tasks
                node.submit(transient=TransientMode.TRANSIENT, init_tasks=init_tasks)
    return value


def saved_name(name: str) -> str:
    """A name under which configs are kept: the name of one directory, below that of its run."""
    given = text(name, "the name of what is saved")
    if given in (".", "..") or "/" in given or "\0" in given or len(given.encode()) > _LONGEST_NAME:
        raise ParameterError(
            f"configs cannot be saved as {given!r:.100}: give a name of up to {_LONGEST_NAME} bytes without "
            f"slashes, or use tenuto.save(value, directory)"
        )
    return given


# -- events, from the journal of the experiment: each writer there bears the name of its run ---------


def run_events(
    workdir: Path | str | Workspace,
    run: str,
    *,
    jobs: bool = False,
    cursor: Mapping[str, Any] | None = None,
) -> RunEvents:
    """The events of a run: ``"sweep"``, the last one of an experiment, or a certain one, ``"sweep/RUN_ID"``.

    `jobs`: also what its running jobs tell, such as progress. `cursor`: what `RunEvents.cursor` gave.
    """
    workspace = Workspace.named(workdir, load_settings())
    view = views.WorkspaceView(workspace.layout, this_machine())
    found = view.run(run)
    return RunEvents(view, found.experiment_id, found.run_id, jobs=jobs, cursor=cursor)


class RunEvents:
    """Reads the events of one run, each once; of one writer in order."""

    def __init__(
        self,
        view: views.WorkspaceView,
        experiment_id: str,
        run_id: str,
        *,
        jobs: bool = False,
        cursor: Mapping[str, Any] | None = None,
    ) -> None:
        self.experiment_id = experiment_id
        self.run_id = run_id
        self._view = view
        self._with_jobs = jobs
        layout = view.layout
        of_run, of_jobs = _decoded(cursor)
        self._run = EventReader(
            view.machine.files,
            layout.experiment_journal(experiment_id),
            archive=layout.run(experiment_id, run_id).events,
            cursor=of_run,
            accept=lambda writer: run_of(writer) in (run_id, None),
        )
        self._jobs = {key: self._job_reader(key, position) for key, position in of_jobs.items()}
        """Of jobs that run; a job that has ended has told everything."""

    def cursor(self) -> dict[str, Any]:
        """How far was read, as plain JSON values: a reader that is given them continues from here."""
        return {
            "run": {name: list(position) for name, position in self._run.cursor().items()},
            "jobs": [
                [*key, {name: list(position) for name, position in reader.cursor().items()}]
                for key, reader in self._jobs.items()
            ],
        }

    def read(self) -> list[JournalEntry]:
        """The new events since the last call."""
        entries: list[JournalEntry] = []
        while found := self._run.read(_MOST):
            entries += found
        return entries + self._told_by_jobs(entries)

    def follow(
        self, *, poll_s: float = POLL_S, until: Callable[[], bool] = lambda: False
    ) -> Iterator[JournalEntry]:
        """The events so far and later ones, until the run is over (also if it was killed), or until told."""
        while True:
            is_over = until() or not self._is_live()  # asked first: later events are read below
            entries = self.read()
            yield from entries
            if is_over or any(isinstance(entry.event, RunCompletedEvent) for entry in entries):
                return
            time.sleep(poll_s)

    def _is_live(self) -> bool:
        try:
            return self._view.run(f"{self.experiment_id}/{self.run_id}").live
        except NotFound:
            return False  # it was removed

    def _told_by_jobs(self, entries: list[JournalEntry]) -> list[JournalEntry]:
        if not self._with_jobs:
            return []
        ended = set()
        for entry in entries:
            event = entry.event
            if isinstance(event, JobStateChangedEvent):
                key = JobKey(event.task_id, event.job_id)
                if event.state is JobState.RUNNING and key not in self._jobs:
                    self._jobs[key] = self._job_reader(key)
                    ended.discard(key)
                elif event.state.finished():
                    ended.add(key)
        told: list[JournalEntry] = []
        for key, reader in list(self._jobs.items()):
            try:
                told += reader.read()
            except OSError:
                continue  # the journal of a new attempt is taking the place of this one
            if key in ended:
                del self._jobs[key]
        return told

    def _job_reader(self, key: JobKey, cursor: Cursor | None = None) -> EventReader:
        return EventReader(self._view.machine.files, self._view.layout.job_journal(*key), cursor=cursor)


def _decoded(cursor: Mapping[str, Any] | None) -> tuple[Cursor, dict[JobKey, Cursor]]:
    if cursor is None:
        return {}, {}
    try:
        jobs = {JobKey(task_id, job_id): _positions(given) for task_id, job_id, given in cursor["jobs"]}
        return _positions(cursor["run"]), jobs
    except (KeyError, TypeError, ValueError, AttributeError) as wrong:
        raise JournalError("this is no cursor: give what cursor() returned, or nothing") from wrong


def _positions(given: Mapping[str, Any]) -> Cursor:
    return {str(name): Position(int(offset), int(sequence)) for name, (offset, sequence) in given.items()}
