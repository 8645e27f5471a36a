"""`tenuto clean`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial

import click

from tenuto.catalogue import Catalogue
from tenuto.cli import exit_codes
from tenuto.cli.chosen_jobs import Meant, job_options, meant, need_one_of
from tenuto.cli.commands.kill import wait_for_end
from tenuto.cli.completions import complete_jobs
from tenuto.cli.console import note, print_json, table
from tenuto.cli.options import open_catalogue, yes_option
from tenuto.experiments.pruning import askers, steady_users, users
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs import packing
from tenuto.jobs.directories import JobActed, Seen, directory_size, is_real_directory, subdirectories
from tenuto.jobs.drawing import Cell, Column, Styled
from tenuto.jobs.key import JobKey
from tenuto.jobs.removal import delete, drop_files, kill
from tenuto.jobs.row import Row, shown_name
from tenuto.jobs.source import ActedAs
from tenuto.jobs.submission import move, planned_moves
from tenuto.jobs.text import counted, size_text
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobState
from tenuto.workspace import trash
from tenuto.workspace.layout import name_of_directory
from tenuto.workspace.ports import Machine

MOST_SHOWN = 50
_REMEDY = {
    Door.SEARCH: "`tenuto search remove NAME` removes a whole search",
    Door.SERVICE: "the server removes their files by itself, max_age after their end",
}
SPARED = (ActedAs.IN_USE, ActedAs.STALE, ActedAs.REFUSED)


@click.command()
@click.argument("words", metavar="[JOB|GROUP|FILTER]...", nargs=-1, shell_complete=complete_jobs)
@click.option("--orphans", is_flag=True, help="Only finished jobs of no run: their runs were pruned.")
@click.option(
    "--unowned", is_flag=True, help="Only running jobs that no live run waits for; they are stopped."
)
@click.option(
    "--renamed", is_flag=True, help="Move results of renamed tasks, which runs found, to the present names."
)
@click.option("--older", metavar="AGE", help="Only what ended, or was made, longer ago, such as 30d or 12h.")
@click.option("--larger", metavar="SIZE", help="Only directories larger than this, such as 500M.")
@click.option(
    "--files", is_flag=True, help="Delete only the files of tasks: results, parameters and logs stay."
)
@click.option("--pack", is_flag=True, help="Delete nothing: pack ended jobs, into one file of each task.")
@click.option("--unpack", is_flag=True, help="Put packed jobs back into directories.")
@click.option("--prepared", is_flag=True, help="Prepared data (downloads), and not jobs.")
@click.option("--cache", is_flag=True, help="Cached results of methods, and not jobs.")
@yes_option
@job_options
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    orphans: bool,
    unowned: bool,
    renamed: bool,
    older: str | None,
    larger: str | None,
    files: bool,
    pack: bool,
    unpack: bool,
    prepared: bool,
    cache: bool,
    yes: bool,
    kind: str | None,
    workspace: str | None,
    as_json: bool,
) -> int:
    """Delete the directories of jobs, with all they produced: by name, of a group, or those FILTER matches.

    A job that runs, is locked, belongs to a live run, is needed by a running job or was tried again is
    spared; the exit code is 1 if something was. Without --yes nothing is deleted.
    """
    _check(ctx)
    packs = pack or unpack
    older_s, least = _amount(older, _AGES, "30d"), _amount(larger, _SIZES, "1G")
    catalogue = open_catalogue(workspace)
    view = catalogue.view
    if renamed:
        moves = list(planned_moves(view.machine, view.layout))
        acted = [move(view.machine, view.layout, one, really=yes) for one in moves]
        return _told(acted, yes, as_json, "moved")
    if prepared or cache:
        return _told(_shared_data(view, prepared, cache, older_s, least or 0, yes), yes, as_json, "deleted")
    asked = _asked(catalogue, words, orphans, unowned, kind)
    found = [job for job in asked.rows if _is_meant(view, job, older_s, least)]
    own = [job for job in found if job.door is Door.EXPERIMENTS]
    others = [job for job in found if job.door is not Door.EXPERIMENTS]
    spared = _spared(others, asked.named if own or not words else {job.key for job in others}, packs)
    seen = {job.job_key: job.attempt for job in own}
    if packs:
        return _told(
            [*_packed(view, own, seen, pack, yes), *spared], yes, as_json, "packed" if pack else "unpacked"
        )
    used = partial(askers if orphans else users, view)
    done = [job.job_key for job in own if job.state is JobState.DONE]
    if done and not (files or as_json):
        are = "is" if len(done) == 1 else "are"
        note(f"{counted(len(done), 'job')} of {len(own)} {are} done, with results")
    if files:
        acted = drop_files(view, done, really=yes, used=used, seen=seen)
    elif unowned:
        acted = _end_and_delete(view, seen, yes)
    else:
        acted = delete(view, seen, really=yes, used=used, seen=seen)
    return _told([*acted, *spared], yes, as_json, "emptied" if files else "deleted")


def _asked(
    catalogue: Catalogue, words: tuple[str, ...], orphans: bool, unowned: bool, kind: str | None
) -> Meant:
    """The jobs that words stand for; with a flag, those among them, or without words all, that it means."""
    asked = meant(catalogue, words, every=True, kind=kind) if words or not (orphans or unowned) else Meant([])
    if not (orphans or unowned):
        return asked
    known = {row.key for row in asked.rows}
    jobs = catalogue.view.orphans() if orphans else catalogue.view.unowned()
    found = [row for row in jobs if kind in (None, row.door.kind) and (not words or row.key in known)]
    return asked._replace(rows=found)


def _spared(others: list[Row], named: Collection[str], packs: bool) -> list[JobActed]:
    """The jobs of other doors, which say why they stay: one by one if one was named, else together."""
    remedies = dict.fromkeys(_REMEDY, "only jobs of experiments are packed") if packs else _REMEDY
    refused = [job for job in others if job.key in named]
    for door in {job.door for job in others} if not refused else ():
        note(f"{sum(job.door is door for job in others)} of a {door.kind} stay: {remedies[door]}")
    return [JobActed(JobKey(job.task, job.id), ActedAs.REFUSED, remedies[job.door]) for job in refused]


def _packed(view: WorkspaceView, jobs: list[Row], seen: Seen, pack: bool, really: bool) -> list[JobActed]:
    if not pack:
        return packing.unpack(view, seen, really=really)
    ended = [job.job_key for job in jobs if job.state.finished()]
    return packing.pack(view, ended, really=really, used=steady_users(view), seen=seen)


def _check(ctx: click.Context) -> None:
    """Refuses options that do not go together, and a command that says of no job that it means it."""
    given = {name for name, value in ctx.params.items() if value}
    remedy = "say which: a JOB, a FILTER such as state=error, --older 30d, or --orphans"
    need_one_of(ctx, given & {"words", *_CHOOSING}, remedy)
    by_job = given & {"words", "orphans", "unowned"}
    if "files" in given and given & {"unowned", "renamed"}:
        raise click.UsageError("--files is for jobs that are done, and goes with no such option", ctx)
    packs_or_unpacks = given & {"pack", "unpack"}
    if packs_or_unpacks and (
        len(packs_or_unpacks) > 1 or given & {"files", "unowned", "renamed", "prepared", "cache"}
    ):
        raise click.UsageError("--pack and --unpack go with a FILTER, --orphans, --older and --larger", ctx)
    if given & {"prepared", "cache"} and (by_job or given & {"renamed", "files"}):
        raise click.UsageError("--prepared and --cache are about no jobs: choose by --older, --larger", ctx)
    if "renamed" in given and (by_job or given & {"older", "larger"}):
        raise click.UsageError("--renamed goes alone: it deletes nothing", ctx)
    if given >= {"orphans", "unowned"}:
        raise click.UsageError("--orphans or --unowned, not both: what has ended does not run", ctx)


_CHOOSING = ("orphans", "unowned", "renamed", "older", "larger", "prepared", "cache", "pack", "unpack")
_AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SIZES = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def _amount(given: str | None, units: Mapping[str, float], example: str) -> float | None:
    """A number with a unit, as its smallest unit; a word that is none is refused."""
    if given is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]*)", given.strip())
    unit = found[2] if found is not None else "?"
    unit = unit.upper().removesuffix("B") if "G" in units else unit.lower()
    if found is None or unit not in units:
        raise click.BadParameter(f"{given!r} is none; write it as in {example}")
    return float(found[1]) * units[unit]


def _is_meant(view: WorkspaceView, job: Row, older_s: float | None, larger: float | None) -> bool:
    """True for a job that ended long enough ago, and is large enough."""
    since = job.ended or job.started or job.submitted or view.machine.clock.now()
    age_s = (view.machine.clock.now() - since).total_seconds()
    if older_s is not None and age_s <= older_s:
        return False
    if larger is None or job.door is not Door.EXPERIMENTS:
        return larger is None
    return directory_size(view.machine.files, view.layout.job(*job.job_key).directory) > larger


def _shared_data(
    view: WorkspaceView, prepared: bool, cache: bool, older_s: float | None, larger: float, really: bool
) -> list[JobActed]:
    """Deletes prepared or cached files, unless a run is open or a job runs that may read it."""
    machine, layout, files = view.machine, view.layout, view.machine.files
    is_used = any(run.live for run in view.all_runs()) or any(view.unowned())
    partials = subdirectories(files, layout.partials)
    prepares = {one for one in partials if is_real_directory(files, f"{layout.partials}/{one}/prepared")}
    found: dict[JobKey, list[str]] = {}
    for one in prepares if prepared else ():
        name = name_of_directory(one) or one
        for identity in subdirectories(files, f"{layout.partials}/{one}/prepared"):
            mark = f"{layout.config}/{one}/{identity}"
            found[JobKey(name, identity)] = [mark, f"{layout.partials}/{one}/prepared/{identity}"]
    for one in subdirectories(files, layout.config) if cache else ():
        for identity in subdirectories(files, f"{layout.config}/{one}") if one not in prepares else ():
            found[JobKey(name_of_directory(one) or one, identity)] = [f"{layout.config}/{one}/{identity}"]
    acted = []
    for key, paths in found.items():
        size = sum(directory_size(files, path) for path in paths)
        if size < larger or (older_s is not None and _age_s(machine, paths) <= older_s):
            continue
        if is_used:
            acted.append(JobActed(key, ActedAs.IN_USE, "a run is open, or a job runs, that may read it"))
            continue
        for path in paths if really else ():
            trash.discard(machine, layout, path)
            with suppress(FileNotFoundError):  # the record of its sources lies beside it
                files.remove(f"{path}.json")
        acted.append(JobActed(key, ActedAs.DELETED if really else ActedAs.WOULD_DELETE, size=size))
    if really:
        trash.empty(machine, layout)
    return acted


def _age_s(machine: Machine, paths: list[str]) -> float:
    """How long ago the newest of what lies in directories changed."""
    newest = 0
    for path in paths:
        with suppress(FileNotFoundError):
            for name in machine.files.list(path):
                found = machine.files.stat(f"{path}/{name}")
                newest = max(newest, 0 if found is None else found.changed)
    return machine.clock.now().timestamp() - newest / 1e9


def _told(acted: list[JobActed], really: bool, as_json: bool, what: str) -> int:
    if as_json:
        print_json([_plain(one) for one in acted])
    else:
        _show(acted, really, what)
    return exit_codes.FAILED if any(one.outcome in SPARED for one in acted) else exit_codes.OK


def _end_and_delete(view: WorkspaceView, seen: Seen, really: bool) -> list[JobActed]:
    """Stops jobs of no live run and deletes them; a job that a run waits for by now is spared."""
    if not really:
        sizes = {key: directory_size(view.machine.files, view.layout.job(*key).directory) for key in seen}
        return [
            JobActed(key, ActedAs.WOULD_DELETE, "it would be stopped first", size=sizes[key]) for key in seen
        ]
    for key, attempt in seen.items():
        if key not in view.listed(live_only=True):
            wait_for_end(kill(view, key, "cleaned up: no run waited for it", attempt=attempt))
    return delete(view, seen, really=True, used=partial(users, view), seen=seen)


def _plain(one: JobActed) -> dict[str, object]:
    return {
        "id": one.key.job_id,
        "name": shown_name(one.key.job_id),
        "task": one.key.task_id,
        "outcome": one.outcome.value,
        "detail": one.detail,
        "bytes": one.size,
    }


def _show(acted: list[JobActed], really: bool, what: str) -> None:
    if not acted:
        nothing = "nothing to move: no run has met a renamed task"
        verb = {"packed": "pack", "unpacked": "unpack"}.get(what, "delete")
        note(nothing if what == "moved" else f"nothing to {verb}")
        return
    spared = [one for one in acted if one.outcome in SPARED]
    rest = [one for one in acted if one.outcome not in SPARED]
    shown = (spared + rest)[:MOST_SHOWN]
    rows: list[list[Cell]] = [
        [
            shown_name(one.key.job_id),
            one.key.task_id,
            size_text(one.size) if one.size else "",
            Styled(one.outcome.words, "yellow" if one.outcome in SPARED else None),
            one.detail,
        ]
        for one in shown
    ]
    table(
        [
            Column("id"),
            Column("task", least=8),
            Column("size", right=True),
            Column("outcome", least=6),
            Column("", least=8, rank=1),
        ],
        rows,
    )
    if len(acted) > len(shown):
        note(f"and {len(acted) - len(shown)} more")
    total = sum(one.size for one in acted)
    size = f", {size_text(total)}" if total else ""
    count = sum(one.outcome.acts for one in acted)
    jobs = counted(count, "job")
    if not count:
        note(f"nothing {'was' if really else 'would be'} {what}; {len(spared)} spared")
    elif really:
        note(f"{jobs} {what}{size}; {len(spared)} spared")
    else:
        note(f"{jobs}{size} would be {what}; {len(spared)} spared. Add --yes to do it")
