"""`tenuto runs`."""

from __future__ import annotations

import click

from tenuto.cli import exit_codes
from tenuto.cli.commands.jobs import show_jobs, varying_names
from tenuto.cli.completions import complete_runs
from tenuto.cli.console import moment, note, print_json, say, table
from tenuto.cli.main import CommandGroup
from tenuto.cli.options import common_options, open_catalogue, open_workspace, yes_option
from tenuto.cli.program import hint
from tenuto.errors import ExperimentLocked, NotFound
from tenuto.experiments.pruning import prune_runs
from tenuto.experiments.run_record import RunState, add_tags, remove_tags
from tenuto.experiments.runs import RunView, plain_run
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.drawing import Cell, Column, Styled
from tenuto.jobs.row import plain_row
from tenuto.jobs.text import duration, energy, safe, size_text, there_are
from tenuto.lifecycle.states import JobState
from tenuto.settings import load_settings

_COLOURS = {RunState.RUNNING: "cyan", RunState.DONE: "green", RunState.FAILED: "red"}


@click.group(cls=CommandGroup, invoke_without_command=True)
@common_options
@click.pass_context
def command(ctx: click.Context, workspace: str | None, as_json: bool) -> None:
    """List, show, tag and prune the runs of experiments. Without a subcommand: list them all."""
    if ctx.invoked_subcommand is None:
        _list(open_workspace(workspace), None, as_json)
    elif workspace is not None or as_json:
        raise click.UsageError(f"put the options after the word {ctx.invoked_subcommand!r}", ctx)


@command.command("list")
@click.argument("experiment", required=False)
@click.option("--tag", "tag", metavar="TAG", help="Only runs with this tag.")
@common_options
def list_command(experiment: str | None, tag: str | None, workspace: str | None, as_json: bool) -> None:
    """List the runs of EXPERIMENT, or of all, newest first."""
    _list(open_workspace(workspace), experiment, as_json, tag)


@command.command("tag")
@click.argument("run", shell_complete=complete_runs)
@click.argument("tags", nargs=-1, required=True)
@common_options
def tag_command(run: str, tags: tuple[str, ...], workspace: str | None, as_json: bool) -> None:
    """Give RUN the words TAGS to find it by. A tagged run is never pruned."""
    view = open_workspace(workspace)
    found = view.run(run)
    add_tags(view.machine.files, view.layout.run(found.experiment_id, found.run_id), tags)
    every = sorted({*found.tags, *tags})
    if as_json:
        print_json({"run": found.name, "tags": every})
        return
    note(f"{safe(found.name)} is tagged {', '.join(map(safe, every))}")


@command.command("untag")
@click.argument("run", shell_complete=complete_runs)
@click.argument("tags", nargs=-1, required=True)
@common_options
def untag_command(run: str, tags: tuple[str, ...], workspace: str | None, as_json: bool) -> int:
    """Take the words TAGS from RUN; the exit code is 1 if it did not have them all."""
    view = open_workspace(workspace)
    found = view.run(run)
    paths = view.layout.run(found.experiment_id, found.run_id)
    removed = remove_tags(view.machine.files, paths, tags)
    if as_json:
        left = sorted({*found.tags}.difference(removed))
        print_json({"run": found.name, "tags": left, "removed": sorted(removed)})
    for tag in () if as_json else tags:
        note(f"{safe(found.name)} {'is no longer' if tag in removed else 'was not'} tagged {safe(tag)}")
    return exit_codes.OK if len(removed) == len(tags) else exit_codes.FAILED


@command.command("show")
@click.argument("run", shell_complete=complete_runs)
@common_options
def show_command(run: str, workspace: str | None, as_json: bool) -> None:
    """Show one RUN and its jobs: EXPERIMENT (its last run), EXPERIMENT/RUN, or a run id."""
    catalogue = open_catalogue(workspace)
    view = catalogue.view
    found = view.run(run)
    now = view.machine.clock.now()
    jobs = view.jobs(found)
    commits = view.commits(found)
    if as_json:
        print_json({**plain_run(found), "git": commits, "job_list": [plain_row(job, now) for job in jobs]})
        return
    say(f"{safe(found.name)}  {found.state.value}{' (live)' if found.live else ''}")
    say(f"started {moment(found.started)} by process {found.pid} on {safe(str(found.host))}")
    say(f"ended {moment(found.ended)}")
    if found.carbon is not None:
        say(f"used {energy(found.carbon)}, as far as it was measured")
    if found.tags:
        say(f"tagged {', '.join(map(safe, found.tags))}")
    for path, commit in commits.items():
        say(f"git {safe(path)}: {safe(commit)}")
    if found.message:
        say(safe(found.message))
    counts = {state: sum(job.state is state for job in jobs) for state in JobState}
    say(
        ", ".join(f"{number} {state.name.lower()}" for state, number in counts.items() if number) or "no jobs"
    )
    if jobs:
        say("")
        show_jobs(jobs, now, varying_names(catalogue, jobs))


@command.command("prune")
@click.argument("experiment", required=False)
@click.option("--keep-done", type=click.IntRange(min=0), help="Runs to keep that ended well.")
@click.option("--keep-failed", type=click.IntRange(min=0), help="Runs to keep that did not.")
@yes_option
@common_options
def prune_command(
    experiment: str | None,
    keep_done: int | None,
    keep_failed: int | None,
    yes: bool,
    workspace: str | None,
    as_json: bool,
) -> int:
    """Forget old runs of EXPERIMENT, or of all, but no tagged ones; their jobs and results stay.

    How many are kept is a setting (history.max_done, history.max_failed). The exit code is 4 if an experiment
    is running; without --yes nothing is removed.
    """
    settings = load_settings()
    view = open_workspace(workspace, settings)
    max_done = settings.history.max_done if keep_done is None else keep_done
    max_failed = settings.history.max_failed if keep_failed is None else keep_failed
    pruned: list[tuple[str, int]] = []
    locked = False
    for name in _experiments(view, experiment):
        try:
            found = prune_runs(view, name, max_done=max_done, max_failed=max_failed, really=yes)
        except ExperimentLocked as error:
            locked = True
            note(str(error))
        else:
            pruned += [(f"{name}/{run.run_id}", run.size) for run in found]
    if as_json:
        outcome = "pruned" if yes else "would_prune"
        print_json([{"run": name, "outcome": outcome, "bytes": size} for name, size in pruned])
    else:
        rows: list[list[Cell]] = [[name, size_text(size)] for name, size in pruned]
        if rows:
            table([Column("run", least=16), Column("size", right=True)], rows)
        total = size_text(sum(size for _, size in pruned))
        counted = f"{len(pruned)} runs, {total},"
        if yes:
            note(
                f"{counted} removed; {hint('tenuto clean --orphans')} deletes jobs that no run needs any more"
            )
        else:
            note(f"{counted} would be removed{'; add --yes to do it' if pruned else ''}")
    return exit_codes.LOCKED if locked else exit_codes.OK


def _experiments(view: WorkspaceView, experiment: str | None) -> list[str]:
    known = [one.experiment_id for one in view.experiments()]
    if experiment is None:
        return known
    if experiment not in known:
        raise NotFound(f"no experiment is called {experiment!r}; {there_are(experiment, known)}")
    return [experiment]


def _list(view: WorkspaceView, experiment: str | None, as_json: bool, tag: str | None = None) -> None:
    wanted = _experiments(view, experiment)
    runs = [run for one in view.experiments() if one.experiment_id in wanted for run in one.runs]
    if tag is not None:
        runs = [run for run in runs if tag in run.tags]
    if as_json:
        print_json([plain_run(run) for run in runs])
    elif runs:
        _show(view, runs)
    else:
        note("no experiment was run here yet" if tag is None else f"no run is tagged {safe(tag)}")


def _show(view: WorkspaceView, runs: list[RunView]) -> None:
    rows: list[list[Cell]] = []
    for run in runs:
        end = run.ended or (view.machine.clock.now() if run.live else None)
        took = (end - run.started).total_seconds() if end and run.started else None
        rows.append(
            [
                run.name,
                Styled(run.state.value, _COLOURS.get(run.state, "yellow")),
                *("" if count is None else str(count) for count in (run.jobs, run.reused, run.failed)),
                duration(took),
                moment(run.started),
                ", ".join(run.tags),
                run.message or "",
            ]
        )
    table(
        [
            Column("run", least=16),
            Column("state"),
            Column("jobs", right=True, rank=1),
            Column("reused", right=True, rank=3),
            Column("failed", right=True, rank=1),
            Column("took", right=True, rank=2),
            Column("started", rank=4),
            Column("tags", rank=3),
            Column("message", least=10, rank=5),
        ],
        rows,
    )
