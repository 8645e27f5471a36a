"""`tenuto export`."""

from __future__ import annotations

import csv
import html
import io
import json
import os
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

import click

from tenuto.cli.completions import complete_runs
from tenuto.cli.console import json_text, note, print_json
from tenuto.cli.options import json_option, open_catalogue, workspace_option
from tenuto.errors import NotFound, WorkspaceError
from tenuto.experiments.runs import RunView, plain_run
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.parameters import read_stored
from tenuto.jobs.result_table import ResultReader, by_tags, exact_text, flat_result, result_of
from tenuto.jobs.row import Row, plain_row
from tenuto.jobs.text import counted, size_text
from tenuto.workspace.ports import Files

LARGEST_LOG = 16 << 20
"""Of a longer log the end is written."""
_STYLE = """body{font:15px/1.5 system-ui,sans-serif;margin:2rem;color:#222;background:#fff}
dl{display:grid;grid-template-columns:fit-content(40%) minmax(0,1fr);gap:.1rem 1.2rem}
dt,dd{margin:0;overflow-wrap:anywhere}h1{overflow-wrap:anywhere}
h2{font-size:18px}div{overflow-x:auto}table{border-collapse:collapse;font-size:13px}
th,td{text-align:left;padding:.25rem .7rem;border-bottom:1px solid #ddd}
th{position:sticky;top:0;background:#fff}td{font-variant-numeric:tabular-nums}
.error{color:#b3261e}.done{color:#1f7a43}
@media(prefers-color-scheme:dark){body,th{background:#16181c;color:#ddd}th,td{border-color:#333}a{color:#8ab4f8}}
"""


@click.command()
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@click.argument("target", metavar="[TARGET]", required=False)
@workspace_option
@json_option
def command(run: str, target: str | None, workspace: str | None, as_json: bool) -> None:
    """Write the data of RUN to TARGET, a folder that does not exist yet, or a ZIP if it ends in .zip.

    RUN is EXPERIMENT (its last run), EXPERIMENT/RUN, or a run id; TARGET is EXPERIMENT-RUN.zip by default. It
    holds parameters, results, metrics, logs, what the run was made of, and index.html, which needs no server.
    Files that tasks made are not in it.
    """
    view = open_catalogue(workspace).view
    found = view.run(run)
    target = target or f"{found.experiment_id}-{found.run_id}.zip"
    if os.path.lexists(target):
        raise click.UsageError(f"{target} is there already: name another, or remove it")
    jobs = view.jobs(found)
    if target.endswith(".zip"):
        part = f"{target}.part"
        try:
            with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, content in _files(view, found, jobs):
                    archive.writestr(name, content)
            os.replace(part, target)
        except BaseException:
            if os.path.exists(part):
                os.remove(part)
            raise
        size = os.path.getsize(target)
    else:
        size = 0
        for name, content in _files(view, found, jobs):
            path = os.path.join(target, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as stream:
                size += stream.write(content)
    if as_json:
        print_json({"run": found.name, "target": target, "jobs": len(jobs), "bytes": size})
    else:
        note(f"{target}: {counted(len(jobs), 'job')} of {found.name}, {size_text(size)}")


def _files(view: WorkspaceView, run: RunView, jobs: Sequence[Row]) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file of an export."""
    if not jobs and not run.jobs:
        raise NotFound(f"{run.name} has no jobs to export")
    files, layout = view.machine.files, view.layout
    reader = ResultReader(files, layout)
    plain: list[dict[str, Any]] = []
    lines: list[dict[str, Any]] = []
    logs: dict[str, list[str]] = {}
    for job in jobs:
        paths = layout.job(*job.job_key)
        result = result_of(files, paths, job)
        plain.append(_plain_job(view, job, result))
        parameters = reader.parameters(job.job_key)
        lines += [{**parameters, **row.tags, **flat_result(result)} for row in by_tags(job)]
        kept = {"out.txt": paths.out, "err.txt": paths.err, "metrics.jsonl": paths.metrics}
        outputs = plain[-1]["provenance"].get("outputs") or ()
        results = {one for one in outputs if one.startswith(f"{paths.script_name}.result-")}
        kept |= {name: f"{paths.directory}/{name}" for name in sorted(results)}
        for name, source in kept.items():
            content = _read(files, source, whole=name in results)
            if content:
                logs.setdefault(job.id, []).append(f"jobs/{job.id[:12]}/{name}")
                yield f"jobs/{job.id[:12]}/{name}", content
    environment = _read(files, layout.run(run.experiment_id, run.run_id).environment)
    if environment:
        yield "environment.json", environment
    records = [one["provenance"] for one in plain]
    kept_once = {f"{one['packages']}.json" for one in records if one.get("packages")}
    for name in sorted(kept_once | {f"{one['diff']}.diff" for one in records if one.get("diff")}):
        if content := _read(files, layout.provenance(name)):
            yield f"provenance/{name}", content
    about = {**plain_run(run), "git": view.commits(run)}
    yield "run.json", _json(about)
    yield "jobs.json", _json(plain)
    names = list(dict.fromkeys(name for line in lines for name in line))
    table = [["task", "id", "state", *names]]
    tagged = [job for job in jobs for _ in by_tags(job)]
    for job, line in zip(tagged, lines, strict=True):
        table.append(
            [job.task, job.id, job.state.name.lower(), *(exact_text(line.get(name)) for name in names)]
        )
    written = io.StringIO()
    csv.writer(written).writerows(table)
    yield "results.csv", written.getvalue().encode()
    yield "index.html", _page(run, about, table, logs).encode()


def _plain_job(view: WorkspaceView, job: Row, result: Any) -> dict[str, Any]:
    files, paths = view.machine.files, view.layout.job(*job.job_key)
    marker = json.loads(_read(files, paths.done) or b"{}")
    marker.pop("launch", None)  # it has the variables of the job's environment
    return {
        **plain_row(job, view.machine.clock.now()),
        "parameters": dict(read_stored(files, paths).parameters),
        "result": result,
        "marker": marker or None,
        "provenance": view.record(paths, view.look(job.job_key).marker),
    }


def _read(files: Files, path: str, *, whole: bool = False) -> bytes:
    """The content of a file, of a long one the end unless it is `whole`; nothing if it cannot be read."""
    try:
        found = files.stat(path)
        size = 0 if found is None else found.size
        room = size if whole else LARGEST_LOG
        return files.read_range(path, max(size - room, 0), room)
    except (OSError, WorkspaceError):
        return b""


def _json(value: Any) -> bytes:
    return json_text(value, 1).encode()


def _page(run: RunView, about: dict[str, Any], table: list[list[str]], logs: dict[str, list[str]]) -> str:
    """A page with the results of each task, and links to the logs and metrics beside it."""
    escape = html.escape
    facts = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(exact_text(value))}</dd>"
        for name, value in about.items()
        if value not in (None, "", {}, [])
    )
    by_task: dict[str, list[list[str]]] = {}
    for row in table[1:]:
        by_task.setdefault(row[0], []).append(row)
    sections = "".join(_section(table[0][3:], rows, logs) for rows in by_task.values())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(run.name)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><h1>{escape(run.name)}</h1><dl>{facts}</dl>{sections}</body></html>\n"
    )


def _section(names: list[str], rows: list[list[str]], logs: dict[str, list[str]]) -> str:
    """The jobs of one task: results and what varies as a table, below it what all of them have in common."""
    escape = html.escape
    columns = {name: [row[at] for row in rows] for at, name in enumerate(names, 3)}
    shown = {
        name: cells
        for name, cells in columns.items()
        if any(cells) and (len(set(cells)) > 1 or name.partition(".")[0] == "result")
    }
    common = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(cells[0])}</dd>"
        for name, cells in columns.items()
        if any(cells) and name not in shown
    )
    lines = []
    for at, (_, job_id, state, *_rest) in enumerate(rows):
        links = (f'<a href="{escape(to)}">{escape(to.rpartition("/")[2])}</a>' for to in logs.get(job_id, ()))
        cells = "".join(f"<td>{escape(column[at])}</td>" for column in shown.values())
        marked = f'<td class="{escape(state)}">{escape(state)}</td>'
        lines.append(f"<tr><td>{escape(job_id[:8])}</td>{marked}{cells}<td>{' '.join(links)}</td></tr>")
    head = "".join(f"<th>{escape(name)}</th>" for name in ("id", "state", *shown, "files"))
    title = "the same in all" if len(rows) > 1 else "parameters"
    return (
        f"<h2>{escape(rows[0][0])}</h2><div><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
        + (f"<details><summary>{title}</summary><dl>{common}</dl></details>" if common else "")
    )
