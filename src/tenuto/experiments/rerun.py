"""The filter of `--rerun`: which jobs that a script submits are run again, though they were done.
It asks of them what `tenuto jobs` asks; the check decides what follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.filters import names
from tenuto.jobs.key import JobKey
from tenuto.jobs.query import Question, find, read_question
from tenuto.jobs.row import Row
from tenuto.scheduler.jobs import Job
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import Machine

_OF_RUNS = frozenset(("group", "experiment", "run", "owner", "submitted"))
"""Fields of which a job's directory does not tell."""


class RerunFilter:
    """Tells which jobs a person wants to be run again; knows whether there was one."""

    def __init__(self, machine: Machine, filter: str) -> None:
        """`filter`: as of `tenuto jobs`; `FilterError` points at the character that cannot be read."""
        self._machine = machine
        tree = read_question(filter)
        self._asks_runs = tree is not None and not _OF_RUNS.isdisjoint(names(tree))
        self._views: dict[str, WorkspaceView] = {}
        self._listed: dict[str, dict[JobKey, Row]] = {}
        """By workspace, its jobs as their runs have them."""
        self.filter = filter
        self.matched = 0

    def __call__(self, job: Job) -> bool:
        """True for a job that the filter names."""
        view = self._view(job.layout)
        row = self._row(view, JobKey(job.task_id, job.job_id))
        row = row._replace(tags={**row.tags, **job.tags})

        def parameters(_: str) -> Mapping[str, Any]:
            return view.parameters(row)

        found = find([row], Question(filter=self.filter), self._machine.clock.now(), parameters).rows
        self.matched += len(found)
        return bool(found)

    def note(self, jobs: Iterable[Job]) -> str | None:
        """What to say at the end of a run of these jobs: that the filter names none of them."""
        if self.matched or any(map(self, jobs)):
            return None
        return f"--rerun {self.filter!r}: no job that was submitted is of that kind"

    def _view(self, layout: Layout) -> WorkspaceView:
        if layout.root not in self._views:
            self._views[layout.root] = WorkspaceView(layout, self._machine)
        return self._views[layout.root]

    def _row(self, view: WorkspaceView, key: JobKey) -> Row:
        if not self._asks_runs:
            return view.job_alone(key)
        root = view.layout.root
        if root not in self._listed:
            self._listed[root] = {row.job_key: row for row in view.all_jobs()}
        return self._listed[root].get(key) or view.job_alone(key)
