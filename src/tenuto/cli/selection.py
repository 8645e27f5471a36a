"""The jobs that a command is about: by run, by filter, by name; and the options that choose them.
Reads only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import click

from tenuto.cli.completions import complete_runs
from tenuto.cli.console import note
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.fields import FIELDS, own_fields
from tenuto.jobs.filters import Filter, names, parse_filter
from tenuto.jobs.key import JobKey
from tenuto.jobs.result_table import ResultReader, flat_result, is_result
from tenuto.jobs.view import JobView
from tenuto.lifecycle.states import JobFailureStatus, JobState

CHOICES = {
    "state": [state.name.lower() for state in JobState],
    "reason": [reason.name.lower() for reason in JobFailureStatus],
}


F = TypeVar("F", bound=Callable[..., Any])


def run_option(command: F) -> F:
    """`-r`, `--run`."""
    text = "An experiment (its last run), or one of its runs."
    return click.option("-r", "--run", metavar="RUN", shell_complete=complete_runs, help=text)(command)


def all_option(command: F) -> F:
    """`-a`, `--all`."""
    text = "Every job of the workspace, also of no run."
    return click.option("-a", "--all", "every", is_flag=True, help=text)(command)


def limit_option(command: F) -> F:
    """`-n`, `--limit`."""
    return click.option("-n", "--limit", type=click.IntRange(min=1), help="Show at most so many.")(command)


def read_filter(words: Sequence[str]) -> Filter | None:
    """The filter on a command line; several arguments are one filter."""
    text = " ".join(words).strip()
    return parse_filter(text, choices=CHOICES) if text else None


def matching(view: WorkspaceView, jobs: Sequence[JobView], wanted: Filter | None) -> list[JobView]:
    """The jobs that a filter lets through."""
    if wanted is None:
        return list(jobs)
    fields = fields_of(view, jobs, set(names(wanted)))
    return [job for job in jobs if wanted.matches(fields(job))]


def fields_of(
    view: WorkspaceView, jobs: Sequence[JobView], asked: set[str]
) -> Callable[[JobView], dict[str, Any]]:
    """What can be asked of a job: its fields over its tags over, only if need be, parameters and results."""
    now = view.machine.clock.now()
    tags = {name for job in jobs for name in job.tags}
    reader = ResultReader(view.machine.files, view.layout)
    results = {name for name in asked if is_result(name)} - tags
    others = asked - set(FIELDS) - tags - results
    found: set[str] = set()

    def fields(job: JobView) -> dict[str, Any]:
        values: dict[str, Any] = {}
        if results:
            values.update(flat_result(reader.result(job)))
        if others:
            stored = reader.parameters(job.key)
            values.update({name: stored[name] for name in others if name in stored})
        return {**values, **job.tags, **own_fields(job, now)}

    unsure = others | results
    if unsure and jobs:
        for job in jobs:
            found.update(unsure & fields(job).keys())
            if found == unsure:
                break
        for name in sorted(unsure - found):
            note(f"no job here has a field, tag, parameter or result {name!r}")
    return fields


def in_order(view: WorkspaceView, jobs: Sequence[JobView], by: str) -> list[JobView]:
    """The jobs sorted by a field, tag or parameter; `-duration` for the largest first."""
    name = by.removeprefix("-")
    fields = fields_of(view, jobs, {name})
    keyed = [(_key(fields(job).get(name)), job) for job in jobs]
    known = [pair for pair in keyed if pair[0] is not None]
    known.sort(key=lambda pair: pair[0] or (0, ""), reverse=by.startswith("-"))
    return [job for _, job in known] + [job for key, job in keyed if key is None]


def _key(value: Any) -> tuple[int, Any] | None:
    """Numbers by size, also those in tags; then texts."""
    if value is None:
        return None
    try:
        return 0, float(value)
    except (TypeError, ValueError, OverflowError):
        return 1, value.isoformat() if isinstance(value, datetime) else str(value)


def jobs_of_runs(view: WorkspaceView, run: str | None) -> list[JobView]:
    """The jobs of a run, or of the last run of each experiment; each job once."""
    found: dict[JobKey, JobView] = {}
    for view_of_run in view.find_runs(run):
        for job in view.jobs(view_of_run):
            found.setdefault(job.key, job)
    return list(found.values())


def named(view: WorkspaceView, jobs: Iterable[str]) -> list[JobKey]:
    """The jobs that were named, each name standing for one."""
    return list(dict.fromkeys(view.find_one(name) for name in jobs))


def need_one_of(ctx: click.Context, given: Iterable[object], message: str) -> None:
    """Refuses a command that does not say what it is about."""
    if not any(given):
        raise click.UsageError(message, ctx)
