"""`tenuto retry`."""

from __future__ import annotations

import click

from tenuto.cli import exit_codes
from tenuto.cli.completions import complete_jobs, complete_runs
from tenuto.cli.console import note, print_json, say, state_cell, styled
from tenuto.cli.options import json_option, open_workspace, workspace_option
from tenuto.cli.program import hint
from tenuto.cli.selection import named, need_one_of
from tenuto.jobs.outcome import Outcome
from tenuto.jobs.retry import PreparedRetries, Retrying, prepare, submit
from tenuto.jobs.text import safe
from tenuto.launchers.choice import SLURM, Launchers
from tenuto.lifecycle.events import Event, JobStateChangedEvent
from tenuto.lifecycle.states import JobState
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.scheduler import Scheduler
from tenuto.settings import load_settings


@click.command()
@click.argument("jobs", metavar="[JOB]...", nargs=-1, shell_complete=complete_jobs)
@click.option("--failed", is_flag=True, help="All failed jobs of a run.")
@click.option("--attempt", type=click.IntRange(min=1), help="Only if this attempt is the last one.")
@click.option(
    "-r",
    "--run",
    metavar="RUN",
    shell_complete=complete_runs,
    help="The run for --failed; by default each experiment's last.",
)
@workspace_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    jobs: tuple[str, ...],
    failed: bool,
    attempt: int | None,
    run: str | None,
    workspace: str | None,
    as_json: bool,
) -> int:
    """Run failed jobs again, now, and wait for them.

    Each is started from its own directory with the parameters that it holds, so its script is not needed.
    A job that never started has none there: for it, run the experiment again. The exit code is 1 if one fails
    again or cannot be run. Ctrl-C leaves them running.
    """
    need_one_of(ctx, (jobs, failed), "say which: a JOB, or --failed")
    if run is not None and not failed:
        raise click.UsageError("--run goes with --failed", ctx)
    if attempt is not None and (failed or len(jobs) != 1):
        raise click.UsageError("--attempt is for one JOB", ctx)
    settings = load_settings()
    view = open_workspace(workspace, settings)
    keys = named(view, jobs)
    seen = {} if attempt is None else dict.fromkeys(keys, attempt)
    if failed:
        seen |= view.failed_jobs(run)
    keys = list(dict.fromkeys((*keys, *seen)))
    scheduler = Scheduler.instance()
    launchers = Launchers(settings)
    # What is run from its directory has no script to keep warm for.
    launcher = launchers.named(SLURM if settings.launcher == SLURM else "spawn")
    prepared = prepare(view, keys, scheduler, launcher, seen=seen)
    if not as_json:
        for refused in prepared.refused:
            note(f"{refused.key} is not run: {refused.detail}")
        if not keys:
            note("nothing failed")
    owner = Retrying(view, _ignore if as_json else _tell)
    try:
        submitted = submit(scheduler, prepared.jobs, owner)
        scheduler.wait(owner)
        scheduler.drain()
    except KeyboardInterrupt:
        note(f"the jobs go on; see them with: {hint('tenuto status')}")
        return exit_codes.INTERRUPTED
    finally:
        launchers.close()
    if as_json:
        print_json(_plain(prepared, submitted))
    done = all(job.state is JobState.DONE for job in submitted)
    return exit_codes.OK if done and not prepared.refused else exit_codes.FAILED


def _ignore(event: Event) -> None:
    """For programs only the end counts."""


def _tell(event: Event) -> None:
    shown = (JobState.RUNNING, JobState.DONE, JobState.ERROR)
    if isinstance(event, JobStateChangedEvent) and event.state in shown:
        reason = f" {event.reason.name}: {safe(event.message or '')}" if event.reason else ""
        say(f"{styled(state_cell(event.state))} {safe(event.task_id)} {event.job_id[:8]}{reason}")


def _plain(prepared: PreparedRetries, submitted: list[Job]) -> list[dict[str, object]]:
    ran: list[dict[str, object]] = [
        {
            "task": job.task_id,
            "id": job.job_id,
            "state": job.state.name.lower(),
            "outcome": Outcome.RETRIED.name.lower(),
            "reason": job.failure_status.name.lower() if job.failure_status else None,
            "message": job.standing.message,
            "attempt": job.attempt,
        }
        for job in submitted
    ]
    refused: list[dict[str, object]] = [
        {
            "task": one.key.task_id,
            "id": one.key.job_id,
            "state": "refused",
            "outcome": one.outcome.name.lower(),
            "reason": None,
            "message": one.detail,
            "attempt": None,
        }
        for one in prepared.refused
    ]
    return ran + refused
