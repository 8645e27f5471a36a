"""`tenuto export`."""

from __future__ import annotations

import html
import json
import os
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import click

from tenuto.cli.completions import complete_runs
from tenuto.cli.console import csv_text, json_text, note, print_json
from tenuto.cli.options import common_options, open_catalogue
from tenuto.errors import NotFound, WorkspaceError
from tenuto.experiments.runs import RunView, plain_run
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.parameters import read_stored
from tenuto.jobs.result_table import ResultReader, by_tags, exact_text, flat_result, result_of
from tenuto.jobs.row import Row, plain_row
from tenuto.jobs.text import counted, size_text
from tenuto.workspace.ports import Files

_ONCE = {"packages": "json", "diff": "diff"}
"""What several jobs may share of a record, and how the file ends that it names."""
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
@common_options
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
                    entry = zipfile.ZipInfo(name, time.localtime()[:6])
                    entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o600 << 16
                    with archive.open(entry, "w", force_zip64=True) as stream:
                        for part_of_it in content:
                            stream.write(part_of_it)
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
            with open(path, "wb") as file:
                size += sum(map(file.write, content))
    if as_json:
        print_json({"run": found.name, "target": target, "jobs": len(jobs), "bytes": size})
    else:
        note(f"{target}: {counted(len(jobs), 'job')} of {found.name}, {size_text(size)}")


def _files(view: WorkspaceView, run: RunView, jobs: Sequence[Row]) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Name and content of each file of an export; what tells of all jobs comes from files on the disk."""
    if not jobs and not run.jobs:
        raise NotFound(f"{run.name} has no jobs to export")
    files, layout = view.machine.files, view.layout
    reader = ResultReader(files, layout)
    logs: dict[str, list[str]] = {}
    provenance: set[str] = set()
    with tempfile.TemporaryFile() as written, tempfile.TemporaryFile() as scratch:
        table = _Table(scratch)
        for place, job in enumerate(jobs):
            paths = layout.job(*job.job_key)
            result = result_of(files, paths, job)
            plain = _plain_job(view, job, result)
            written.write(b",\n " if place else b"[\n ")
            written.write(_json(plain).replace(b"\n", b"\n "))
            parameters = reader.parameters(job.job_key)
            for row in by_tags(job):
                table.add(job, {**parameters, **row.tags, **flat_result(result)})
            record = plain["provenance"]
            provenance |= {f"{record[kind]}.{end}" for kind, end in _ONCE.items() if record.get(kind)}
            kept = {"out.txt": paths.out, "err.txt": paths.err, "metrics.jsonl": paths.metrics}
            outputs = record.get("outputs") or ()
            results = {one for one in outputs if one.startswith(f"{paths.script_name}.result-")}
            kept |= {name: f"{paths.directory}/{name}" for name in sorted(results)}
            for name, source in kept.items():
                content = _read(files, source, whole=name in results)
                if content:
                    logs.setdefault(job.id, []).append(f"jobs/{job.id[:12]}/{name}")
                    yield f"jobs/{job.id[:12]}/{name}", (content,)
        written.write(b"\n]" if jobs else b"[]")
        environment = _read(files, layout.run(run.experiment_id, run.run_id).environment)
        if environment:
            yield "environment.json", (environment,)
        for name in sorted(provenance):
            if content := _read(files, layout.provenance(name)):
                yield f"provenance/{name}", (content,)
        about = {**plain_run(run), "git": view.commits(run)}
        yield "run.json", (_json(about),)
        written.seek(0)
        yield "jobs.json", iter(lambda: written.read(1 << 20), b"")
        yield "results.csv", table.csv()
        yield "index.html", (part.encode() for part in _page(run, about, table, logs))


class _Table:
    """The lines of a table of results, kept in a file; of each column is known where it has values."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.names: dict[str, None] = {}
        self.places: dict[str, list[int]] = {}
        """task -> where its lines begin."""
        self._cells: dict[str, dict[str, tuple[str, int]]] = {}
        """task -> column -> the one value that all lines so far with a value have, and how many these are."""
        self._varying: dict[str, set[str]] = {}

    def add(self, job: Row, line: Mapping[str, Any]) -> None:
        cells = {name: text for name, value in line.items() if (text := exact_text(value))}
        self.names.update(dict.fromkeys(line))
        self.places.setdefault(job.task, []).append(self._file.tell())
        self._file.write(json.dumps([job.task, job.id, job.state.name.lower(), cells]).encode() + b"\n")
        known = self._cells.setdefault(job.task, {})
        for name, text in cells.items():
            first, number = known.get(name, (text, 0))
            known[name] = first, number + 1
            if first != text:
                self._varying.setdefault(job.task, set()).add(name)

    def common(self, task: str) -> dict[str, str]:
        """What all lines of a task have in common, but for results."""
        lines, varying = len(self.places[task]), self._varying.get(task, ())
        known = self._cells.get(task, {})
        return {
            name: known[name][0]
            for name in self.names
            if name in known
            and name not in varying
            and known[name][1] == lines
            and name.partition(".")[0] != "result"
        }

    def shown(self, task: str) -> list[str]:
        """The other columns in which the task has values."""
        common = self.common(task)
        return [name for name in self.names if name in self._cells[task] and name not in common]

    def lines(self, task: str) -> Iterator[tuple[str, str, dict[str, str]]]:
        """The id, the state and the cells of each line of a task."""
        for place in self.places[task]:
            self._file.seek(place)
            _, job_id, state, cells = json.loads(self._file.readline())
            yield job_id, state, cells

    def csv(self) -> Iterator[bytes]:
        """The whole table."""
        yield csv_text([["task", "id", "state", *self.names]]).encode()
        self._file.seek(0)
        for line in self._file:
            task, job_id, state, cells = json.loads(line)
            yield csv_text([[task, job_id, state, *(cells.get(name, "") for name in self.names)]]).encode()


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


def _page(run: RunView, about: dict[str, Any], table: _Table, logs: dict[str, list[str]]) -> Iterator[str]:
    """A page with the results of each task, and links to the logs and metrics beside it."""
    escape = html.escape
    facts = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(exact_text(value))}</dd>"
        for name, value in about.items()
        if value not in (None, "", {}, [])
    )
    yield (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(run.name)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><h1>{escape(run.name)}</h1><dl>{facts}</dl>"
    )
    for task in table.places:
        yield from _section(task, table, logs)
    yield "</body></html>\n"


def _section(task: str, table: _Table, logs: dict[str, list[str]]) -> Iterator[str]:
    """The jobs of one task: results and what varies as a table, below it what all of them have in common."""
    escape = html.escape
    shown = table.shown(task)
    head = "".join(f"<th>{escape(name)}</th>" for name in ("id", "state", *shown, "files"))
    yield f"<h2>{escape(task)}</h2><div><table><thead><tr>{head}</tr></thead><tbody>"
    for job_id, state, cells in table.lines(task):
        links = (f'<a href="{escape(to)}">{escape(to.rpartition("/")[2])}</a>' for to in logs.get(job_id, ()))
        texts = "".join(f"<td>{escape(cells.get(name, ''))}</td>" for name in shown)
        marked = f'<td class="{escape(state)}">{escape(state)}</td>'
        yield f"<tr><td>{escape(job_id[:8])}</td>{marked}{texts}<td>{' '.join(links)}</td></tr>"
    yield "</tbody></table></div>"
    common = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(cell)}</dd>" for name, cell in table.common(task).items()
    )
    if common:
        title = "the same in all" if len(table.places[task]) > 1 else "parameters"
        yield f"<details><summary>{title}</summary><dl>{common}</dl></details>"
