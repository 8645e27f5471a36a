"""`tenuto diff`."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import click

from tenuto.cli.completions import complete_runs
from tenuto.cli.console import print_json, say
from tenuto.cli.options import common_options, open_catalogue
from tenuto.experiments.runs import RunView, by_age
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.parameters import ABSENT, Changed, changed, plain_side, read_stored
from tenuto.jobs.result_table import exact_text, flat_result, result_of
from tenuto.jobs.row import Row
from tenuto.jobs.text import counted, safe
from tenuto.lifecycle.states import JobState
from tenuto.tasks.tags import tag_words

MOST_SHOWN = 30


class Pair(NamedTuple):
    """Two jobs of one task and the same tags, one of each run."""

    first: Row
    second: Row
    parameters: list[Changed]
    results: list[Changed]


@click.command()
@click.argument("first", metavar="RUN", shell_complete=complete_runs)
@click.argument("second", metavar="RUN", shell_complete=complete_runs)
@common_options
def command(first: str, second: str, workspace: str | None, as_json: bool) -> None:
    """Compare two runs: which jobs they share, and in which parameters, code and results the others differ.

    RUN is EXPERIMENT (its last run), EXPERIMENT/RUN, or a run id. Jobs are paired by their task and tags.
    """
    view = open_catalogue(workspace).view
    runs = view.run(first), view.run(second)
    here, there = ({job.id: job for job in view.jobs(run)} for run in runs)
    shared = here.keys() & there.keys()
    left = [job for job in here.values() if job.id not in shared]
    right = [job for job in there.values() if job.id not in shared]
    pairs = []
    for job in list(left):
        other = next((one for one in right if _name(one) == _name(job)), None)
        if other is not None:
            left.remove(job)
            right.remove(other)
            pairs.append(_pair(view, job, other))
    code = _code(view, *runs)
    if as_json:
        print_json(
            {
                "runs": [run.name for run in runs],
                "same": len(shared),
                "code": [_plain(one) for one in code],
                "changed": [_plain_pair(pair) for pair in pairs],
                "only_first": [{"id": job.id, "task": job.task, "tags": dict(job.tags)} for job in left],
                "only_second": [{"id": job.id, "task": job.task, "tags": dict(job.tags)} for job in right],
            }
        )
        return
    say(f"{safe(runs[0].name)} and {safe(runs[1].name)}: {counted(len(shared), 'job')} in both")
    older = min(runs, key=by_age)
    again = [job for one in shared if _was_run_after(older, job := there[one])]
    if again:
        was = "was" if len(again) == 1 else "were"
        say(f"{len(again)} of them {was} run again after {safe(older.name)}, whose results are not kept")
    for one in code:
        say(f"code: {safe(one.path)} {_arrow(one)}")
    for pair in pairs[:MOST_SHOWN]:
        say(f"{safe(' '.join(_name(pair.first)))}: {pair.first.name} and {pair.second.name}")
        for one in (*pair.parameters, *pair.results):
            say(f"  {safe(one.path)} {_arrow(one)}")
    for run, jobs in zip(runs, (left, right), strict=True):
        for job in jobs[:MOST_SHOWN]:
            say(f"only in {safe(run.name)}: {job.name} {safe(' '.join(_name(job)))}")
        if len(jobs) > MOST_SHOWN:
            say(f"and {len(jobs) - MOST_SHOWN} more only in {safe(run.name)}")
    if len(pairs) > MOST_SHOWN:
        say(f"and {len(pairs) - MOST_SHOWN} more that differ; --json shows all")


def _was_run_after(run: RunView, job: Row) -> bool:
    return run.ended is not None and job.started is not None and job.started > run.ended


def _name(job: Row) -> tuple[str, str]:
    return job.task, tag_words(job.tags)


def _pair(view: WorkspaceView, first: Row, second: Row) -> Pair:
    files, layout = view.machine.files, view.layout
    stored = [read_stored(files, layout.job(*job.job_key)) for job in (first, second)]
    results = [
        flat_result(result_of(files, layout.job(*job.job_key), job)) if job.state is JobState.DONE else {}
        for job in (first, second)
    ]
    return Pair(first, second, changed(*stored), _differing(*results))


def _differing(here: dict[str, Any], there: dict[str, Any]) -> list[Changed]:
    found = (Changed(name, here.get(name, ABSENT), there.get(name, ABSENT)) for name in {**here, **there})
    return [one for one in found if one.here != one.there]


def _code(view: WorkspaceView, first: RunView, second: RunView) -> list[Changed]:
    """The commits and packages in which the environments of two runs differ."""
    found = []
    for run in (first, second):
        try:
            raw = view.machine.files.read(view.layout.run(run.experiment_id, run.run_id).environment, 4 << 20)
            content = json.loads(raw)
        except (OSError, ValueError):
            content = {}
        packages = content.get("packages", {})
        found.append({**view.commits(run), **(packages if isinstance(packages, dict) else {})})
    return _differing(*found)


def _arrow(one: Changed) -> str:
    here, there = ("not set" if side is ABSENT else safe(exact_text(side)) for side in (one.here, one.there))
    return f"{here} -> {there}"


def _plain(one: Changed) -> dict[str, Any]:
    return {"name": one.path, "first": plain_side(one.here), "second": plain_side(one.there)}


def _plain_pair(pair: Pair) -> dict[str, Any]:
    return {
        "task": pair.first.task,
        "tags": dict(pair.first.tags),
        "ids": [pair.first.id, pair.second.id],
        "parameters": [_plain(one) for one in pair.parameters],
        "results": [_plain(one) for one in pair.results],
    }
