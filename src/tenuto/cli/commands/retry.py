"""`tenuto retry`."""

from __future__ import annotations

import click

from tenuto.catalogue import Catalogue
from tenuto.cli import exit_codes
from tenuto.cli.chosen_jobs import Meant, job_options, meant, need_one_of
from tenuto.cli.completions import complete_jobs, complete_runs
from tenuto.cli.console import note, person, print_json, say, state_cell, styled
from tenuto.cli.options import open_catalogue
from tenuto.cli.program import hint
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.directories import Seen
from tenuto.jobs.key import JobKey
from tenuto.jobs.retry import PreparedRetries, Retrying, prepare, retry_launcher, submit
from tenuto.jobs.row import Row, shown_name
from tenuto.jobs.source import ActedAs, Action
from tenuto.jobs.text import safe
from tenuto.launchers.selection import Launchers
from tenuto.lifecycle.events import Event, JobStateChangedEvent
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobState
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.scheduler import Scheduler
from tenuto.settings import Settings, load_settings


@click.command()
@click.argument("jobs", metavar="[JOB|GROUP|FILTER]...", nargs=-1, shell_complete=complete_jobs)
@click.option("--failed", is_flag=True, help="All failed jobs of a run.")
@click.option("--attempt", type=click.IntRange(min=1), help="Only if this attempt is the last one.")
@click.option(
    "-r",
    "--run",
    metavar="RUN",
    shell_complete=complete_runs,
    help="The run or search for --failed; by default each experiment's last run.",
)
@job_options
@click.pass_context
def command(
    ctx: click.Context,
    jobs: tuple[str, ...],
    failed: bool,
    attempt: int | None,
    run: str | None,
    kind: str | None,
    workspace: str | None,
    as_json: bool,
) -> int:
    """Run failed jobs again, now, and wait for them.

    Each is started from its own directory with the parameters stored there, without its script.
    A job that never started has none there: for it, run the experiment again. A candidate (NAME#N, or
    --failed --run NAME) is tried again by `tenuto evolve` or a worker; a job of a service is never run again.
    Of a GROUP, or of the jobs that a FILTER matches, the failed ones are meant.
    The exit code is 1 if one fails again or cannot be run. Ctrl-C leaves them running.
    """
    need_one_of(ctx, (jobs, failed), "say which: a JOB, or --failed")
    if run is not None and not failed:
        raise click.UsageError("--run goes with --failed", ctx)
    if attempt is not None and (failed or len(jobs) != 1):
        raise click.UsageError("--attempt is for one JOB", ctx)
    settings = load_settings()
    catalogue = open_catalogue(workspace, settings)
    door = None if run is None or jobs else catalogue.group(run, kind=kind).door
    is_other = (kind if door is None else door.kind) not in (None, Door.EXPERIMENTS.kind)
    found = meant(catalogue, jobs, run=run, kind=kind) if jobs or is_other else Meant([])
    named = frozenset[str]() if failed else found.named
    rows = [row for row in found.rows if row.key in named or row.state is JobState.ERROR]
    if attempt is not None:
        rows = [row._replace(attempt=attempt) for row in rows]
    others = [row for row in rows if row.door is not Door.EXPERIMENTS]
    own = [row.job_key for row in rows if row.door is Door.EXPERIMENTS]
    seen = {} if attempt is None else dict.fromkeys(own, attempt)
    if not (jobs or is_other):
        seen |= catalogue.view.failed_jobs(run)
    keys = list(dict.fromkeys((*own, *seen)))
    if not keys and not others and not as_json:
        note("nothing failed")
    told, is_fine = _retry_elsewhere(catalogue, others, as_json)
    try:
        ran, all_done = _retry_here(catalogue.view, settings, keys, seen, as_json)
    except KeyboardInterrupt:
        note(f"the jobs continue; see them with: {hint('tenuto status')}")
        return exit_codes.INTERRUPTED
    if as_json:
        print_json(ran + told)
    return exit_codes.OK if is_fine and all_done else exit_codes.FAILED


def _retry_here(
    view: WorkspaceView, settings: Settings, keys: list[JobKey], seen: Seen, as_json: bool
) -> tuple[list[dict[str, object]], bool]:
    """Runs jobs of experiments again, and waits for them: the outcome of each, and whether all are done."""
    if not keys:
        return [], True
    scheduler = Scheduler.instance()
    launchers = Launchers(settings)
    prepared = prepare(view, keys, scheduler, retry_launcher(settings, launchers), seen=seen)
    for refused in () if as_json else prepared.refused:
        note(f"{refused.key} is not run: {refused.detail}")
    owner = Retrying(view, _ignore if as_json else _tell)
    try:
        submitted = submit(scheduler, prepared.jobs, owner)
        scheduler.wait(owner)
        scheduler.drain()
    finally:
        launchers.close()
    done = all(job.state is JobState.DONE for job in submitted)
    return _plain(prepared, submitted), done and not prepared.refused


def _retry_elsewhere(
    catalogue: Catalogue, rows: list[Row], as_json: bool
) -> tuple[list[dict[str, object]], bool]:
    """Hands candidates to their workers again; the outcome of each, and whether all will be tried."""
    acted = catalogue.act(Action.RETRY, rows, by=person())
    names = {row.key: row.name for row in rows}
    for one in () if as_json else acted:
        is_retried = one.outcome is ActedAs.RETRIED
        again = f"to be tried again{f'; {one.detail}' if one.detail else ''}"
        note(f"{names[one.key]} is {again if is_retried else f'not run: {one.detail}'}")
    plain = []
    for one in acted:
        name, state = names[one.key], "waiting" if one.outcome is ActedAs.RETRIED else "refused"
        plain.append(
            _told(JobKey(name.rpartition("#")[0], name), state, one.outcome, one.detail or None, one.attempt)
        )
    return plain, all(one.outcome is ActedAs.RETRIED for one in acted)


def _told(
    key: JobKey,
    state: str,
    outcome: ActedAs,
    message: str | None,
    attempt: int | None,
    reason: str | None = None,
) -> dict[str, object]:
    """What became of one job, for programs."""
    found: dict[str, object] = {"id": key.job_id, "name": shown_name(key.job_id), "task": key.task_id}
    found |= {"state": state, "outcome": outcome.value, "reason": reason}
    return found | {"message": message, "attempt": attempt}


def _ignore(event: Event) -> None:
    """For programs only the end counts."""


def _tell(event: Event) -> None:
    shown = (JobState.RUNNING, JobState.DONE, JobState.ERROR)
    if isinstance(event, JobStateChangedEvent) and event.state in shown:
        reason = f" {event.reason.name}: {safe(event.message or '')}" if event.reason else ""
        say(f"{styled(state_cell(event.state))} {safe(event.task_id)} {event.job_id[:8]}{reason}")


def _plain(prepared: PreparedRetries, submitted: list[Job]) -> list[dict[str, object]]:
    ran = [
        _told(
            JobKey(job.task_id, job.job_id),
            job.state.name.lower(),
            ActedAs.RETRIED,
            job.state_record.message,
            job.attempt,
            job.failure_status.name.lower() if job.failure_status else None,
        )
        for job in submitted
    ]
    return ran + [_told(one.key, "refused", one.outcome, one.detail, None) for one in prepared.refused]
