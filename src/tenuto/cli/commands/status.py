"""`tenuto status`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from tenuto.cli.console import Cell, Column, Styled, ago, note, print_json, say, table
from tenuto.cli.options import json_option, open_workspace, workspace_option
from tenuto.cli.program import hint
from tenuto.experiments.run_record import RunState
from tenuto.experiments.runs import RunView, plain_run
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.key import JobKey
from tenuto.jobs.text import duration, safe
from tenuto.jobs.view import JobView, plain_job
from tenuto.lifecycle.states import JobState

MOST_RUNNING = 20
Others = dict[str, dict[JobKey, JobState]]
"""The jobs of searches and services, by their owners."""
_COLOURS = {RunState.RUNNING: "cyan", RunState.DONE: "green", RunState.FAILED: "red"}


@click.command()
@workspace_option
@json_option
def command(workspace: str | None, as_json: bool) -> None:
    """Show the experiments of a workspace, their last runs, its searches and services, and what runs now."""
    view = open_workspace(workspace)
    runs = view.find_runs(None)
    counted = [(run, view.counts(run)) for run in runs]
    running = [
        job
        for run, counts in counted
        if any(state.running() for state in counts)
        for job in view.jobs(run)
        if job.state.running()
    ]
    others = view.jobs_of_no_run()
    running += [
        view.job_alone(key) for jobs in others.values() for key, state in jobs.items() if state.running()
    ]
    running = list({job.key: job for job in reversed(running)}.values())[::-1]
    if as_json:
        print_json(_plain(view, counted, others, running))
        return
    say(f"workspace {safe(view.layout.root)}")
    if not runs and not others:
        note("no experiment was run here yet")
        return
    if runs:
        _show_runs(view, counted)
    _show_others(others)
    _show_running(view, running)
    _show_hints(counted, running)


def _plain(
    view: WorkspaceView,
    counted: list[tuple[RunView, Counter[JobState]]],
    others: Others,
    running: list[JobView],
) -> dict[str, Any]:
    now = view.machine.clock.now()
    return {
        "workspace": view.layout.root,
        "runs": [
            {**plain_run(run), "counts": {state.name.lower(): counts[state] for state in JobState}}
            for run, counts in counted
        ],
        "owners": [
            {"owner": owner, "counts": {state.name.lower(): counts[state] for state in JobState}}
            for owner, counts in _counts(others)
        ],
        "running": [plain_job(job, now) for job in running],
    }


def _show_runs(view: WorkspaceView, counted: list[tuple[RunView, Counter[JobState]]]) -> None:
    now = view.machine.clock.now()
    rows: list[list[Cell]] = []
    for run, counts in counted:
        waiting = counts[JobState.WAITING] + counts[JobState.READY]
        rows.append(
            [
                run.experiment_id,
                run.run_id,
                Styled(run.state.value, _COLOURS.get(run.state, "yellow")),
                _count(counts[JobState.DONE], "green"),
                _count(counts[JobState.RUNNING] + counts[JobState.SCHEDULED], "cyan"),
                _count(waiting, "yellow"),
                _count(counts[JobState.ERROR], "red"),
                _count(counts[JobState.UNSCHEDULED], None),
                ago(run.started, now),
            ]
        )
    say("")
    table(
        [
            Column("experiment", least=8),
            Column("last run", rank=3),
            Column("state", rank=1),
            Column("done", right=True),
            Column("running", right=True, least=3),
            Column("waiting", right=True, least=4),
            Column("failed", right=True, least=4),
            Column("not run", right=True, rank=2),
            Column("started", right=True, rank=4),
        ],
        rows,
    )


def _counts(others: Others) -> list[tuple[str, Counter[JobState]]]:
    return [(owner, Counter(jobs.values())) for owner, jobs in others.items()]


def _show_others(others: Others) -> None:
    """The searches and services of the workspace: how many of their jobs are in which state."""
    if not others:
        return
    rows: list[list[Cell]] = [
        [
            owner,
            _count(counts[JobState.DONE], "green"),
            _count(counts[JobState.RUNNING] + counts[JobState.SCHEDULED], "cyan"),
            _count(counts[JobState.ERROR], "red"),
        ]
        for owner, counts in _counts(others)
    ]
    say("")
    columns = [
        Column("owner", least=8),
        *(Column(name, right=True) for name in ("done", "running", "failed")),
    ]
    table(columns, rows)


def _count(number: int, colour: str | None) -> Styled:
    return Styled(str(number), colour if number else None, dim=not number)


def _show_running(view: WorkspaceView, running: list[JobView]) -> None:
    if not running:
        return
    now = view.machine.clock.now()
    rows: list[list[Cell]] = []
    for job in running[:MOST_RUNNING]:
        elapsed = job.duration_s(now)
        left = job.progress.left_s(now) if job.progress else None
        rows.append(
            [
                job.job_id[:8],
                job.task_id,
                f"{job.progress.fraction:.0%}" if job.progress else "–",
                duration(elapsed),
                duration(left),
                " ".join(f"{name}={value}" for name, value in job.tags.items()),
                job.progress.words if job.progress else "",
            ]
        )
    say("")
    say(f"running now: {len(running)}")
    table(
        [
            Column("id"),
            Column("task", least=8),
            Column("progress", right=True, least=4),
            Column("for", right=True, rank=2),
            Column("ETA", right=True, rank=1),
            Column("tags", least=6, rank=3),
            Column("what", least=6, rank=4),
        ],
        rows,
    )
    if len(running) > MOST_RUNNING:
        say(f"and {len(running) - MOST_RUNNING} more: {hint('tenuto jobs state=running')}")


def _show_hints(counted: list[tuple[RunView, Counter[JobState]]], running: list[JobView]) -> None:
    say("")
    strays = [
        job
        for run, _ in counted
        if not run.live
        for job in running
        if (job.experiment_id, job.run_id) == (run.experiment_id, run.run_id)
    ]
    if strays:
        kill = hint("tenuto kill --strays")
        say(f"no run waits for {len(strays)} of them: run the experiment again, or {kill}")
    if any(counts[JobState.ERROR] for _, counts in counted):
        say(f"what failed: {hint('tenuto jobs state=error')}")
        say(f"why, and again: {hint('tenuto why ID')}, {hint('tenuto retry ID')}")
