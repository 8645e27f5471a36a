"""`tenuto kill`."""

from __future__ import annotations

import select
import time

import click

from tenuto.cli import exit_codes
from tenuto.cli.completions import complete_jobs
from tenuto.cli.console import Cell, Column, Styled, note, print_json, table
from tenuto.cli.options import json_option, open_workspace, workspace_option, yes_option
from tenuto.cli.person import person
from tenuto.cli.selection import jobs_of_runs, matching, named, need_one_of, read_filter
from tenuto.jobs.key import JobKey
from tenuto.jobs.outcome import Outcome
from tenuto.jobs.stop import Killing, has_ended, kill
from tenuto.workspace.machine import this_machine

SLACK_S = 15.0
"""How long beyond its grace period a runner may take to end."""
LONGEST_GRACE_S = 3600.0
ELSEWHERE_S = 10.0
"""How much longer the end of a job on another host may take to be seen here."""
LOOK_S = 0.2


@click.command()
@click.argument("jobs", metavar="[JOB]...", nargs=-1, shell_complete=complete_jobs)
@click.option("--where", metavar="FILTER", help="The running jobs that a filter matches; needs --yes.")
@click.option("--strays", is_flag=True, help="Running jobs that no live run waits for; needs --yes.")
@click.option("--attempt", type=click.IntRange(min=1), help="Only if this attempt is the one that runs.")
@click.option("--no-wait", is_flag=True, help="Do not wait until they ended.")
@yes_option
@workspace_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    jobs: tuple[str, ...],
    where: str | None,
    strays: bool,
    attempt: int | None,
    no_wait: bool,
    yes: bool,
    workspace: str | None,
    as_json: bool,
) -> int:
    """Stop running jobs: each is asked to end, gets its grace period, and is then killed.

    The exit code is 1 if one of them was not running or could not be stopped.
    """
    need_one_of(ctx, (jobs, where, strays), "say which: a JOB, --where FILTER or --strays")
    if attempt is not None and len(jobs) != 1:
        raise click.UsageError("--attempt is for one JOB", ctx)
    view = open_workspace(workspace)
    keys = named(view, jobs)
    wanted = read_filter((where,)) if where else None
    if wanted is not None:
        running = [job for job in jobs_of_runs(view, None) if job.state.running()]
        keys += [job.key for job in matching(view, running, wanted)]
    if strays:
        keys += [job.key for job in view.strays()]
    keys = list(dict.fromkeys(keys))
    if (where or strays) and not yes:
        return _would_kill(keys, as_json)
    message = f"killed by {person()} with tenuto kill"
    killed = [kill(view, key, message, attempt=attempt) for key in keys]
    waited = [(one, True if no_wait else wait_for_end(one)) for one in killed]
    _show(waited, no_wait, as_json)
    return exit_codes.OK if all(_is_fine(one, ended) for one, ended in waited) else exit_codes.FAILED


def _would_kill(keys: list[JobKey], as_json: bool) -> int:
    if as_json:
        print_json([{"task": key.task_id, "id": key.job_id, "outcome": "would_kill"} for key in keys])
        return exit_codes.OK
    if keys:
        table([Column("id"), Column("task", least=8)], [[key.job_id[:8], key.task_id] for key in keys])
    note(f"{len(keys)} would be killed; add --yes to do it" if keys else "nothing to kill")
    return exit_codes.OK


def wait_for_end(killing: Killing) -> bool:
    """Whether the runner ended in time."""
    patience_s = SLACK_S + min(killing.grace_s, LONGEST_GRACE_S)
    if killing.elsewhere is not None:
        return _wait_for_marker(killing, patience_s + ELSEWHERE_S)
    if killing.runner is None:
        return True
    poll = select.poll()
    poll.register(killing.runner.fileno(), select.POLLIN)
    ended = bool(poll.poll(patience_s * 1000))
    killing.runner.close()
    return ended


def _wait_for_marker(killing: Killing, patience_s: float) -> bool:
    """Whether a job on another host ended in time, which only its directory tells."""
    assert killing.elsewhere is not None
    machine = this_machine()
    deadline = machine.clock.monotonic() + patience_s
    while not has_ended(machine, killing.elsewhere, killing.acted.attempt):
        if machine.clock.monotonic() > deadline:
            return False
        time.sleep(LOOK_S)
    return True


def _is_fine(killing: Killing, ended: bool) -> bool:
    return killing.acted.outcome is Outcome.ASKED and ended


def _show(waited: list[tuple[Killing, bool]], no_wait: bool, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "task": one.acted.key.task_id,
                    "id": one.acted.key.job_id,
                    "outcome": one.acted.outcome.name.lower(),
                    "detail": one.acted.detail,
                    "attempt": one.acted.attempt,
                    "ended": None if no_wait else ended and one.acted.outcome is Outcome.ASKED,
                }
                for one, ended in waited
            ]
        )
        return
    if not waited:
        note("nothing to kill")
        return
    rows: list[list[Cell]] = []
    for one, ended in waited:
        text = one.acted.outcome.value
        if one.acted.outcome is Outcome.ASKED and not no_wait:
            text = "stopped" if ended else "does not stop; look at its processes"
        rows.append(
            [
                one.acted.key.job_id[:8],
                one.acted.key.task_id,
                Styled(text, "green" if _is_fine(one, ended) else "yellow"),
                one.acted.detail,
            ]
        )
    columns = [Column("id"), Column("task", least=8), Column("outcome", least=8), Column("", least=8, rank=1)]
    table(columns, rows)
