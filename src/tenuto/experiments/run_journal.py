"""The events of a run, in the journal of its experiment: each writer there bears the name of its run.
Read from files while it runs, or years later; needs nothing of the process that runs the experiment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenuto.errors import JournalError, NotFound
from tenuto.experiments.run_record import run_of
from tenuto.experiments.workspace import Workspace
from tenuto.jobs.key import JobKey
from tenuto.lifecycle.events import JobStateChangedEvent, RunCompletedEvent
from tenuto.lifecycle.states import JobState
from tenuto.light import late
from tenuto.settings import load_settings
from tenuto.workspace import journal
from tenuto.workspace.journal import Cursor, Entry, EventReader, Position
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import FileKind, Files

if TYPE_CHECKING:
    from tenuto.experiments import workspace_view as views
else:
    views = late("tenuto.experiments.workspace_view")

POLL_S = 0.5
_MOST = 10_000


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
        """How far was read, as plain JSON values: a reader that is given them goes on from here."""
        return {
            "run": {name: list(position) for name, position in self._run.cursor().items()},
            "jobs": [
                [*key, {name: list(position) for name, position in reader.cursor().items()}]
                for key, reader in self._jobs.items()
            ],
        }

    def read(self) -> list[Entry]:
        """What is new since the last call."""
        entries: list[Entry] = []
        while found := self._run.read(_MOST):
            entries += found
        return entries + self._told_by_jobs(entries)

    def follow(self, *, poll_s: float = POLL_S, until: Callable[[], bool] = lambda: False) -> Iterator[Entry]:
        """What there is, and what comes, until the run is over (also if it was killed), or until told."""
        while True:
            is_over = until() or not self._is_live()  # asked first: what comes after it is read below
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

    def _told_by_jobs(self, entries: list[Entry]) -> list[Entry]:
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
        told: list[Entry] = []
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


def archive_forsaken(files: Files, layout: Layout, experiment_id: str) -> None:
    """Gives the events of runs that were killed to those runs; what belongs to a run that is gone goes, too.

    Under the experiment's lock, before a run writes. Otherwise they would count for the next run that ends.
    """
    place = layout.experiment_journal(experiment_id)
    of_run: dict[str, list[int]] = {}
    for number, writer in journal.writers(files, place).items():
        run_id = run_of(writer)
        if run_id is not None:
            of_run.setdefault(run_id, []).append(number)
    for run_id, numbers in of_run.items():
        run = layout.run(experiment_id, run_id)
        found = files.stat(run.directory)
        if found is not None and found.kind is FileKind.DIRECTORY:
            journal.archive(files, place, run.events, numbers)
        else:
            for number in numbers:
                files.remove(place.path(number))
