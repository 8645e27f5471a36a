"""`tenuto search`: what only a search has."""

from __future__ import annotations

import csv
import json as jsons
import os.path
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click

from tenuto.cli import exit_codes
from tenuto.cli.console import csv_text, json_text, print_json
from tenuto.cli.main import CommandGroup
from tenuto.cli.options import common_options, looks_like_workspace
from tenuto.cli.session import tell
from tenuto.errors import NotFound, SearchError, SettingsError
from tenuto.jobs.text import safe, there_are, truncate
from tenuto.lifecycle.evolution import SearchEnd
from tenuto.search.export import artifacts_of, best_rows, candidate_rows, change_of, flat_rows, lineage
from tenuto.search.manual_candidate import add_candidate, add_table
from tenuto.search.opening import FILE_NAME, default_workspace, has_searches, open_database
from tenuto.search.rows import SearchRow
from tenuto.search.search_overview import overview, shape_of, told_cells, workers
from tenuto.search.store import Store
from tenuto.settings import Settings, load_settings
from tenuto.settings.search import SEARCH_SECTIONS
from tenuto.workspace.layout import Layout

ARTIFACT_COLUMNS = 200


@click.group(cls=CommandGroup)
def command() -> None:
    """What only a search has: its best, its workers, candidates of your own, its end.

    `tenuto status`, `jobs`, `why`, `kill`, `retry`, `pause` and `resume` know searches, too: see
    `tenuto status NAME` and `tenuto why NAME#N`.

    Exit codes: 0 done; 1 nothing was changed; 2 wrong usage; 3 no such search.
    """


def workspace_path(given: str | None, settings: Settings) -> Path:
    """The workspace that a command is about: given, around the working directory, or from the settings."""
    if given is not None:
        return Path(settings.workspace(given)).absolute()
    here = Path.cwd()
    for path in (here, *here.parents):
        if (path / FILE_NAME).exists() or looks_like_workspace(path):
            return path
    try:
        return default_workspace(settings)
    except SettingsError:
        return here


@contextmanager
def opened(workspace: str | None, name: str | None = None) -> Iterator[Store]:
    """The searches of a workspace; `NotFound` if there are none, or none of that name."""
    settings = load_settings(foreign=SEARCH_SECTIONS)
    path = workspace_path(workspace, settings)
    if not has_searches(settings, path):
        raise NotFound(
            f"{path} has no searches: give another workspace with -w, or run one with tenuto evolve"
        )
    database = open_database(settings, path)
    try:
        store = Store(database)
        if name is not None and store.search(name) is None:
            known = there_are(name, store.names())
            raise NotFound(f"there is no search {name!r} in {database.shown_url}; {known}")
        yield store
    finally:
        database.close()


@command.command()
@click.argument("name")
@click.option("--cell", metavar="I,J", help="Of the cell at this position, from 0.")
@common_options
def best(name: str, cell: str | None, workspace: str | None, as_json: bool) -> None:
    """Show the best candidate of a search, or of one cell of its archive; of several objectives all that no
    other beats (with --json a list)."""
    with opened(workspace, name) as store:
        rows = best_rows(store, name, None if cell is None else _in_cell(store, name, cell))
        if not rows:
            raise NotFound(f"{name}: no candidate there was evaluated yet")
        artifacts = artifacts_of(store, name, rows[0]["number"]) if len(rows) == 1 else {}
        here = os.path.dirname(store.database.shown_url) if store.database.is_sqlite else ""
    if as_json:
        print_json(rows if "objectives" in rows[0] else rows[0], None)
        return
    for row in rows:
        if row["directory"] is not None:  # where it lies; of a shared database, which worker has it
            row = {**row, "directory": os.path.join(here, row["directory"])}
        for key in _BEST:
            if row.get(key) is not None:
                click.echo(f"{key:<12}{safe(jsons.dumps(row[key]))}")
    for key, text in artifacts.items():
        click.echo(f"{'artifact':<12}{truncate(safe(f'{key}: {text}'), ARTIFACT_COLUMNS)}")


_BEST = (
    "number",
    "objective",
    "objectives",
    "measures",
    "values",
    "solution",
    "parent",
    "cost",
    "directory",
    "worker",
)


def _in_cell(store: Store, name: str, text: str) -> set[int]:
    """The candidates of a cell, as the archive is divided now."""
    search = store.search(name)
    assert search is not None
    cell = _cell(search, text)
    told = told_cells(store.database, name, search.definition.get("sampler") or {})[1]
    return {one.number for one in told if one.cell == cell}


def _cell(search: SearchRow, text: str) -> int:
    try:
        position = [int(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--cell {text}: give whole numbers, such as 3,4") from None
    shape = shape_of(search)
    if not shape:
        raise click.UsageError(f"--cell {text}: {search.id} has no archive of several cells")
    if len(position) != len(shape) or any(
        not 0 <= at < size for at, size in zip(position, shape, strict=True)
    ):
        raise click.UsageError(f"--cell {text}: the archive has {' x '.join(map(str, shape))} cells, from 0")
    cell = 0
    for at, size in zip(position, shape, strict=True):
        cell = cell * size + at
    return cell


@command.command("lineage")
@click.argument("name")
@click.argument("number", type=click.IntRange(1), required=False)
@click.option("--no-diff", is_flag=True, help="Only numbers and scores.")
@common_options
def show_lineage(name: str, number: int | None, no_diff: bool, workspace: str | None, as_json: bool) -> None:
    """Show what a candidate descends from, the first one first: scores, and of programs the changes.

    By default of the best candidate.
    """
    with opened(workspace, name) as store:
        if number is None:
            best = overview(store, name)["best"]
            if best is None:
                raise NotFound(f"{name}: no candidate was evaluated yet")
            number = best["number"]
        rows = lineage(store, name, number)
    if not rows:
        raise NotFound(f"{name} has no candidate {number}")
    kept = [{key: row[key] for key in _LINEAGE} for row in rows]
    for before, row, shown in zip([None, *rows], rows, kept, strict=False):
        shown["diff"] = None if no_diff else change_of(before, row)
    if as_json:
        print_json(kept, None)
        return
    for row in kept:
        worth = row["objective"] if row["objective"] is not None else row["message"] or row["status"]
        click.echo(safe(f"#{row['number']}  {worth}  {row['solution'] or jsons.dumps(row['values'])}"))
        for line in (row["diff"] or "").splitlines():
            click.echo(f"    {safe(line)}")


_LINEAGE = ("number", "status", "objective", "measures", "cost", "parent", "solution", "values", "message")


@command.command()
@click.argument("name")
@click.option("--format", "form", type=click.Choice(["jsonl", "csv"]), default="jsonl", show_default=True)
@common_options
def export(name: str, form: str, workspace: str | None, as_json: bool) -> None:
    """Print every candidate of a search, by number; as CSV with a column for each parameter and metric.

    With --json: one list of them.
    """
    with opened(workspace, name) as store:
        rows = candidate_rows(store, name) if as_json or form == "jsonl" else flat_rows(store, name)
    if as_json:
        print_json(rows, None)
        return
    if form == "jsonl":
        for row in rows:
            print_json(row, None)
        return
    is_space = all(isinstance(row["values"], dict) for row in rows)
    nested = ("measures", "metrics", *(("values",) if is_space else ()))
    shown = [key for key in (rows[0] if rows else ("number",)) if key not in nested]
    cells = ([json_text(v) if isinstance(v := row.get(k), dict | list) else v for k in shown] for row in rows)
    click.echo(csv_text([shown, *cells]), nl=False)


@command.command("workers")
@common_options
def list_workers(workspace: str | None, as_json: bool) -> None:
    """List the workers of the database, and when each was last seen."""
    with opened(workspace) as store:
        found = workers(store)
    if as_json:
        print_json(found, None)
        return
    if not found:
        tell("no worker is at work")
    for one in found:
        click.echo(
            f"{safe(one['name'])}  {one['slots']} slots, {one['running']} running, seen {one['seen_s']:.0f} "
            f"s ago, {safe(str(one['workspace']))}"
        )


@command.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do it; without this, only say what would happen.")
@common_options
def remove(name: str, yes: bool, workspace: str | None, as_json: bool) -> int:
    """Remove a search and its candidates from the database; the directories of jobs stay."""
    with opened(workspace, name) as store:
        scheduled = overview(store, name)["scheduled"]
        if yes:
            store.remove(name)
    if as_json:
        print_json({"search": name, "candidates": scheduled, "removed": yes}, None)
    else:
        would = f"would remove {safe(name)} with {scheduled} candidates; do it with --yes"
        tell(f"{safe(name)} is removed" if yes else would)
    return exit_codes.OK if yes else exit_codes.FAILED


def _changed(as_json: bool, name: str, is_changed: bool, done: str, why: str, **more: int) -> int:
    """Tells the outcome of an action on a search, or `why` there was none; the exit code."""
    if as_json:
        print_json({"search": name, **more, "changed": is_changed}, None)
    else:
        tell(f"{safe(name)}: {done if is_changed else f'nothing was changed: {why}'}")
    return exit_codes.OK if is_changed else exit_codes.FAILED


@command.command()
@click.argument("name")
@common_options
def drain(name: str, workspace: str | None, as_json: bool) -> int:
    """End a search: its waiting jobs are cancelled, its running jobs waited for."""
    with opened(workspace, name) as store:
        is_changed = store.drain(name, SearchEnd.STOPPED, "drained by a person")
        why = f"it is {overview(store, name)['state']} already"
    return _changed(as_json, name, is_changed, "ends when what runs has ended", why)


@command.command()
@click.argument("name")
@click.argument("number", type=click.IntRange(1))
@click.argument("value", type=int)
@common_options
def priority(name: str, number: int, value: int, workspace: str | None, as_json: bool) -> int:
    """Give a candidate that waits another priority: the highest starts next."""
    with opened(workspace, name) as store:
        is_changed = store.set_priority(name, number, value)
        found = lineage(store, name, number)
    why = f"candidate {number} is {found[-1]['status']}" if found else f"it has no candidate {number}"
    done = f"candidate {number} has priority {value}"
    return _changed(as_json, name, is_changed, done, why, candidate=number, priority=value)


@command.command()
@click.argument("name")
@click.option("-c", "values", multiple=True, metavar="KEY=VALUE", help="A parameter, its value as JSON.")
@click.option(
    "--csv", "table", type=click.File(encoding="utf-8-sig"), help="A table, its columns by name; - for stdin."
)
@click.option("--priority", type=int, default=0, show_default=True, help="The highest starts next.")
@common_options
def add(
    name: str,
    values: tuple[str, ...],
    table: IO[str] | None,
    priority: int,
    workspace: str | None,
    as_json: bool,
) -> None:
    """Add candidates of your own to a search; a value is JSON, or a text. Of programs: -c commit=BRANCH.

    A row of --csv that has an `objective` is told with it and not evaluated; rows that the search has already
    are skipped. What `tenuto search export --format csv` printed is read as it is.
    """
    if (table is None) == (not values):
        raise click.UsageError("give either -c KEY=VALUE for one candidate, or --csv FILE for several")
    settings = load_settings(foreign=SEARCH_SECTIONS)
    layout = Layout(str(workspace_path(workspace, settings)))
    with opened(workspace, name) as store:
        search = store.search(name)
        assert search is not None
        if table is not None:
            try:
                reader = csv.DictReader(table)
                reader.fieldnames = names = [one.strip() for one in reader.fieldnames or ()]
                if len(set(names)) < len(names) or not names:
                    raise SearchError(f"--csv {table.name}: each column has a name of its own, not {names}")
                told, asked, skipped = add_table(store, search, layout, reader, priority)
            except (UnicodeDecodeError, csv.Error) as error:
                raise SearchError(f"--csv {table.name}: it is no table in UTF-8: {error}") from None
            words = f"added {told} with their outcomes, {asked} to be evaluated, {skipped} skipped"
            done: dict[str, int] = {"told": told, "asked": asked, "skipped": skipped}
        else:
            number = add_candidate(store, search, layout, dict(map(_pair, values)), priority)
            words, done = f"candidate {number} is added", {"number": number}
    if as_json:
        print_json({"search": name, **done}, None)
    else:
        tell(f"{safe(name)}: {words}")


def _pair(text: str) -> tuple[str, Any]:
    key, sign, value = text.partition("=")
    if not sign:
        raise click.UsageError(f"-c {text}: write key=value")
    try:
        return key, jsons.loads(value)
    except ValueError:
        return key, value
