"""`tenuto why`."""

from __future__ import annotations

import json
from typing import Any

import click

from tenuto.cli.completions import complete_jobs
from tenuto.cli.console import moment, print_json, say, state_cell, styled, window_width
from tenuto.cli.options import json_option, open_workspace, workspace_option
from tenuto.cli.program import hint
from tenuto.experiments.job_past import explain_job
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.difference import ABSENT, plain_side
from tenuto.jobs.result_table import flat_result, result_of
from tenuto.jobs.text import duration, energy, safe, truncate
from tenuto.jobs.view import JobDetail, JobView, plain_job
from tenuto.jobs.why import JobExplanation
from tenuto.launchers.instructions import CarbonPlan, Instructions
from tenuto.lifecycle.events import CarbonMetricsData
from tenuto.lifecycle.states import JobState
from tenuto.workspace.carbon import plain_metrics, total

MOST_PARAMETERS = 40
MOST_JOBS = 10


@click.command()
@click.argument("job", shell_complete=complete_jobs)
@workspace_option
@json_option
def command(job: str, workspace: str | None, as_json: bool) -> None:
    """Say why JOB is in its state, and why no earlier result was reused for it.

    JOB is the beginning of its id, TASK/ID, or a task that has one job.
    """
    view = open_workspace(workspace)
    why = explain_job(view, view.find_one(job))
    if as_json:
        print_json(_plain(view, why))
    else:
        _show(view, why)


def _plain(view: WorkspaceView, why: JobExplanation) -> dict[str, Any]:
    now = view.machine.clock.now()
    detail = why.detail
    used = _used(detail)
    nearest = None
    if why.nearest is not None:
        nearest = {
            "task": why.nearest.key.task_id,
            "id": why.nearest.key.job_id,
            "changed": [
                {"parameter": one.path, "here": plain_side(one.here), "there": plain_side(one.there)}
                for one in why.nearest.changed
            ],
        }
    return {
        **plain_job(detail.job, now),
        "result": _result(view, detail),
        "directory": detail.paths.directory,
        "because": list(why.because),
        "reuse": why.reuse,
        "nearest": nearest,
        "code": list(why.code),
        "next": list(why.next_steps),
        "parameters": dict(detail.stored.parameters),
        "dependencies": [plain_job(one, now) for one in detail.dependencies],
        "dependents": [plain_job(one, now) for one in detail.dependents],
        "runs": list(detail.asked_by),
        "earlier_logs": detail.earlier_logs,
        "carbon": plain_metrics(used) if used else None,
    }


def _result(view: WorkspaceView, detail: JobDetail) -> Any:
    is_done = detail.job.state is JobState.DONE
    return result_of(view.machine.files, detail.paths, detail.job.marker) if is_done else None


def _used(detail: JobDetail) -> CarbonMetricsData | None:
    return total(one.metrics for one in detail.carbon.values() if one.metrics is not None)


def _carbon_plan(detail: JobDetail) -> CarbonPlan | None:
    """How its energy was to be measured; None if it was not."""
    try:
        return None if detail.launch is None else Instructions.of(detail.launch).carbon
    except (ValueError, TypeError, KeyError):
        return None


def _show_energy(detail: JobDetail) -> None:
    used = _used(detail)
    if used is not None:
        _bullet(f"used {energy(used)}, as far as it was measured")
    for attempt, measured in detail.carbon.items():
        if measured.problem is not None:
            _bullet(f"its energy could not be measured in attempt {attempt}: {measured.problem}")
    if not detail.carbon and detail.job.state.finished() and (plan := _carbon_plan(detail)) is not None:
        short = f"a job that runs for less than {plan.after_s:g} s is not (carbon.after_s of the settings)"
        _bullet(f"its energy was not measured: {short}")


def _show(view: WorkspaceView, why: JobExplanation) -> None:
    detail, job = why.detail, why.detail.job
    now = view.machine.clock.now()
    say(f"{safe(job.task_id)} {job.job_id[:12]} is {styled(state_cell(job.state))}")
    for sentence in why.because:
        _bullet(sentence)
    if job.starttime is not None:
        ended = f", ended {moment(job.endtime)}" if job.endtime else ""
        _bullet(f"started {moment(job.starttime)}{ended}, took {duration(job.duration_s(now))}")
    if job.progress is not None:
        left = job.progress.left_s(now)
        eta = f", ETA {duration(left)}" if left is not None else ""
        _bullet(f"progress {job.progress.fraction:.0%}{eta} {job.progress.words}".rstrip())
    _show_energy(detail)
    if detail.launch is not None and detail.launch.retry_count:
        _bullet(f"started again {detail.launch.retry_count} times because it ran out of time")
    result = _result(view, detail)
    if result is not None:
        _heading("result")
        for name, value in list(flat_result(result).items())[:MOST_PARAMETERS]:
            _bullet(f"{name} = {_worded(value)}")
    if detail.stored.parameters:
        _heading("parameters")
        for path, value in list(detail.stored.parameters.items())[:MOST_PARAMETERS]:
            _bullet(f"{path} = {_worded(value)}")
        if len(detail.stored.parameters) > MOST_PARAMETERS:
            _bullet(f"and {len(detail.stored.parameters) - MOST_PARAMETERS} more: --json shows all")
    if job.tags:
        _heading("tags")
        _bullet(", ".join(f"{name}={value}" for name, value in job.tags.items()))
    _jobs("depends on", detail.dependencies)
    _jobs("needed by", detail.dependents)
    _heading("why it was not taken from an earlier job")
    _bullet(why.reuse)
    for one in why.nearest.changed[:MOST_PARAMETERS] if why.nearest else ():
        say(f"    {safe(one.path)}: {safe(_worded(one.here))} here, {safe(_worded(one.there))} there")
    for sentence in why.code:
        _bullet(sentence)
    _heading("where")
    _bullet(detail.paths.directory)
    for run in detail.asked_by[:MOST_JOBS]:
        _bullet(f"run {run}")
    if why.next_steps:
        _heading("next")
        for step in why.next_steps:
            _bullet(hint(step))


def _heading(text: str) -> None:
    say("")
    say(text)


def _bullet(text: str) -> None:
    say(f"  {safe(text)}")


def _jobs(title: str, jobs: tuple[JobView, ...]) -> None:
    if not jobs:
        return
    _heading(title)
    for job in jobs[:MOST_JOBS]:
        say(f"  {safe(str(job.key))} {styled(state_cell(job.state))}")
    if len(jobs) > MOST_JOBS:
        _bullet(f"and {len(jobs) - MOST_JOBS} more")


def _worded(value: Any) -> str:
    if value is ABSENT:
        return "not set"
    text = json.dumps(value, ensure_ascii=False, default=str)
    room = window_width()
    return text if room is None else truncate(safe(text), max(room // 2, 20))
