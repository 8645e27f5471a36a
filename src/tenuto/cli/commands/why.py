"""`tenuto why`."""

from __future__ import annotations

import json
from typing import Any

import click

from tenuto.catalogue import Catalogue
from tenuto.cli.chosen_jobs import job_argument, job_options, one_job
from tenuto.cli.console import moment, print_json, say, state_cell, styled, window_width
from tenuto.cli.options import open_catalogue
from tenuto.cli.program import hint
from tenuto.experiments.job_past import explain_job
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.metrics import usage_of
from tenuto.jobs.parameters import ABSENT
from tenuto.jobs.result_table import flat_result, result_of
from tenuto.jobs.row import Row, plain_row
from tenuto.jobs.text import duration, energy, safe, truncate
from tenuto.jobs.view import StoredDetail
from tenuto.jobs.why import JobExplanation
from tenuto.launchers.instructions import CarbonPlan, Instructions
from tenuto.lifecycle.events import CarbonMetricsData
from tenuto.tasks.tags import tag_words
from tenuto.workspace.carbon import total
from tenuto.workspace.packs import is_packed

MOST_PARAMETERS = 40
MOST_JOBS = 10


@click.command()
@job_argument
@job_options
def command(words: tuple[str, ...], kind: str | None, workspace: str | None, as_json: bool) -> None:
    """Say why JOB is in its state, and why no earlier result was reused for it.

    JOB is the beginning of its id, TASK/ID, or a task that has one job; NAME#N of a search or a service; or a
    filter that one job matches.
    """
    catalogue = open_catalogue(workspace)
    key = one_job(catalogue, words, kind)
    if as_json:
        print_json(_plain(catalogue, key))
    elif catalogue.source(key) is catalogue.experiments:
        _show(catalogue.view, explain_job(catalogue.view, catalogue.experiments.parsed(key)))
    else:
        _show_other(catalogue, key)


def _plain(catalogue: Catalogue, key: str) -> dict[str, Any]:
    source, now = catalogue.source(key), catalogue.now()
    detail, why = source.detail(key), source.why(key)
    fields = {name: value for name, value in detail.fields.items() if name != "events"}
    for name in ("dependencies", "dependents"):
        fields[name] = [plain_row(one, now) for one in fields.get(name, ())]
    fields.setdefault("lineage", [])
    return {
        **plain_row(detail.row, now),
        **fields,
        "because": list(why.because),
        "reuse": why.reuse,
        "nearest": dict(why.nearest) if why.nearest is not None else None,
        "code": list(why.code),
        "next": list(why.next),
    }


def _show_other(catalogue: Catalogue, key: str) -> None:
    """A candidate, or a job of a service."""
    source, now = catalogue.source(key), catalogue.now()
    detail, why = source.detail(key), source.why(key)
    row = detail.row
    say(f"{safe(row.name)} is {styled(state_cell(row.state))}")
    for sentence in why.because:
        _bullet(sentence)
    if row.started is not None:
        ended = f", ended {moment(row.ended)}" if row.ended else ""
        _bullet(f"started {moment(row.started)}{ended}, took {duration(row.elapsed_s(now))}")
    for title, values in (
        ("result", flat_result(row.result)),
        ("parameters", detail.fields.get("parameters")),
    ):
        if values:
            _heading(title)
            for name, value in list(values.items())[:MOST_PARAMETERS]:
                _bullet(f"{name} = {_worded(value)}")
    if row.where or detail.fields.get("directory"):
        _heading("where")
        for place in (row.where, detail.fields.get("directory")):
            if place:
                _bullet(place)
    if why.next:
        _heading("next")
        for step in why.next:
            _bullet(hint(step))


def _used(detail: StoredDetail) -> CarbonMetricsData | None:
    return total(one.metrics for one in detail.carbon.values() if one.metrics is not None)


def _carbon_plan(detail: StoredDetail) -> CarbonPlan | None:
    """How its energy was to be measured; None if it was not."""
    try:
        return None if detail.launch is None else Instructions.of(detail.launch).carbon
    except (ValueError, TypeError, KeyError):
        return None


def _show_energy(detail: StoredDetail) -> None:
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
    say(f"{safe(job.task)} {job.id[:12]} is {styled(state_cell(job.state))}")
    for sentence in why.because:
        _bullet(sentence)
    if job.started is not None:
        ended = f", ended {moment(job.ended)}" if job.ended else ""
        _bullet(f"started {moment(job.started)}{ended}, took {duration(job.elapsed_s(now))}")
    if job.progress is not None:
        left = job.left_s(now)
        eta = f", ETA {duration(left)}" if left is not None else ""
        _bullet(f"progress {job.progress:.0%}{eta} {job.progress_desc or ''}".rstrip())
    used = usage_of(view.machine.files, detail.paths)
    for sentence in used.sentences() if used is not None else ():
        _bullet(sentence)
    _show_energy(detail)
    result = result_of(view.machine.files, detail.paths, job)
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
        _bullet(tag_words(job.tags))
    _jobs("depends on", detail.dependencies)
    _jobs("needed by", detail.dependents)
    _heading("why it was not taken from an earlier job")
    _bullet(why.reuse)
    for one in why.nearest.changed[:MOST_PARAMETERS] if why.nearest else ():
        say(f"    {safe(one.path)}: {safe(_worded(one.here))} here, {safe(_worded(one.there))} there")
    for sentence in why.code:
        _bullet(sentence)
    _show_record(detail)
    _heading("where")
    packed = is_packed(view.machine.files, detail.paths.directory)
    _bullet(f"{detail.paths.directory}{' (packed)' if packed else ''}")
    for run in detail.asked_by[:MOST_JOBS]:
        _bullet(f"run {run}")
    if why.next_steps:
        _heading("next")
        for step in why.next_steps:
            _bullet(hint(step))


def _show_record(detail: StoredDetail) -> None:
    """What its result was made of."""
    record = detail.record
    if not record:
        return
    _heading("made of")
    if adopted := record.get("adopted"):
        _bullet(f"taken over from {adopted}; the code is that of when it was taken over")
    commit = record.get("commit")
    if commit:
        _bullet(f"commit {str(commit)[:12]}{', with uncommitted changes' if record.get('dirty') else ''}")
    named = ("run", "python", "packages", "diff", "host", "launcher", "seed", "code")
    _bullet(", ".join(f"{name} {record[name]}" for name in named if record.get(name) is not None))
    for file in list(record.get("files") or ())[:MOST_PARAMETERS]:
        _bullet(f"file {file}")
    for source in list(record.get("made_from") or ())[:MOST_PARAMETERS]:
        _bullet(f"made from {source[0][:-52] if len(source[0]) > 70 else source[0]} (life {source[1][:8]})")


def _heading(text: str) -> None:
    say("")
    say(text)


def _bullet(text: str) -> None:
    say(f"  {safe(text)}")


def _jobs(title: str, jobs: tuple[Row, ...]) -> None:
    if not jobs:
        return
    _heading(title)
    for job in jobs[:MOST_JOBS]:
        say(f"  {safe(str(job.job_key))} {styled(state_cell(job.state))}")
    if len(jobs) > MOST_JOBS:
        _bullet(f"and {len(jobs) - MOST_JOBS} more")


def _worded(value: Any) -> str:
    if value is ABSENT:
        return "not set"
    text = json.dumps(value, ensure_ascii=False, default=str)
    room = window_width()
    return text if room is None else truncate(safe(text), max(room // 2, 20))
